"""`canal-ha decode`: decodes binlog files to rows or entries on standard output, without a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import click

from canal_ha.client.rows import rows_of
from canal_ha.config.load import DecodingKeys, load_decoding
from canal_ha.decode.ddl.script import Definitions
from canal_ha.decode.decoder import MAGIC, Decoder
from canal_ha.decode.executed_before import executed_before
from canal_ha.decode.filters import FieldFilter, TableFilter, effective
from canal_ha.decode.history.history import History
from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION
from canal_ha.decode.kernel.primitives import varint
from canal_ha.decode.outputs import Output
from canal_ha.decode.privacy import privacy_of
from canal_ha.errors import FileBroken, MalformedEvent, TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.sink import Sink

CHUNK_BYTES = 1 << 20
ENCRYPTED_MAGIC = b"\xfdbin"
_TYPE_AT = len(MAGIC) + 4  # offset of the first event's type byte


class Files:
    """Decodes binlog files, in the order given, as one stream from a server."""

    def __init__(
        self, decoding: DecodingKeys, tables: TableFilter, definitions: Definitions | None, *, exact: bool
    ) -> None:
        options = decoding.options
        self._options = options
        self._tables = tables
        self._fields = FieldFilter(options.field_filter, options.field_black_filter)
        self._privacy = privacy_of(options)
        fetch = definitions.fetch if definitions is not None else _nothing
        self._history = History(fetch, live_texts=not options.table_history)
        self._exact = exact
        self._configured = bool(decoding.gtid)
        self._gtid_set = decoding.gtid or None

    def segments(self, path: Path) -> Iterator[Segment]:
        """Yield the segments of one file. Raises FileBroken, with file, offset and reason, after the last of them."""
        try:
            with BufferedReader(path.open("rb", buffering=0), CHUNK_BYTES) as file:
                decoder = Decoder(
                    source=Source("", 0),
                    journal=path.name,
                    position=len(MAGIC),
                    options=self._options,
                    tables=self._tables,
                    fields=self._fields,
                    privacy=self._privacy,
                    history=self._history.view(LogPosition(path.name, len(MAGIC))),
                    gtid_set=self._executed_before(path, file.peek(CHUNK_BYTES)),
                    exact=self._exact,
                )
                yield from _segments(path, decoder, file)
        except OSError as error:
            raise FileBroken(f"{path}: {error.strerror}") from error
        self._gtid_set = decoder.gtid_set

    def _executed_before(self, path: Path, head: bytes) -> str | None:
        """Return the set to begin with: the configured one and what follows it, else the one that the file names."""
        if not self._options.gtid_on or self._configured:
            return self._gtid_set
        try:
            found, missing = executed_before(head)
        except ValueError as error:
            raise FileBroken(f"{path}: {error}") from error
        if missing and len(head) >= CHUNK_BYTES:
            raise FileBroken(
                f"{path}: the GTID set at its beginning is larger than {CHUNK_BYTES} bytes; set"
                " canal.instance.master.gtid to the set executed before this file"
            )
        return self._gtid_set if found is None else found


def _segments(path: Path, decoder: Decoder, file: BinaryIO) -> Iterator[Segment]:
    """Decode one file. Raises FileBroken."""
    try:
        for output in _outputs(decoder, file):
            if isinstance(output, Segment):
                yield output
    except MalformedEvent as error:
        raise FileBroken(f"{path}: offset {error.offset}: {error.reason}") from error
    except TableUnknown as error:
        raise FileBroken(f"{path}: offset {decoder.offset}: {error}") from error
    except OSError as error:
        raise FileBroken(f"{path}: offset {decoder.received_bytes}: {error.strerror}") from error


def _nothing(schema: str, table: str) -> None:
    """Return no table definition: there is neither a server nor --schema."""


def _outputs(decoder: Decoder, file: BinaryIO) -> Iterator[Output]:
    """Decode one file chunk by chunk."""
    chunk = file.read(CHUNK_BYTES)
    if not chunk.startswith(MAGIC):
        what = "an encrypted binlog file" if chunk.startswith(ENCRYPTED_MAGIC) else "not a binlog file"
        raise MalformedEvent("", 0, f"this is {what}")
    if len(chunk) > _TYPE_AT and chunk[_TYPE_AT] != FORMAT_DESCRIPTION:
        raise MalformedEvent("", len(MAGIC), f"the file begins with an event of type {chunk[_TYPE_AT]}, not its format")
    while chunk:
        yield from decoder.feed_file(chunk)
        chunk = file.read(CHUNK_BYTES)
    yield from decoder.finish()


def write_json(segment: Segment) -> Iterable[bytes]:
    """Yield one line of JSON a row."""
    for row in rows_of(map(bytes, segment.entries())):
        yield row.to_json().encode() + b"\n"


def write_entries(segment: Segment) -> Iterable[bytes]:
    """Yield serialized Entry messages, each after its length as a varint."""
    for entry in segment.entries():
        yield varint(len(entry))
        yield entry


FORMATS = {"json": write_json, "entries": write_entries}


@click.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--schema",
    "schema_file",
    metavar="FILE.sql",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CREATE TABLE statements (mysqldump --no-data) of tables that the files do not create.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of instance.properties, e.g. canal.instance.filter.black.regex=... or canal.instance.gtidon=true.",
)
@click.option(
    "--filter",
    "filter_text",
    default="",
    metavar="RE",
    help=r"Tables as regular expressions, e.g. shop\..* ; all if omitted.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="json",
    show_default=True,
    help="json: one object per row, as canal-ha client prints it; entries: canal's Entry messages, each after its"
    " length as a varint.",
)
def command(
    files: tuple[Path, ...], schema_file: Path | None, sets: tuple[str, ...], filter_text: str, form: str
) -> None:
    """Turn binlog files into rows or entries, without a server.

    TIMESTAMP values of json are in UTC, those of entries in the time zone of this process (TZ). Files are read in the
    order given. After an error, complete changes are still written and the exit code is 1.
    """
    decoding = load_decoding(sets, os.environ)
    for warning in decoding.warnings:
        click.echo(f"canal-ha: {warning}", err=True)
    tables = effective(decoding.filter_regex, decoding.filter_black_regex, filter_text, decoding.filter_client_mode)
    definitions = None if schema_file is None else read_schema(schema_file)
    work = Files(decoding, tables, definitions, exact=form == "json")
    form_of = FORMATS[form]
    out = sys.stdout.buffer
    sink = Sink(lambda segment: out.writelines(form_of(segment)), decoding.options)
    try:
        for path in files:
            for segment in work.segments(path):
                sink.accept(segment)
    except BrokenPipeError:  # the reader, for example `head`, closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the interpreter flushes it at exit
        sys.exit(1)
    finally:
        sys.stdout.flush()


def read_schema(path: Path) -> Definitions:
    """Read the tables of an SQL script. Raises FileBroken."""
    try:
        return Definitions(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise FileBroken(f"{path}: offset {error.start}: not UTF-8") from error
    except ValueError as error:
        raise FileBroken(f"{path}: {error}") from error
