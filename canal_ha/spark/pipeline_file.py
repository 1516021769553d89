"""Reads a pipeline's TOML file for Spark. Each error names file and key. Pure but for files and the environment.

A YAML file (docs/pipelines.md) becomes a Pipeline without sinks: it has the description of its target (commits.py).

name = "shop"                                  checkpoint = "/var/lib/canal-ha/checkpoints/shop"
tables = ["shop.*"]                            trigger = "5 seconds"       # or "available-now"; default: no pause
[source]       the source's options            [spark]  master and Spark's own settings
[keys]         "shop.log" = ["id"]             [[sink]] type = "parquet" | "delta" | "mysql" | "console"

${file:PATH} and ${env:NAME} (config/outside.py) work in the texts of [[sink]] and [spark], and in [source] password.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canal_ha.config.keys import SSL_MODES
from canal_ha.config.outside import filled, has_placeholder, with_absolute_paths
from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.databases import SCHEMA, named_databases, refusal
from canal_ha.pipeline.named_files import with_absolute_files
from canal_ha.pipeline.options import SourceOptions, parse

if TYPE_CHECKING:
    from canal_ha.pipeline.description import Description

_TRIGGER = re.compile(r"(\s*\d+\s+(milli|micro)?(second|minute|hour|day)s?)+\s*")
_PATTERN = re.compile(r"(?=.*[.*])[^\s,`!\\]([^,`\\]*[^\s,`\\])?")  # as in schema.json
_TABLE = re.compile(r"[^.*?\[]+\.[^*?\[]+")
DEFAULT_MAX_ROWS = 100_000  # rows of a micro-batch, which is folded in the driver's memory
COMMITTED_MAX_ROWS = 1_000_000  # rows of a micro-batch of a YAML file, of which the driver's memory has none
SECRET_NAMES = "(?i)secret|password|passwd|token|access[.]?key"  # Spark's default of spark.redaction.regex
AVAILABLE_NOW = "available-now"
_NOT_FOR_PIPELINES = ("format", "table", "tableSchema")
_SINKS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {  # type -> required keys, optional keys
    "parquet": (frozenset({"path"}), frozenset()),
    "delta": (frozenset({"path"}), frozenset({"storage"})),
    "mysql": (
        frozenset({"address", "user"}),
        frozenset({"password", "passwordFile", "database", "databases", "stateDatabase"})
        | frozenset({"sslMode", "sslCa", "sslCert", "sslKey"}),
    ),
    "console": (frozenset(), frozenset({"rows"})),
}
_SECRET = ("password", "storage")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as described by its file.

    source: options as texts; a password is a placeholder if it is one in the file.
    sinks: of a TOML file: type and other keys, with placeholders replaced.
    spark: settings.
    secrets: settings with a secret's name or with placeholders, which are replaced; they must not show in `ps`.
    described: a YAML file; None for a TOML file.
    """

    file: str
    name: str
    checkpoint: str
    tables: tuple[str, ...]
    trigger: str
    source: Mapping[str, str] = field(repr=False)
    options: SourceOptions
    sinks: tuple[tuple[str, Mapping[str, Any]], ...] = field(repr=False)
    keys: Mapping[str, tuple[str, ...]]
    master: str
    spark: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    described: Description | None = field(default=None, repr=False)

    def with_sink(self, kind: str, given: Mapping[str, Any]) -> Pipeline:
        """Return this pipeline with one sink only."""
        return replace(self, sinks=((kind, given),))

    def takes(self, schema: str, table: str) -> bool:
        """Return whether the pipeline includes this table."""
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self.tables)


def load(path: str | Path) -> Pipeline:
    """Read a file, TOML or YAML (docs/pipelines.md). Raises OptionInvalid."""
    if Path(path).suffix in (".yaml", ".yml"):
        from canal_ha.pipeline import description

        return of_description(description.load(path, "spark"))
    try:
        body = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionInvalid(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise OptionInvalid(f"{path} is not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise OptionInvalid(f"{path} is not valid TOML: it is not UTF-8") from error
    except RecursionError:
        raise OptionInvalid(f"{path} is not valid TOML: it has too many levels") from None
    return pipeline(body, str(path))


def of_description(described: Description) -> Pipeline:
    """Build a pipeline from a YAML file. Raises OptionInvalid."""
    from canal_ha.pipeline.access import filter_of  # imports that other commands do not need
    from canal_ha.spark.storage import local_path

    spark = dict(described.spark)
    state = described.state.rstrip("/")
    if described.target.kind == "http" and local_path(state) is None:
        raise OptionInvalid(
            f"{described.file}: state = {state}: a target of type http keeps its progress there, and needs a directory"
        )
    source = {"spoolDir": f"{state}/spool", **described.source}
    body = {
        "name": described.name,
        "checkpoint": spark.pop("checkpoint", f"{state}/checkpoint"),
        "trigger": spark.pop("trigger", ""),
        "tables": list(described.tables),
        "keys": {table: list(columns) for table, columns in described.keys.items()},
        "source": source,
        "spark": {**spark.pop("settings", {}), **spark},
    }
    made = pipeline(body, described.file, described)
    filter = filter_of(described, made.options)
    return replace(made, source={**made.source, "filter": filter}, options=replace(made.options, filter=filter))


def pipeline(body: Mapping[str, Any], file: str, described: Description | None = None) -> Pipeline:
    """Build a pipeline from the parsed content of a file.

    body: the content.
    file: its name, for messages.
    described: the YAML file that has the target; None: the sinks are in `body`.
    Raises OptionInvalid.
    """
    read = _TomlReader(body, file)
    read.only("name", "checkpoint", "tables", "trigger", "source", "sink", "spark", "keys")
    source = {key: _text(value) for key, value in with_absolute_files(read.table("source"), file).items()}
    lower = {key.lower() for key in source}
    for name in _NOT_FOR_PIPELINES:
        if name.lower() in lower:
            raise OptionInvalid(f"{file}: [source] {name}: a pipeline sets this option itself; remove it")
    if not lower & {"maxrowspertrigger", "maxbytespertrigger"}:
        source["maxRowsPerTrigger"] = str(COMMITTED_MAX_ROWS if described else DEFAULT_MAX_ROWS)
    tables = read.names("tables", body.get("tables", ["*"]))
    for name in tables:
        if not _PATTERN.fullmatch(name):
            raise OptionInvalid(f"{file}: tables = {name!r}: expected schema.table, or a pattern as shop.*")
    source |= {"format": "changes", "table": ",".join(tables)}
    for name in source:
        if name.lower() == "password":  # Spark shows options: the source replaces the placeholder
            source[name] = with_absolute_paths(source[name], Path(file).parent)
    try:
        options = parse(source).for_stream()
    except OptionInvalid as error:
        raise OptionInvalid(f"{file}: [source] {error}") from error
    given = {key: _text(value) for key, value in read.table("spark").items()}
    hidden = {key for key, text in given.items() if has_placeholder(text) or re.search(SECRET_NAMES, key)}
    secrets = {key: _filled(given.pop(key), f"[spark] {key}", file) for key in sorted(hidden)}
    return Pipeline(
        file=file,
        name=read.text("name"),
        checkpoint=read.text("checkpoint"),
        tables=tables,
        trigger=_trigger(read.text("trigger", ""), file),
        source=source,
        options=options,
        sinks=_sinks(body.get("sink"), tables, file) if described is None else (),
        keys=_keys(read, file),
        master=given.pop("master", "local[2]"),
        spark=given,
        secrets=secrets,
        described=described,
    )


def _keys(read: _TomlReader, file: str) -> dict[str, tuple[str, ...]]:
    """Return the key columns of each table. Raises OptionInvalid for what a YAML file may not have there either."""
    keys = {}
    for table, given in read.table("keys").items():
        if not _TABLE.fullmatch(table):
            raise OptionInvalid(f"{file}: [keys]: expected schema.table without wildcards as key, not {table}")
        keys[table] = read.names(f"keys.{table}", given)
        if any("," in column for column in keys[table]):
            raise OptionInvalid(f"{file}: [keys] {table}: expected columns without commas")
        if len({column.lower() for column in keys[table]}) < len(keys[table]):
            raise OptionInvalid(f"{file}: [keys] {table}: a column is given twice")
    return keys


def _trigger(text: str, file: str) -> str:
    if text and text != AVAILABLE_NOW and not _TRIGGER.fullmatch(text):
        raise OptionInvalid(f"{file}: trigger = {text!r}: expected an interval as '10 seconds', or '{AVAILABLE_NOW}'")
    return text


def _sinks(given: Any, tables: tuple[str, ...], file: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    if not isinstance(given, list) or not given or not all(isinstance(sink, dict) for sink in given):
        raise OptionInvalid(f"{file}: [[sink]] is missing: add at least one sink")
    sinks = []
    for number, sink in enumerate(given, 1):
        kind = sink.get("type")
        if not isinstance(kind, str) or kind not in _SINKS:
            raise OptionInvalid(f"{file}: sink {number}: type = {kind!r}: expected one of {', '.join(_SINKS)}")
        required, optional = _SINKS[kind]
        keys = sink.keys() - {"type"}
        for missing in sorted(required - keys):
            raise OptionInvalid(f"{file}: sink {number} ({kind}): {missing} is missing")
        for unknown in sorted(keys - required - optional):
            allowed = ", ".join(sorted(required | optional)) or "none"
            raise OptionInvalid(f"{file}: sink {number} ({kind}): {unknown} is unknown; its keys are {allowed}")
        described = {}
        for key in sorted(keys):
            shown = "***" if key in _SECRET else repr(sink[key])
            described[key] = _filled(sink[key], f"sink {number} ({kind}): {key}", file)
            _check(f"{file}: sink {number} ({kind}): {key} = {shown}", key, described[key])
        if kind == "mysql":
            described = _with_databases(described, tables, f"{file}: sink {number} (mysql)")
        sinks.append((kind, with_absolute_files(described, file)))
    return tuple(sinks)


def _filled(value: Any, where: str, file: str) -> Any:
    """Return a value with the placeholders of its texts replaced. Raises OptionInvalid."""
    if isinstance(value, dict):
        return {key: _filled(text, f"{where}.{key}", file) for key, text in value.items()}
    if not isinstance(value, str):
        return value
    try:
        return filled(value, Path(file).parent, os.environ)
    except ValueError as error:
        raise OptionInvalid(f"{file}: {where}: expected {error}") from error


def _with_databases(sink: Mapping[str, Any], tables: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return a MySQL sink with its databases. Raises OptionInvalid if they are left to the source, or not allowed."""
    database, state = sink.get("database", SCHEMA), sink.get("stateDatabase", "canal_ha")
    databases = sink.get("databases") or named_databases(database, tables)
    if databases is None:
        raise OptionInvalid(
            f"{where}: the source would choose the databases of the copies, because a pattern under tables names no"
            ' schema; list them, as databases = ["shop"], or set database = "copy_{schema}"'
        )
    why = refusal(database, databases, state) if SCHEMA not in database else ""
    if why:
        raise OptionInvalid(f"{where}: no copy can be in the database {database!r}, {why}; choose another database")
    return {**sink, "database": database, "databases": databases, "stateDatabase": state}


def _check(where: str, key: str, value: Any) -> None:
    match key:
        case "databases":
            good = isinstance(value, list) and all(isinstance(text, str) and text for text in value)
            good, expected = good and bool(value), "a list of databases, as ['shop', 'copy_*']"
        case "rows":
            good, expected = isinstance(value, int) and value > 0, "a whole number of at least 1"
        case "storage":
            good = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
            expected = "a table of texts"
        case "address":
            host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
            good, expected = bool(host) and port.isdigit(), "host:port"
        case "sslMode":
            good, expected = value in SSL_MODES, "one of " + ", ".join(SSL_MODES)
        case _:
            good, expected = isinstance(value, str), "a text"
    if not good:
        raise OptionInvalid(f"{where}: expected {expected}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class _TomlReader:
    def __init__(self, body: Mapping[str, Any], file: str) -> None:
        self._body = body
        self._file = file

    def only(self, *names: str) -> None:
        for name in sorted(self._body.keys() - set(names)):
            raise OptionInvalid(f"{self._file}: {name} is unknown; the keys are {', '.join(names)}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._body.get(name, default)
        if not isinstance(value, str) or (default is None and not value):
            raise OptionInvalid(f"{self._file}: {name} = {value!r}: expected a text")
        return value

    def table(self, name: str) -> dict[str, Any]:
        value = self._body.get(name, {})
        if not isinstance(value, dict):
            raise OptionInvalid(f"{self._file}: [{name}]: expected a table of keys and values")
        return dict(value)

    def names(self, name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise OptionInvalid(f"{self._file}: {name} = {value!r}: expected a list of names")
        return tuple(value)
