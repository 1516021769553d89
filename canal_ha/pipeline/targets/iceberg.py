"""Iceberg through pyiceberg: one Iceberg table per source table, in any catalog that pyiceberg's load_catalog opens.

A changelog appends every change. A mirror removes and adds rows by key, and a history ends and begins versions, copy on
write. Each commit of a table has the portion's progress in its snapshot. The target's progress is stored last, in the
properties of a table of its own. No commit is repeated onto the commit of another process: it fails, and the flow reads
the progress again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationException,
    WaitingForLockException,
)
from pyiceberg.table import Table

from canal_ha.client.arrow import TableBatch
from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import one_line
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.done import behind
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.iceberg.committing import TableCommit
from canal_ha.pipeline.iceberg.positions import known_until, later, table_progress, writers
from canal_ha.pipeline.paths import segment
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.table_owner import DESTINATIONS, PIPELINE, claimed

Identifier = tuple[str, ...]

_SOURCE, _MODE = "canal.source", "canal.mode"
_TRIES = 10  # of the progress, which several processes store in one table
_FILE_BYTES = 64 << 20  # of a mirror's data files in memory; a changed row costs the writing of its file
_CATALOG_LIBRARIES = frozenset({"sqlalchemy", "thrift"})  # pyiceberg passes their errors on
_REFUSALS = (BadRequestError, ForbiddenError, UnauthorizedError, NotInstalledError)
_FAILURES = (
    CommitFailedException,
    ValidationException,
    TableAlreadyExistsError,
    WaitingForLockException,
    RESTError,
    OSError,
)


def open_target(description: Description) -> IcebergTarget:
    """Return the target of a pipeline. Raises SinkRefused and TargetUnavailable."""
    mode = description.target.mode
    if mode == "events":
        raise SinkRefused(
            f"{description.file}: a target of type iceberg has the mode mirror, scd2 or changelog, not {mode}"
        )
    return IcebergTarget(description)


class IcebergTarget:
    """The target; see the module. Raises SinkRefused and TargetUnavailable."""

    def __init__(self, description: Description) -> None:
        options = description.target.options
        self._description = description
        self._mode = description.target.mode
        self._access = {name: str(value) for name, value in options["catalog"].items()}
        self._where = self._access.pop("name", "default")
        self._namespace: str = options.get("namespace", "{schema}")
        self._properties = {name: str(value) for name, value in options.get("properties", {}).items()}
        self._progress_table = (*_parts(options.get("stateNamespace", "canal_ha")), "progress")
        self._catalogs: dict[int, Catalog] = {}  # by thread; Hive's client is for one
        self._turns: defaultdict[Identifier, Lock] = defaultdict(Lock)
        self._turn = Lock()

    def check(self) -> str:
        """See PipelineTarget. Creates the table of the progress."""
        with self._failures("the table of the progress"):
            self._create(self._progress_table, pa.schema([("destination", pa.string())]), {})
        return f"{self._mode} in the Iceberg catalog {self._where}"

    def progress(self, destination: str) -> Progress | None:
        """See PipelineTarget. There is nothing to take over: a commit of an older process fails by itself."""
        return self.stored(destination)

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        with self._failures("the table of the progress"):
            try:
                return self._stored(self._catalog.load_table(self._progress_table), destination)
            except NoSuchTableError:
                return None

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget."""
        stored = self.progress(portion.destination)
        if not self._lacks(stored, portion):
            return
        tables: dict[tuple[str, str], list[TableBatch]] = {}
        for batch in portion.batches():
            if batch.table:  # a statement can be about a schema
                tables.setdefault((batch.schema, batch.table), []).append(batch)
        for (schema, table), batches in tables.items():
            identifier = self._identifier(schema, table)
            with self._turn:
                turn = self._turns[identifier]
            with turn, self._failures(".".join(identifier)):
                self._commit_table(identifier, schema, table, batches, portion, stored)
        self._store(portion)

    def check_table(self, destination: str, schema: str, table: str, *, merges: bool) -> None:
        """See OwnedTables."""
        identifier = self._identifier(schema, table)
        with self._failures(".".join(identifier)):
            found = self._load(identifier, self._own(schema, table), f"{schema}.{table}")
            if found is not None:
                self._claimed(found, identifier, destination, merges)

    def close(self) -> None:
        """See PipelineTarget."""
        for catalog in self._catalogs.values():
            catalog.close()

    def _commit_table(
        self,
        identifier: Identifier,
        schema: str,
        table: str,
        batches: list[TableBatch],
        portion: Portion,
        stored: Progress | None,
    ) -> None:
        """Write what the table does not have yet. stored: the target's progress."""
        own = self._own(schema, table)
        found = self._load(identifier, own, f"{schema}.{table}")
        key, after = self._key(portion.destination), portion.progress
        reached = table_progress(found.metadata, key) if found is not None else None
        known = known_until(reached, stored, after)
        if found is not None:
            missing = self._claimed(found, identifier, portion.destination, portion.reader.merged(schema, table))
            if missing:
                with found.transaction() as transaction:
                    transaction.set_properties(missing)
        if reached is not None and known is not None:
            batches = [left for each in batches if (left := behind(each, known)).rows.num_rows]
            after = later(reached, after)
        usual = {"write.target-file-size-bytes": str(_FILE_BYTES)} if self._mode in ("mirror", "scd2") else {}

        def create(columns: pa.Schema) -> Table:
            mine = {PIPELINE: self._description.name, DESTINATIONS: json.dumps([portion.destination])}
            return self._create(identifier, columns, {**usual, **self._properties, **own, **mine})

        commit = TableCommit(self._description, schema, table, found, create, {key: after.to_json()})
        match self._mode:
            case "mirror":
                commit.mirror(batches)
            case "scd2":
                commit.history(batches)
            case _:
                commit.append(batches)

    def _own(self, schema: str, table: str) -> dict[str, str]:
        return {_SOURCE: json.dumps([schema, table]), _MODE: self._mode}

    def _load(self, identifier: Identifier, own: dict[str, str], source: str) -> Table | None:
        """Return a table; None if it does not exist. Raises SinkRefused for one of another source or mode."""
        try:
            found = self._catalog.load_table(identifier)
        except NoSuchTableError:
            return None
        for name, value in own.items():
            if found.properties.get(name) != value:
                raise SinkRefused(
                    f"iceberg: the table {'.'.join(identifier)} exists, and its property {name} is"
                    f" {found.properties.get(name)!r}, not {value!r}, as a {self._mode} of {source} has it. Choose"
                    " another namespace, drop the table, or set its properties if its rows may be replaced"
                )
        return found

    def _claimed(self, found: Table, identifier: Identifier, destination: str, merges: bool) -> dict[str, str]:
        """Return the properties that make a table a destination's. Raises SinkRefused if it is not for its rows.

        Earlier versions stored no destination, and at first no pipeline. The snapshots have what they wrote.
        """
        properties = {PIPELINE: self._description.name, **found.properties}

        def known() -> list[str]:
            return writers(found.metadata, self._key(""))

        if DESTINATIONS not in properties and destination not in (others := known()):
            properties[DESTINATIONS] = json.dumps(others)
        return claimed(
            properties,
            self._description.name,
            destination,
            f"iceberg: the table {'.'.join(identifier)}",
            wrote=lambda: destination in known(),
            merges=merges,
            free=lambda: True,
        )

    @property
    def _catalog(self) -> Catalog:
        """This thread's connection to the catalog."""
        thread = get_ident()
        if thread not in self._catalogs:
            try:
                self._catalogs[thread] = load_catalog(self._where, **self._access)
            except ValueError as error:
                raise SinkRefused(f"iceberg: catalog {self._where}: {error}") from error
        return self._catalogs[thread]

    def _create(self, identifier: Identifier, columns: pa.Schema, properties: dict[str, str]) -> Table:
        plain = pa.schema([pa.field(each.name, each.type) for each in columns])
        old = {"write.metadata.delete-after-commit.enabled": "true"}
        self._catalog.create_namespace_if_not_exists(identifier[:-1])
        return self._catalog.create_table_if_not_exists(identifier, plain, properties={**old, **properties})

    def _stored(self, table: Table, destination: str) -> Progress | None:
        text = table.properties.get(self._key(destination))
        try:
            return Progress.from_json(text) if text else None
        except ValueError as error:
            raise SinkRefused(f"iceberg: {'.'.join(self._progress_table)}: {error}") from error

    def _lacks(self, stored: Progress | None, portion: Portion) -> bool:
        return lacks(stored, portion, f"iceberg: catalog {self._where}")

    def _store(self, portion: Portion) -> None:
        """Store the progress. Raises SinkRefused if another process has gone on."""
        with self._turn, self._failures("the table of the progress"):
            for left in reversed(range(_TRIES)):
                try:
                    table = self._catalog.load_table(self._progress_table)
                    if self._lacks(self._stored(table, portion.destination), portion):
                        with table.transaction() as transaction:
                            transaction.set_properties({self._key(portion.destination): portion.progress.to_json()})
                    return
                except CommitFailedException:
                    if not left:
                        raise

    def _identifier(self, schema: str, table: str) -> Identifier:
        parts = (part.replace("{schema}", segment(schema)) for part in _parts(self._namespace))
        return (*parts, segment(table))

    def _key(self, destination: str) -> str:
        return f"canal.progress.{self._description.name}/{destination}"

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        """Turn the errors of catalogs and storages into ours. Any other error is a defect, and passes."""
        where = f"iceberg: catalog {self._where}, {what}"
        try:
            yield
        except _REFUSALS as error:
            raise SinkRefused(f"{where}: {type(error).__name__}: {one_line(error)}") from error
        except _FAILURES as error:
            raise TargetUnavailable(f"{where}: {type(error).__name__}: {one_line(error)}") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _CATALOG_LIBRARIES:
                raise
            raise TargetUnavailable(f"{where}: {type(error).__name__}: {one_line(error)}") from error


def _parts(namespace: str) -> list[str]:
    parts = namespace.split(".")
    if not all(parts):
        raise SinkRefused(f"iceberg: namespace {namespace!r}: expected names with dots between them")
    return parts
