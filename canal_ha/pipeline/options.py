"""The source's options, parsed from texts; names in any case. Each error is one sentence.

zkServers | servers     host:port,...            ZooKeeper, or the nodes themselves
zkAuthFile, zkSaslFile  user:password            account at ZooKeeper: digest scheme, or SASL DIGEST-MD5
zkTls, zkTlsCa, zkTlsCert, zkTlsKey              TLS to ZooKeeper; PEM files on the driver
destination             name,name or a glob      globs need ZooKeeper
clientId                1001                     used by one driver at a time
filter                  schema\\.table,...        regular expressions, as in canal's clients
snapshot                initial | schema.table,...  existing rows first, if the client id is new; in a batch alone
startingOffsets, endingOffsets                   of a batch: positions as in `canal-ha client --from`; earliest, latest
user, password | passwordFile                    account on canal's port; password may be ${file:…} or ${env:…}
tls, tlsCa, tlsCert, tlsKey, tlsName             TLS to the nodes; PEM files on the driver
spoolDir                /path or s3://...        shared by the driver and all executors
maxRowsPerTrigger, maxBytesPerTrigger            limits of a micro-batch; bytes of raw entries
format                  envelope | table | debezium | changes
table, tableSchema      schema.name, Spark DDL   for format=table; tableSchema is optional
schemaEvolution         null | fail              what to do with a column that the query lacks
failOnDataLoss          true
exact                   true: values as SELECT gives them; false: as canal writes them (docs/protocol.md#exact)
spoolMaxBytes, retainBatches, fetchSize, segmentBytes, availableNowQuietMs, timeZone, sessionTimeoutMs
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from canal_ha.client.tls import ClientTls, client_tls
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.config.outside import filled
from canal_ha.config.pem_files import require_regular
from canal_ha.config.small_files import read_secret
from canal_ha.errors import OptionInvalid
from canal_ha.model.place import Place, end_of_read
from canal_ha.pipeline.progress_owner import ProgressOwner

GLOB_CHARACTERS = "*?["
E = TypeVar("E", bound=StrEnum)


class Shape(StrEnum):
    """The shape of rows. Pipelines read CHANGES: images as arrays, with the types of their columns."""

    ENVELOPE = "envelope"
    TABLE = "table"
    DEBEZIUM = "debezium"
    CHANGES = "changes"


class Evolution(StrEnum):
    """What to do with a column that the query's schema lacks: omit it, or fail with the DDL statement."""

    NULL = "null"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options.

    max_rows, max_bytes: 0 for no limit.
    table: schema.table if the shape is TABLE; patterns of the pipeline's tables if it is CHANGES; else "".
    starting, ending: bounds of a batch; "" for none.
    spool_dir: "" for a batch, and without Spark.
    """

    zk_servers: str
    zk_access: ZooKeeperAccess
    servers: tuple[str, ...]
    destinations: tuple[str, ...]
    client_id: int
    filter: str
    snapshot: tuple[str, ...]
    starting: str
    ending: str
    user: str
    password: str = field(repr=False)
    tls: ClientTls | None
    spool_dir: str
    max_rows: int
    max_bytes: int
    fail_on_data_loss: bool
    exact: bool
    shape: Shape
    table: str
    table_schema: str
    evolution: Evolution
    spool_max_bytes: int
    retain_batches: int
    fetch_size: int
    segment_bytes: int
    quiet_ms: int
    time_zone: str
    session_timeout_ms: int

    @property
    def globs(self) -> bool:
        """Whether a destination is a glob, which needs ZooKeeper."""
        return any(character in name for name in self.destinations for character in GLOB_CHARACTERS)

    def owner(self, pipeline: str) -> ProgressOwner:
        """Return who a target's progress belongs to. pipeline: name of the one that has these options."""
        return ProgressOwner(pipeline, self.client_id, self.zk_servers or ",".join(self.servers))

    def for_stream(self) -> SourceOptions:
        """Return the options of a stream. Raises OptionInvalid for those of a batch."""
        if self.starting or self.ending:
            raise OptionInvalid("canal: options startingOffsets and endingOffsets belong to spark.read")
        if not self.spool_dir:
            raise OptionInvalid("canal: option spoolDir is missing: set a directory that driver and executors share")
        return self

    def for_batch(self) -> SourceOptions:
        """Return the options of a batch, with both bounds of its range. Raises OptionInvalid."""
        if not (self.snapshot or self.starting):
            raise OptionInvalid("canal: spark.read needs the option snapshot or startingOffsets")
        return self if self.snapshot else replace(self, ending=self.ending or "latest")


_NAMES = (
    "zkServers",
    "zkAuthFile",
    "zkSaslFile",
    "zkTls",
    "zkTlsCa",
    "zkTlsCert",
    "zkTlsKey",
    "servers",
    "destination",
    "clientId",
    "filter",
    "snapshot",
    "startingOffsets",
    "endingOffsets",
    "user",
    "password",
    "passwordFile",
    "tls",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "tlsName",
    "spoolDir",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "exact",
    "format",
    "table",
    "tableSchema",
    "schemaEvolution",
    "spoolMaxBytes",
    "retainBatches",
    "fetchSize",
    "segmentBytes",
    "availableNowQuietMs",
    "timeZone",
    "sessionTimeoutMs",
)
_KNOWN = {name.lower(): name for name in _NAMES}
_SPARKS_OWN = frozenset({"path"})  # Spark may add these


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options. given: names in any case. Raises OptionInvalid with the name of the option."""
    values = {name.lower(): str(value).strip() for name, value in given.items()}
    for name in values.keys() - _KNOWN.keys() - _SPARKS_OWN:
        raise OptionInvalid(f"canal: option {name!r} is unknown; the options are {', '.join(_NAMES)}")
    read = _OptionReader(values)
    zk_servers, servers = read.text("zkServers"), read.list("servers")
    if bool(zk_servers) == bool(servers):
        raise OptionInvalid("canal: set one of the options zkServers (host:port of ZooKeeper) and servers (of nodes)")
    destinations = read.list("destination")
    if not destinations:
        raise OptionInvalid("canal: option destination is missing: set a name, a list of names, or a glob")
    shape = read.one_of("format", Shape, Shape.ENVELOPE)
    table = read.text("table")
    if shape is Shape.TABLE and table.count(".") != 1:
        raise OptionInvalid(f"canal: option table must be schema.name when format is table, not {table!r}")
    if shape is not Shape.TABLE and ((table and shape is not Shape.CHANGES) or read.text("tableSchema")):
        raise OptionInvalid(f"canal: options table and tableSchema belong to format=table, not to format={shape}")
    snapshot, starting, ending = read.snapshot(), read.place("startingOffsets"), read.place("endingOffsets")
    if snapshot and (starting or ending):
        raise OptionInvalid("canal: option snapshot excludes startingOffsets and endingOffsets")
    if ending and not starting:
        raise OptionInvalid("canal: option endingOffsets needs startingOffsets")
    time_zone = read.text("timeZone") or "UTC"
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise OptionInvalid(f"canal: option timeZone names no time zone: {time_zone!r}") from error
    options = SourceOptions(
        zk_servers=zk_servers,
        zk_access=ZooKeeperAccess(
            read.file("zkAuthFile"),
            read.file("zkSaslFile"),
            read.switch("zkTls", default=False),
            *read.zk_files(),
        ),
        servers=servers,
        destinations=destinations,
        client_id=read.whole("clientId", 1001, 0, 32767),
        filter=read.text("filter"),
        snapshot=snapshot,
        starting=starting,
        ending=ending,
        user=read.text("user"),
        password=read.secret(),
        tls=read.tls(),
        spool_dir=read.text("spoolDir"),
        max_rows=read.whole("maxRowsPerTrigger", 0, 1),
        max_bytes=read.whole("maxBytesPerTrigger", 0, 1),
        fail_on_data_loss=read.switch("failOnDataLoss", default=True),
        exact=read.switch("exact", default=True),
        shape=shape,
        table=table,
        table_schema=read.text("tableSchema"),
        evolution=read.one_of("schemaEvolution", Evolution, Evolution.NULL),
        spool_max_bytes=read.whole("spoolMaxBytes", 10 << 30, 1 << 16),
        retain_batches=read.whole("retainBatches", 100, 1),
        fetch_size=read.whole("fetchSize", 4096, 1),
        segment_bytes=read.whole("segmentBytes", 8 << 20, 1 << 10),
        quiet_ms=read.whole("availableNowQuietMs", 2000, 0),
        time_zone=time_zone,
        session_timeout_ms=read.whole("sessionTimeoutMs", 6000, 1000),
    )
    if options.globs and not zk_servers:
        raise OptionInvalid(f"canal: option destination = {','.join(destinations)!r}: a glob needs zkServers")
    return options


class _OptionReader:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        return self._values.get(name.lower(), "")

    def list(self, name: str) -> tuple[str, ...]:
        return tuple(item for item in (part.strip() for part in self.text(name).split(",")) if item)

    def snapshot(self) -> tuple[str, ...]:
        """Return the tables; `*` alone for all that the filter keeps."""
        tables = self.list("snapshot")
        if [each.lower() for each in tables] == ["initial"]:
            return ("*",)
        if wrong := [each for each in tables if not all(each.partition("."))]:
            raise OptionInvalid(f"canal: option snapshot = {wrong[0]!r}: expected initial, or tables as schema.table")
        return tables

    def place(self, name: str) -> str:
        """Return a bound of a range; "" for none."""
        text = self.text(name)
        try:
            if text and name == "startingOffsets":
                Place.parse(text)
            elif text != "latest":
                end_of_read(text)
        except ValueError as error:
            raise OptionInvalid(f"canal: option {name}: {error}") from error
        return text

    def whole(self, name: str, default: int, low: int, high: int = 1 << 62) -> int:
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            bound = f"from {low} to {high}" if high < 1 << 62 else f"of at least {low}"
            raise OptionInvalid(f"canal: option {name} = {text!r}: expected a whole number {bound}")
        return int(text)

    def switch(self, name: str, *, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise OptionInvalid(f"canal: option {name} = {text!r}: expected true or false")
        return text == "true" if text else default

    def one_of(self, name: str, kind: type[E], default: E) -> E:
        text = self.text(name).lower()
        if not text:
            return default
        try:
            return kind(text)
        except ValueError:
            raise OptionInvalid(f"canal: option {name} = {text!r}: expected one of {', '.join(kind)}") from None

    def tls(self) -> ClientTls | None:
        return client_tls(
            on=self.switch("tls", default=False),
            ca_file=self.text("tlsCa"),
            cert_file=self.text("tlsCert"),
            key_file=self.text("tlsKey"),
            server_name=self.text("tlsName"),
        )

    def zk_files(self) -> tuple[str, str, str]:
        """Return the files of TLS to ZooKeeper. Raises FileUnusable for a pipe or a device."""
        files = self.text("zkTlsCa"), self.text("zkTlsCert"), self.text("zkTlsKey")
        require_regular(*files)
        return files

    def secret(self) -> str:
        password, file = self.text("password"), self.text("passwordFile")
        if password and file:
            raise OptionInvalid("canal: set only one of the options password and passwordFile")
        if file:
            return self.file("passwordFile")
        try:
            return filled(password, Path(), os.environ)
        except ValueError as error:
            raise OptionInvalid(f"canal: option password: expected {error}") from error

    def file(self, name: str) -> str:
        """Return the text of the file that an option names; "" without one."""
        path = self.text(name)
        if not path:
            return ""
        try:
            return read_secret(Path(path))
        except OSError as error:
            raise OptionInvalid(f"canal: option {name} = {path!r} cannot be read: {error.strerror}") from error
