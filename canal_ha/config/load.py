"""Builds a CanalConfig from a node's properties files, the environment and --set (docs/protocol.md#lookup)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TypeVar

from canal_ha.config import absent, keys, queue
from canal_ha.config.keys import Key
from canal_ha.config.kinds import DESTINATION_BYTES
from canal_ha.config.kinds import destination as checked_name
from canal_ha.config.model import (
    CanalConfig,
    CursorPlace,
    DecodeOptions,
    FilterMode,
    GroupMember,
    InstanceConfig,
    LocalFiles,
    QueueConfig,
    RefusedDestination,
    SnapshotLimits,
    SourceConfig,
    Stamp,
    WhenLost,
)
from canal_ha.config.outside import has_placeholder
from canal_ha.config.properties import (
    PROGRAM,
    Layers,
    Setting,
    from_environment,
    from_mapping,
    from_program,
    from_sets,
    read,
    references,
)
from canal_ha.config.scan import DirectoryState
from canal_ha.config.tls import KeyReader, port_tls, tls_config, tsdb_tls, zookeeper_access
from canal_ha.errors import ConfigError, FileMissing, FileUnusable, FilterInvalid

T = TypeVar("T")

MAIN_FILE = "canal.properties"
INSTANCE_FILE = "instance.properties"
AUDIT_FILE = Path("audit") / "audit.log"

FilterCheck = Callable[[str], object]
"""Compiles a list of table filters; raises FilterInvalid."""


def _audit_file(node: KeyReader, path: Callable[[str], Path]) -> Path | None:
    """Return where the audit log is; None without one."""
    file, when = node.get(keys.AUDIT_FILE), node.get(keys.AUDIT)
    on_admin_port = node.get(keys.CONSOLE_PORT) > 0 and node.get(keys.CONSOLE_PASSWD)
    has_accounts = bool(node.get(keys.ACCOUNTS_FILE) or node.get(keys.PASSWD) or on_admin_port)
    if when == "off" or (when == "accounts" and not has_accounts):
        return None
    return path(file) if file else path(node.get(keys.LOG_DIR)) / AUDIT_FILE


def load(conf_dir: Path, sets: Sequence[str], environ: Mapping[str, str]) -> CanalConfig:
    """Load like `load_usable`, but raise ConfigError for the first unusable destination too."""
    config = load_usable(conf_dir, sets, environ)
    if config.refused:
        raise config.refused[0].error
    return config


def load_usable(
    conf_dir: Path,
    sets: Sequence[str],
    environ: Mapping[str, str],
    check_filter: FilterCheck | None = None,
    given: Mapping[str, str] | None = None,
) -> CanalConfig:
    """Read conf_dir/canal.properties and the instance.properties of every destination.

    An unusable destination is listed in `refused`; the others are loaded anyway.

    conf_dir: directory of canal.properties.
    sets: `key=value` arguments; override environ.
    environ: the process environment; overrides the files.
    check_filter: checks the table filters of every destination.
    given: settings of a program; override all others, and canal.properties need not exist. None: not of a program.
    Raises ConfigError for an invalid value of the node.
    """
    main_file = conf_dir / MAIN_FILE
    main = read(main_file) if given is None or main_file.exists() else {}
    files = _ConfigFiles(main_file, main, tuple(sets), environ, given or {})
    config = files.config()
    names = dict.fromkeys(config.listed)
    if config.auto_scan:
        names |= dict.fromkeys(sorted(look_at(config.conf_dir, main_file).files))
    return files.whole(config, config, names, check_filter)


def load_again(
    known: CanalConfig,
    destinations: Iterable[str],
    environ: Mapping[str, str],
    check_filter: FilterCheck | None = None,
) -> CanalConfig:
    """Read canal.properties again, and with it the files of destinations where a running node looks for them.

    known: the configuration of the node. A changed canal.conf.dir or canal.zkServers has no effect on destinations.
    destinations: their names.
    environ: the process environment.
    check_filter: checks their table filters.
    Raises ConfigError for an invalid value of the node.
    """
    main = read(known.main_file) if not known.given or known.main_file.exists() else {}
    files = _ConfigFiles(known.main_file, main, known.sets, environ, known.given)
    return files.whole(files.config(), known, destinations, check_filter)


def main_as_loaded(known: CanalConfig) -> bool:
    """Return whether canal.properties still says what the configuration was made of. Raises ConfigError."""
    return bool(known.main) and read(known.main_file) == known.main


def load_instance(
    config: CanalConfig,
    destination: str,
    environ: Mapping[str, str],
    check_filter: FilterCheck | None = None,
    given: Mapping[str, str] | None = None,
) -> tuple[InstanceConfig, tuple[str, ...]]:
    """Read one destination's file again and return its configuration and the warnings.

    config: the node's configuration. canal.properties is not read: its settings are `config.main`.
    destination: its name.
    environ: the process environment.
    check_filter: checks its table filters.
    given: settings of a program for this destination; override all others.
    Raises ConfigError; the node then keeps the previous configuration.
    """
    files = _ConfigFiles(config.main_file, config.main, config.sets, environ, config.given)
    instance, warnings = files.instance(config.conf_dir, destination, config.zk_servers, check_filter, given)
    return instance, tuple(warnings)


@dataclass(frozen=True, slots=True)
class DecodingKeys:
    """The instance keys that concern decoding, for binlog files without a server.

    gtid: canal.instance.master.gtid, the set executed before the first file.
    """

    options: DecodeOptions
    filter_regex: str
    filter_black_regex: str
    filter_client_mode: FilterMode
    gtid: str
    warnings: tuple[str, ...]


def load_decoding(sets: Sequence[str], environ: Mapping[str, str]) -> DecodingKeys:
    """Read instance keys from --set and the environment only. Raises ConfigError."""
    given = from_sets(sets)
    layers = Layers((from_mapping(given), from_environment(environ)), environ)
    reader = _LayeredValues(layers, "--set")
    return DecodingKeys(
        options=_decode_options(reader, keys.TSDB),
        filter_regex=reader.get(keys.FILTER),
        filter_black_regex=reader.get(keys.FILTER_BLACK),
        filter_client_mode=reader.get(keys.CLIENT_FILTER),
        gtid=reader.get(keys.MASTER.gtid),
        warnings=tuple(absent.warnings("--set", given, layers.resolve, instance=True)),
    )


@dataclass(frozen=True, slots=True)
class DestinationStorage:
    """Where a node keeps what it knows of a destination, apart from ZooKeeper.

    data_dir: directory of <destination>/meta.dat.
    history_dir: directory of the table history in a file.
    history_url: of the table history in MySQL; may hold a password; "" if it is not there.
    """

    data_dir: Path
    history_dir: Path
    history_url: str


def load_storage(
    config: CanalConfig, destination: str, environ: Mapping[str, str], file: Path | None = None
) -> DestinationStorage:
    """Return where a node keeps a destination, which need not be configured.

    config: the node's configuration. canal.properties is not read: its settings are `config.main`.
    destination: its name.
    environ: the process environment.
    file: with settings of the destination; None: those of the node alone count.
    Raises ConfigError.
    """
    files = _ConfigFiles(config.main_file, config.main, config.sets, environ, config.given)
    return files.storage(destination, read(file) if file else {})


def resolved_path(main_file: Path, text: str) -> Path:
    """Resolve the path in a value; a relative one starts, as in canal, in bin/ beside conf/.

    `../conf` therefore means the directory given by --conf, whatever its name is.

    main_file: canal.properties.
    text: the value.
    """
    conf_dir = main_file.parent.absolute()
    path = PurePath(text)
    if path.parts[:2] == ("..", "conf"):
        return Path(os.path.normpath(conf_dir.joinpath(*path.parts[2:])))
    return Path(os.path.normpath(conf_dir.parent / "bin" / path))


def look_at(conf_dir: Path, main_file: Path) -> DirectoryState:
    """Read the state of the files that a scan watches, for `scan.compare`.

    conf_dir: directory of <destination>/instance.properties; `spring` and hidden directories are skipped.
    main_file: canal.properties.
    """
    main, main_gone = None, ""
    try:
        try:
            main = _stamp(main_file)
        except FileNotFoundError:
            main_gone = _broken_link_text(main_file) if _is_broken_link(main_file) else f"{main_file} does not exist"
        with os.scandir(conf_dir) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        directories = [Path(entry.path) for entry in entries if _is_directory(entry)]
    except OSError as error:
        return DirectoryState(problem=main_gone or f"{error.filename} cannot be read ({error.strerror})")
    files: dict[str, Stamp] = {}
    links = [Path(entry.path) for entry in entries if entry.is_symlink()]
    unreadable = {link.name: _broken_link_text(link) for link in links if _is_broken_link(link)}
    for directory in directories:
        if directory.name.lower() == "spring" or directory.name.startswith("."):
            continue
        try:
            path = _instance_file(directory)
            if path is not None and _is_broken_link(path):
                unreadable[directory.name] = _broken_link_text(path)
            elif path is not None:
                files[directory.name] = _stamp(path)
        except OSError as error:
            unreadable[directory.name] = f"{error.filename} cannot be read ({error.strerror})"
    return DirectoryState(files, unreadable, main, main_gone)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    # a link may lead to itself or through a file: DirEntry raises an error then, and Path does not
    return Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir()


def _is_broken_link(path: Path) -> bool:
    """Return whether the path is a link to a missing target, for example on an unmounted file system."""
    return path.is_symlink() and not path.exists()


def _broken_link_text(link: Path) -> str:
    return f"the link {link} points to {link.readlink()}, which does not exist"


def _stamp(path: Path) -> Stamp:
    """Return the state of a file. Raises OSError."""
    state = path.stat()
    return Stamp(state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino)


def _instance_file(directory: Path) -> Path | None:
    """Find instance.properties, in any case; None if it does not exist. Raises OSError if that is unknown."""
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = next((name for name in names if name.lower() == INSTANCE_FILE), None)
    return directory / found if found else None


@dataclass(frozen=True, slots=True)
class _LayeredValues:
    """Typed values from layers of settings. where: the file to name for a value that no layer holds."""

    layers: Layers
    where: str

    def get(self, key: Key[T]) -> T:
        """Return the typed value of a key. Raises ConfigError with file, key, value (unless secret) and syntax."""
        try:
            return key.kind.read(self._setting(key).text)
        except ValueError as error:
            raise self.refusal(key, key.kind.expected) from error

    def has(self, key: Key[object]) -> bool:
        found = self.layers.find(key.name)
        return found is not None and bool(found.text)

    def origin(self, key: Key[object]) -> str:
        return self._setting(key).origin

    def refusal(self, key: Key[object], expected: str, why: str = "") -> ConfigError:
        """Return the error that the value of a key is invalid. why: may quote the value; see Setting.refusal."""
        return self._setting(key).refusal(key.name, expected, secret=key.secret, why=why)

    def _setting(self, key: Key[object]) -> Setting:
        """Return the value with the place that defines it, even if blank there; else with the file to name."""
        found = self.layers.find(key.name)
        if found is not None and found.text:
            return found
        place = self.layers.written(key.name)
        if place is None or place.file != self.where:
            place = Setting("", self.where)
        return self.layers.resolved(replace(place, text=key.default, outside=False), key.name)


class _ConfigFiles:
    """The files of one load: the settings of canal.properties, and the instance files, read on demand."""

    def __init__(
        self,
        main_file: Path,
        main: Mapping[str, Setting],
        sets: tuple[str, ...],
        environ: Mapping[str, str],
        given: Mapping[str, str],
    ) -> None:
        """Read nothing yet.

        main_file: canal.properties.
        main: its settings.
        sets: `key=value` arguments; override environ.
        environ: the process environment; overrides the files.
        given: settings of a program; override sets.
        """
        self.main_file = main_file
        self.sets = sets
        self.given = given
        self._environ = environ
        self._strong = (from_mapping(from_program(given)), from_mapping(from_sets(sets)), from_environment(environ))
        self._main = main
        self._used = _used(self._main) | _used(from_program(given))  # names in placeholders of all that is read so far
        self._written = (*main, *from_sets(sets), *given)
        self._layers_of: dict[str, Layers] = {}  # of the destinations whose files have been read
        layers = Layers((*self._strong, from_mapping(self._main)), environ, self._written)
        self.node = _LayeredValues(layers, str(main_file))

    @property
    def feeds_queue(self) -> bool:
        """Whether the node writes to Kafka, instead of serving clients."""
        return self.node.get(keys.SERVER_MODE) != "tcp"

    def config(self) -> CanalConfig:
        """Return the node's configuration without destinations and warnings. Raises ConfigError."""
        node = self.node
        zk_servers = node.get(keys.ZK_SERVERS)
        node.get(keys.SERVER_MODE)  # raises for a queue that is not supported
        _cursor_place(node, "global", zk_servers)  # raises for canal's stock file even before a destination exists
        return CanalConfig(
            conf_dir=self.path(node.get(keys.CONF_DIR)),
            destinations=(),
            ip=node.get(keys.IP),
            register_ip=node.get(keys.REGISTER_IP),
            port=node.get(keys.PORT),
            user=node.get(keys.USER),
            passwd=node.get(keys.PASSWD),
            accounts_file=self.path(node.get(keys.ACCOUNTS_FILE)) if node.get(keys.ACCOUNTS_FILE) else None,
            insecure=node.get(keys.INSECURE),
            tls=port_tls(node, self.path),
            login_timeout_s=node.get(keys.LOGIN_TIMEOUT),
            connections_max=node.get(keys.CONNECTIONS),
            address_connections_max=node.get(keys.ADDRESS_CONNECTIONS),
            ahead_bytes=node.get(keys.AHEAD_BYTES),
            reply_bytes=node.get(keys.REPLY_BYTES),
            metrics_port=node.get(keys.METRICS_PORT),
            metrics_bind=node.get(keys.METRICS_BIND) or node.get(keys.IP),
            admin_http_port=node.get(keys.ADMIN_PORT),
            admin_http_bind=node.get(keys.ADMIN_BIND),
            admin_http_secrets=self.path(node.get(keys.ADMIN_SECRETS)) if node.get(keys.ADMIN_SECRETS) else None,
            admin_port=node.get(keys.CONSOLE_PORT),
            admin_user=node.get(keys.CONSOLE_USER),
            admin_passwd=node.get(keys.CONSOLE_PASSWD),
            zk_servers=zk_servers,
            zk_session_timeout_ms=node.get(keys.ZK_SESSION),
            zk_flush_period_ms=node.get(keys.ZK_FLUSH),
            zk_access=zookeeper_access(node, self.path),
            labels=node.get(keys.LABELS),
            rebalance_delay_s=node.get(keys.REBALANCE_DELAY),
            rebalance_interval_s=node.get(keys.REBALANCE_INTERVAL),
            without_netty=node.get(keys.WITHOUT_NETTY) or self.feeds_queue,
            max_frame_bytes=node.get(keys.MAX_FRAME),
            auto_scan=node.get(keys.AUTO_SCAN),
            auto_scan_interval_s=node.get(keys.AUTO_SCAN_INTERVAL),
            log_dir=self.path(node.get(keys.LOG_DIR)),
            audit_file=_audit_file(node, self.path),
            alarm_file=self.path(node.get(keys.ALARM_FILE)) if node.get(keys.ALARM_FILE) else None,
            log_format=node.get(keys.LOG_FORMAT),
            main_file=self.main_file,
            sets=self.sets,
            listed=tuple(dict.fromkeys(node.get(keys.DESTINATIONS_EXPR) or node.get(keys.DESTINATIONS))),
            main=self._main,
            layers=node.layers,
            given=self.given,
        )

    def path(self, text: str) -> Path:
        """Resolve a path; see resolved_path."""
        return resolved_path(self.main_file, text)

    def whole(
        self, config: CanalConfig, running: CanalConfig, names: Iterable[str], check_filter: FilterCheck | None
    ) -> CanalConfig:
        """Return a node's configuration with destinations and warnings.

        config: what `config` returned.
        running: says where instance files are, and which ZooKeeper the node uses.
        names: of the destinations.
        check_filter: checks their table filters.
        """
        instances, refused, warnings = [], [], []
        for name in names:
            try:
                instance, its_warnings = self.instance(running.conf_dir, name, running.zk_servers, check_filter)
            except ConfigError as error:
                refused.append(RefusedDestination(name, error, self._layers_of.get(name)))
            else:
                instances.append(instance)
                warnings += its_warnings
        return replace(
            config,
            destinations=tuple(instances),
            refused=tuple(refused),
            warnings=tuple(dict.fromkeys([*self.node_warnings(), *warnings])),
        )

    def node_warnings(self) -> Iterator[str]:
        """Yield warnings about canal.properties and --set; call it after all instance files are read."""
        for where, settings in (
            (self.main_file, self._main),
            ("--set", from_sets(self.sets)),
            (PROGRAM, from_program(self.given)),
        ):
            yield from absent.warnings(where, settings, self.node.layers.resolve, instance=False, used=self._used)
        for name, setting in from_sets(self.sets).items():
            key = keys.BY_NAME.get(name)
            if key is not None and key.secret and setting.text and not has_placeholder(setting.text):
                yield (
                    f"--set {name}: other users can see this value in the list of processes; write"
                    f" --set '{name}=${{file:PATH}}'"
                )
        if self.node.get(keys.PASSWD) and not self.node.get(keys.USER):
            origin = self.node.origin(keys.PASSWD)
            yield f"{origin}: canal.passwd is set without canal.user: any user name is accepted"

    def instance(
        self,
        scan_root: Path,
        destination: str,
        zk_servers: str,
        check_filter: FilterCheck | None,
        given: Mapping[str, str] | None = None,
    ) -> tuple[InstanceConfig, list[str]]:
        """Load one destination and return its configuration and the warnings.

        The destination needs no file of its own: canal.properties can hold all keys.

        scan_root: directory of <destination>/instance.properties.
        destination: its name.
        zk_servers: canal.zkServers; "" if there are none.
        check_filter: checks its table filters.
        given: settings of a program for this destination.
        Raises ConfigError.
        """
        where = scan_root / destination / INSTANCE_FILE
        try:
            checked_name(destination)
        except ValueError as error:
            expected = f"a name without blanks and slashes, of at most {DESTINATION_BYTES} bytes"
            raise ConfigError(str(where), "(directory)", destination, expected) from error
        try:
            path = _instance_file(scan_root / destination)
            if path and _is_broken_link(path):
                raise FileUnusable(str(path), f"is a link to {path.readlink()}, which does not exist")
            stamp = _stamp(path) if path else None
        except OSError as error:
            raise ConfigError(str(error.filename), "(file)", "", f"a readable file ({error.strerror})") from error
        where = path or where
        own, its = read(path) if path else {}, from_program(given or {})
        self._used |= _used(own) | _used(its)
        name = {"canal.instance.destination": Setting(destination, str(where))}
        layers = Layers(
            (from_mapping({**its, **name}), *self._strong, from_mapping(own), from_mapping(self._main)),
            self._environ,
            (*own, *its),
        )
        self._layers_of[destination] = layers
        reader = _LayeredValues(layers, str(where))
        warnings = list(absent.warnings(where, own, layers.resolve, instance=True, used=self._used))
        warnings += absent.warnings(PROGRAM, its, layers.resolve, instance=True, used=self._used)
        cursor_place = _cursor_place(self.node, destination, zk_servers)
        template = _template(self.node, destination)[1]
        local = template == "local"
        if not local and reader.get(keys.LOCAL_DIR):
            warnings.append(
                f"{reader.origin(keys.LOCAL_DIR)}: {keys.LOCAL_DIR.name} has no effect without"
                " local-instance.xml as template"
            )
        first = keys.numbered(keys.MASTER, 1).address
        if template != "group" and reader.has(first):
            warnings.append(
                f"{reader.origin(first)}: {first.name} has no effect without group-instance.xml as template"
            )
        if cursor_place is CursorPlace.MEMORY and zk_servers:
            warnings.append(f"{where}: cursors of {destination} are kept in memory only, so a fail-over loses rows")
        if check_filter is not None:
            for key in (keys.FILTER, keys.FILTER_BLACK):
                try:
                    check_filter(reader.get(key))
                except FilterInvalid as error:
                    raise reader.refusal(key, "a list of regular expressions", str(error)) from error
            for key in (keys.PRIVACY_DROP, keys.PRIVACY_MASK, keys.PRIVACY_HASH):
                for rule in reader.get(key).split(","):
                    try:
                        check_filter(rule.rpartition(":")[0].strip())
                    except FilterInvalid as error:
                        raise reader.refusal(key, "regular expressions for tables", str(error)) from error
        try:
            config = self._instance(reader, destination, cursor_place, template)
            return replace(config, layers=layers, stamp=stamp), warnings
        except ConfigError as error:
            if error.file != str(where) or error.line or (stamp and stamp.size_bytes):
                raise
            if stamp is None:
                raise FileMissing(str(where), error.key, error.expected) from error
            raise FileUnusable(str(where), f"is empty and {error.key} is set nowhere else", key=error.key) from error

    def storage(self, destination: str, own: Mapping[str, Setting]) -> DestinationStorage:
        """Return where a destination is kept. own: the settings of its file. Raises ConfigError."""
        name = {"canal.instance.destination": Setting(destination, str(self.main_file))}
        layers = Layers((from_mapping(name), *self._strong, from_mapping(own), from_mapping(self._main)), self._environ)
        reader = _LayeredValues(layers, str(self.main_file))
        return DestinationStorage(
            data_dir=self.path(reader.get(keys.DATA_DIR)),
            history_dir=self.path(reader.get(keys.TSDB_DIR)),
            history_url=_tsdb_url(reader) if reader.get(keys.TSDB) else "",
        )

    def _instance(
        self, reader: _LayeredValues, destination: str, cursor_place: CursorPlace, template: str
    ) -> InstanceConfig:
        get = reader.get
        local = template == "local"
        files = self._local(reader)
        group = self._group(reader) if template == "group" else ()
        master = self._source(reader, keys.MASTER, missing=("", 0) if local else None)
        standby = self._source(reader, keys.STANDBY)
        if group:
            master, standby = group[0].master, group[0].standby
        if master is None:
            raise reader.refusal(keys.MASTER.address, keys.MASTER.address.kind.expected)
        if local and files is None:
            raise reader.refusal(keys.LOCAL_DIR, "a directory with binlog files, because of local-instance.xml")
        lazy = replace(keys.LAZY, name=f"canal.instance.{destination}.lazy")
        tsdb = keys.TSDB if cursor_place is not CursorPlace.MEMORY else replace(keys.TSDB, default="false")
        return InstanceConfig(
            destination=destination,
            master=master,
            standby=standby,
            local=files if local else None,
            group=group,
            group_wait_s=get(keys.GROUP_WAIT),
            username=get(keys.DB_USERNAME),
            password="" if reader.layers.blank(keys.DB_PASSWORD.name) else get(keys.DB_PASSWORD),
            default_database=get(keys.DEFAULT_DATABASE),
            server_id=get(keys.SLAVE_ID),
            filter_regex=get(keys.FILTER),
            filter_black_regex=get(keys.FILTER_BLACK),
            filter_client_mode=get(keys.CLIENT_FILTER),
            decode=_decode_options(reader, tsdb),
            cursor_place=cursor_place,
            buffer_size=get(keys.BUFFER_SIZE),
            buffer_mem_unit=get(keys.BUFFER_UNIT),
            batch_mode=get(keys.BATCH_MODE),
            ddl_isolation=get(keys.DDL_ISOLATION),
            stream_idle_s=get(keys.STREAM_IDLE),
            stream_max=get(keys.STREAM_MAX),
            stream_shared=get(keys.STREAM_SHARED),
            stream_reactor=get(keys.STREAM_REACTOR),
            stream_account_max=get(keys.STREAM_ACCOUNT_MAX),
            read_max=get(keys.READ_MAX),
            read_account_max=get(keys.READ_ACCOUNT_MAX),
            read_idle_s=get(keys.READ_IDLE),
            clients_max=get(keys.CLIENT_IDS),
            clients_account_max=get(keys.CLIENT_IDS_OF_ACCOUNT),
            so_timeout_s=get(keys.SO_TIMEOUT),
            receive_buffer_bytes=get(keys.RECEIVE_BUFFER),
            fallback_interval_s=get(keys.FALLBACK),
            detecting_enable=get(keys.DETECT),
            detecting_sql=get(keys.DETECT_SQL),
            detecting_interval_s=get(keys.DETECT_INTERVAL),
            detecting_retry_threshold=get(keys.DETECT_RETRY),
            detecting_heartbeat_ha=get(keys.DETECT_HA),
            binlog_formats=get(keys.BINLOG_FORMAT),
            binlog_images=get(keys.BINLOG_IMAGE),
            tsdb_dir=str(self.path(get(keys.TSDB_DIR))),
            tsdb_in_zookeeper=get(keys.TSDB_ZOOKEEPER),
            tsdb_url=_tsdb_url(reader),
            tsdb_username=get(keys.TSDB_USERNAME),
            tsdb_password=get(keys.TSDB_PASSWORD),
            tsdb_tls=tsdb_tls(reader, self.path),
            tsdb_snapshot_interval_h=get(keys.TSDB_INTERVAL),
            tsdb_snapshot_expire_h=get(keys.TSDB_EXPIRE),
            lazy=self.node.get(lazy if self.node.has(lazy) else keys.LAZY) and not self.feeds_queue,
            preferred_labels=get(keys.PREFERRED_LABELS),
            alarm_lag_s=get(keys.ALARM_LAG),
            alarm_unmoved_s=get(keys.ALARM_UNMOVED),
            alarm_blocked_s=get(keys.ALARM_BLOCKED),
            snapshot=SnapshotLimits(
                connections=get(keys.SNAPSHOT_CONNECTIONS),
                chunk_s=get(keys.SNAPSHOT_CHUNK_TIME),
                rows_most=get(keys.SNAPSHOT_CHUNK_ROWS),
                bytes_most=get(keys.SNAPSHOT_CHUNK_BYTES),
                rows_per_s=get(keys.SNAPSHOT_RATE),
                select_s=get(keys.SNAPSHOT_EXECUTION),
            ),
            position_lost=_position_lost(reader),
            xa=get(keys.XA),
            xa_bytes=get(keys.XA_BYTES),
            data_dir=self.path(get(keys.DATA_DIR)),
            file_flush_period_ms=get(keys.FILE_FLUSH),
            queue=self._queue(reader, destination) if self.feeds_queue else None,
        )

    def _queue(self, reader: _LayeredValues, destination: str) -> QueueConfig:
        """Read where in Kafka the changes of a destination go.

        An instance file has no say in the keys of the node: it would choose who gets the node's password.
        """
        names = dict.fromkeys([*queue.named(self._written), *queue.named(queue.OLD_NAMES.values())])
        name = {"canal.instance.destination": Setting(destination, str(self.main_file))}
        layers = replace(self.node.layers, layers=(from_mapping(name), *self.node.layers.layers))
        return queue.queue_of(reader, _LayeredValues(layers, str(self.main_file)), layers.find, names)

    def _local(self, reader: _LayeredValues) -> LocalFiles | None:
        directory, schema = reader.get(keys.LOCAL_DIR), reader.get(keys.LOCAL_SCHEMA)
        return LocalFiles(self.path(directory), self.path(schema) if schema else None) if directory else None

    def _group(self, reader: _LayeredValues) -> tuple[GroupMember, ...]:
        """Read several sources, numbered without gaps. Raises ConfigError."""
        members: dict[int, GroupMember] = {}
        for number in range(1, keys.GROUP_MOST + 1):
            master = self._source(reader, keys.numbered(keys.MASTER, number))
            if master is not None:
                members[number] = GroupMember(master, self._source(reader, keys.numbered(keys.STANDBY, number)))
        least = max(2, *members) if members else 2
        for number in range(1, least + 1):
            if number not in members:
                address = keys.numbered(keys.MASTER, number).address
                raise reader.refusal(address, "host:port of this source, because of group-instance.xml")
        return tuple(members.values())

    def _source(
        self, reader: _LayeredValues, names: keys.SourceKeys, *, missing: tuple[str, int] | None = None
    ) -> SourceConfig | None:
        """Read one MySQL server; None without an address. missing: the default address."""
        address = reader.get(names.address) or missing
        if address is None:
            return None
        return SourceConfig(
            host=address[0],
            port=address[1],
            journal=reader.get(names.journal),
            position=reader.get(names.position),
            timestamp_ms=reader.get(names.timestamp),
            gtid=reader.get(names.gtid),
            tls=tls_config(reader, names, self.path),
        )


def _used(settings: Mapping[str, Setting]) -> set[str]:
    return {name for setting in settings.values() for name in references(setting.text)}


def _cursor_place(node: _LayeredValues, destination: str, zk_servers: str) -> CursorPlace:
    """Return where the destination's instance template keeps cursors.

    node: the values of canal.properties.
    destination: its name; `global` for the default of all.
    zk_servers: canal.zkServers; "" if there are none.
    Raises ConfigError for cursors in files together with ZooKeeper. canal's stock files do that and lose rows at the
    first fail-over, because the next node does not have the file.
    """
    key, template = _template(node, destination)
    if template == "memory":
        return CursorPlace.MEMORY
    if template in ("default", "local", "group"):
        return CursorPlace.ZOOKEEPER if zk_servers else CursorPlace.FILE
    if zk_servers:
        raise node.refusal(
            key,
            "classpath:spring/default-instance.xml, because canal.zkServers is set: cursors in files do not move to"
            " another node with their destination, so the first fail-over would lose rows",
        )
    return CursorPlace.FILE


def _template(node: _LayeredValues, destination: str) -> tuple[Key[str], str]:
    """Return the key that selects a destination's instance template, and its value."""
    own = replace(keys.TEMPLATE, name=f"canal.instance.{destination}.spring.xml")
    key = own if node.has(own) else keys.TEMPLATE
    return key, node.get(key)


def _position_lost(reader: _LayeredValues) -> WhenLost:
    """Read our key with four values, or else canal's switch with two."""
    if not reader.has(keys.POSITION_LOST) and reader.get(keys.AUTO_RESET):
        return WhenLost.LATEST
    return reader.get(keys.POSITION_LOST)


def _tsdb_url(reader: _LayeredValues) -> str:
    """Return the URL of a history in MySQL; "" for a history in a file, which canal calls jdbc:h2."""
    url = reader.get(keys.TSDB_URL)
    if not url or url.startswith("jdbc:h2:"):
        return ""
    if not url.startswith(("jdbc:mysql://", "mysql://")):
        raise reader.refusal(keys.TSDB_URL, "jdbc:mysql://host:port/database, jdbc:h2:... or nothing")
    return url


def _privacy_key(reader: _LayeredValues) -> str:
    key = reader.get(keys.PRIVACY_KEY)
    if not key and reader.get(keys.PRIVACY_HASH):
        raise reader.refusal(
            keys.PRIVACY_KEY, f"a secret of at least 16 characters, because of {keys.PRIVACY_HASH.name}"
        )
    return key


def _decode_options(reader: _LayeredValues, tsdb: Key[bool]) -> DecodeOptions:
    get = reader.get
    return DecodeOptions(
        charset=get(keys.CHARSET),
        gtid_on=get(keys.GTID_ON),
        transaction_size=get(keys.TRANSACTION_SIZE),
        filter_query_dcl=get(keys.NO_DCL),
        filter_query_dml=get(keys.NO_DML),
        filter_query_ddl=get(keys.NO_DDL),
        filter_rows=get(keys.NO_ROWS),
        filter_table_error=get(keys.TABLE_ERRORS),
        filter_dml_insert=get(keys.NO_INSERT),
        filter_dml_update=get(keys.NO_UPDATE),
        filter_dml_delete=get(keys.NO_DELETE),
        filter_transaction_entry=get(keys.NO_TRANSACTION),
        ddl_parser=get(keys.DDL_PARSER),
        field_filter=get(keys.FILTER_FIELD),
        field_black_filter=get(keys.FILTER_BLACK_FIELD),
        privacy_drop=get(keys.PRIVACY_DROP),
        privacy_mask=get(keys.PRIVACY_MASK),
        privacy_hash=get(keys.PRIVACY_HASH),
        privacy_key=_privacy_key(reader),
        table_history=get(tsdb),
    )
