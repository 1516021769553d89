"""What becomes of the settings of a Java deployer: the report of `canal-ha migrate`, and the lines to change.

The configuration is loaded by the node's own loader, again and again. Each refusal that one line can cure is cured in a
copy of the files, until the loader accepts them or refuses what needs a person. So a report says what a node would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from canal_ha.config import absent, keys, queue
from canal_ha.config.differences import difference
from canal_ha.config.effective import is_secret
from canal_ha.config.load import INSTANCE_FILE, MAIN_FILE, FilterCheck, load_usable
from canal_ha.config.model import CanalConfig
from canal_ha.config.properties import Layers, Setting, from_mapping, read, references
from canal_ha.errors import ConfigError, FileUnusable

CURES_MOST = 1000  # each one appends a line
LOOPBACK = "127.0.0.1"
_CURES = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.max.in.flight.requests.per.connection": "1",
    keys.TSDB_URL.name: "",
}
_OTHER_QUEUES = ("rocketmq", "rabbitmq", "pulsarmq")
_PORTS = frozenset({keys.IP.name, keys.METRICS_BIND.name, keys.ADMIN_BIND.name})

NodeCheck = Callable[[CanalConfig], object]
"""Checks the ports and accounts of a node; raises ConfigError."""


class Outcome(Enum):
    """What becomes of a setting or a file."""

    SAME = "same"  # it works as in canal
    DIFFERS = "differs"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class MigrationNote:
    """What becomes of one setting or file.

    outcome: see Outcome.
    file: below the deployer's directory; "" if it is about no file.
    line: in the file; 0 if it is not there.
    key: "" if it is about a file.
    value: for people; *** for a secret.
    text: how it differs, why it is ignored, or why it is refused; "" for the same.
    change: the line to write instead; "" if no line alone cures it.
    """

    outcome: Outcome
    file: str
    line: int = 0
    key: str = ""
    value: str = ""
    text: str = ""
    change: str = ""


class Migration:
    """See the module. config: the node's configuration, once the loader accepts it; None before."""

    def __init__(self, conf: Path, shown: Callable[[Path], str]) -> None:
        """Read the files of a copy of a deployer's conf directory.

        conf: the copy. `cure` changes it.
        shown: returns the name of one of its files in the report.
        Raises ConfigError for a canal.properties that cannot be read.
        """
        self.config: CanalConfig | None = None
        self._conf = conf
        self._shown = shown
        self._main = read(conf / MAIN_FILE)
        self._instances: dict[Path, dict[str, Setting]] = {}
        self._refused: dict[tuple[Path, str], MigrationNote] = {}
        for path in sorted(conf.glob("*/*")):
            if path.name.lower() == INSTANCE_FILE and path.is_file():
                with suppress(ConfigError):  # the loader refuses the file too
                    self._instances[path] = read(path)

    def cure(self, check_filter: FilterCheck, check: NodeCheck) -> None:
        """Load the copy, and change lines that are refused, until none is left that a change cures."""
        for _ in range(CURES_MOST):
            errors = [each for each in self._errors(check_filter, check) if self._place(each) not in self._refused]
            if not errors:
                return
            for error in errors:
                self._refuse(error)

    def notes(self) -> Iterator[MigrationNote]:
        """Yield a note for each setting as it was written, in the order of files and lines, then the other refusals."""
        refused = dict(self._refused)
        files = {self._conf / MAIN_FILE: self._main, **self._instances}
        used = {name for settings in files.values() for each in settings.values() for name in references(each.text)}
        for path, settings in files.items():
            layers = Layers((from_mapping(settings), from_mapping(self._main)))
            for key, setting in settings.items():
                instance = settings is not self._main
                found = refused.pop((path, key), None)
                yield found or self._note(path, key, setting, layers, used, instance=instance)
        yield from refused.values()

    def _errors(self, check_filter: FilterCheck, check: NodeCheck) -> list[ConfigError]:
        """Return what a node would refuse of the copy as it is now."""
        self.config = None
        try:
            config = load_usable(self._conf, (), {}, check_filter)
        except ConfigError as error:
            return [error]
        errors = [each.error for each in config.refused]
        try:
            check(config)
        except ConfigError as error:
            errors.append(error)
        if not errors:
            self.config = config
        return errors

    def _refuse(self, error: ConfigError) -> None:
        """Remember a refusal, and cure it in the copy if one line does."""
        path, key = self._place(error)
        value = _cure(error, self._main) if path.is_relative_to(self._conf) else None
        change = "" if value is None else f"{key} = {value}".rstrip()
        written = (self._main if path.name == MAIN_FILE else self._instances.get(path, {})).get(key)
        line = error.line or (written.line if written else 0)
        if change:
            with path.open("ab") as file:  # the last line of a key counts
                comment = f"replaces line {line}" if line else "added"
                file.write(f"\n# canal-ha migrate: {comment}\n{change}\n".encode())
        value_shown = error.value or (written.shown(secret=is_secret(key)) if written else "")
        self._refused[path, key] = MigrationNote(
            Outcome.REFUSED, self._shown(path), line, key, value_shown, error.reason, change
        )

    def _place(self, error: ConfigError) -> tuple[Path, str]:
        return self._conf / error.file, error.key  # an absolute path stays

    def _note(
        self, path: Path, key: str, setting: Setting, layers: Layers, used: set[str], *, instance: bool
    ) -> MigrationNote:
        found = layers.find(key)
        value = found.text if found else ""
        shown = setting.shown(secret=is_secret(key))

        def note(outcome: Outcome, text: str = "") -> MigrationNote:
            return MigrationNote(outcome, self._shown(path), setting.line, key, shown, text)

        if not value:
            return note(Outcome.SAME)
        if needed := absent.needed(key, value):
            return note(Outcome.REFUSED, needed)
        if why := _ignored(key, setting, layers, used, instance=instance):
            return note(Outcome.IGNORED, why)
        url = layers.find(keys.TSDB_URL.name)
        how = difference(key, value, url.text if url else "")
        return note(Outcome.DIFFERS if how else Outcome.SAME, how)


def _ignored(key: str, setting: Setting, layers: Layers, used: set[str], *, instance: bool) -> str:
    """Return why a node ignores a setting, as it would say so itself; "" if it does not."""
    if absent.has_no_effect(key) or queue.for_java_alone(key):
        return "it tunes threads, sockets or queues of canal's own; there is nothing to tune here"
    warnings = absent.warnings("", {key: setting}, layers.resolve, instance=instance, used=used)
    texts = (each.removeprefix(f"{setting.origin}: ").removeprefix(": ") for each in warnings)
    return next((text.removesuffix(f", ignored: {key}") for text in texts), "")


def _cure(error: ConfigError, main: Mapping[str, Setting]) -> str | None:
    """Return the value that the loader accepts in place of the refused one; None if only a person knows it.

    main: the settings of canal.properties. On loopback no other machine reaches the node of a cluster.
    """
    if error.key.endswith("spring.xml") and "default-instance.xml" in error.expected:
        return "classpath:spring/default-instance.xml"
    if error.key == keys.SERVER_MODE.name and error.value.lower() in _OTHER_QUEUES:
        return "tcp"
    if error.key in _PORTS and not error.line:
        servers = main.get(keys.ZK_SERVERS.name)
        return None if error.key == keys.IP.name and servers and servers.text else LOOPBACK
    if error.key == keys.CONSOLE_PASSWD.name and isinstance(error, FileUnusable):
        return ""  # one that everybody knows, not one that cannot be read
    return _CURES.get(error.key)
