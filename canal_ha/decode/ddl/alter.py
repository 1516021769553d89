"""Reads ALTER TABLE: its comma-separated items, as column changes and as canal's results."""

from __future__ import annotations

from canal_ha.decode.ddl.columns import (
    INDEX_WORDS,
    Definition,
    Element,
    KeyDefinition,
    Other,
    read_definition,
    read_element,
    take_charset,
)
from canal_ha.decode.ddl.options import ALTER_OPTIONS, table_name, take_option, waits
from canal_ha.decode.ddl.statements import (
    AlterTable,
    Change,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    Name,
    RenameColumn,
    SetColumn,
    SetPrimaryKey,
    SetUnique,
    SetVisibility,
    Versioning,
)
from canal_ha.decode.ddl.tokens import TokenReader
from canal_ha.model.entry import EventType

_ELEMENTS = frozenset(
    ["CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR", "PERIOD"]
)
_PARTITION_VERBS = frozenset(
    ["TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "COALESCE", "REORGANIZE"]
)
_PLAIN_ITEMS = frozenset(["FORCE", "ALGORITHM", "LOCK", "WITH", "WITHOUT", "ENABLE", "DISABLE", "DISCARD", "IMPORT"])
_REFUSED_ENDS = (("SET", "VISIBLE"), ("SET", "INVISIBLE"), ("INVISIBLE",), ("IGNORED",))


def read_alter(reader: TokenReader) -> AlterTable | None:
    while reader.take_any("ONLINE", "OFFLINE", "IGNORE"):
        pass
    if not reader.take("TABLE"):
        return None
    refused = reader.take("IF", "EXISTS")
    name = table_name(reader)
    refused |= waits(reader)
    items = _AlterItems(reader)
    items.read()
    results = [EventType.ALTER, *items.results] if items.options else items.results
    if items.results == [EventType.RENAME]:
        results = items.results  # canal's parser turns a lone RENAME into RENAME TABLE, options or not
    return AlterTable(
        name,
        tuple(items.changes),
        tuple(results),
        items.renamed,
        items.split_off,
        items.absorbed,
        items.exchanged,
        items.imported,
        items.discarded,
        refused or reader.refused,
    )


class _AlterItems:
    """Reads the comma-separated items of one ALTER TABLE."""

    def __init__(self, reader: TokenReader) -> None:
        self._reader = reader
        self.changes: list[Change] = []
        self.results: list[EventType] = []
        self.options = False
        self.renamed: Name | None = None
        self.split_off: Name | None = None
        self.absorbed: Name | None = None
        self.exchanged: Name | None = None
        self.imported = False
        self.discarded = False

    def read(self) -> None:
        """Read all items."""
        reader = self._reader
        while not reader.done:
            if not reader.take(","):
                self._item(reader)

    def _item(self, reader: TokenReader) -> None:
        self.imported |= reader.at("IMPORT")
        self.discarded |= reader.at("DISCARD")
        if reader.take("ADD"):
            self._add(reader)
        elif reader.take("DROP"):
            self._drop(reader)
        elif reader.take("MODIFY"):
            lenient = self._column_words(reader)
            name = reader.name()
            self._set_column(reader, name, name, lenient)
        elif reader.take("CHANGE"):
            lenient = self._column_words(reader)
            old = reader.name()
            self._set_column(reader, old, reader.name(), lenient)
        elif reader.take("RENAME"):
            self._rename(reader)
        elif reader.take("ALTER"):
            self._alter_column(reader)
            self._plain(reader)
        elif reader.take("CONVERT"):
            self._convert(reader)
        elif reader.take("EXCHANGE"):
            self.results.append(EventType.ALTER)
            reader.skip_to("TABLE")
            if reader.take("TABLE"):
                self.exchanged = table_name(reader)
            reader.skip_to()
        elif reader.at("PARTITION"):
            reader.refused |= reader.ahead(2) == "SYSTEM_TIME"
            reader.skip_to()
        elif reader.at("REMOVE", "UPGRADE"):
            reader.skip_to(",")
        elif (
            reader.take("ORDER", "BY")
            or reader.word in _PARTITION_VERBS
            or (reader.at("DISCARD", "IMPORT") and reader.ahead(1) == "PARTITION")
        ):
            self.results.append(EventType.ALTER)
            reader.skip_to()
        elif reader.word in _PLAIN_ITEMS:
            self._plain(reader)
        else:
            self.options = True
            charset = take_option(reader, ALTER_OPTIONS)
            if charset is not None:
                self.changes.append(DefaultCharset(charset))

    def _alter_column(self, reader: TokenReader) -> None:
        """Note `[COLUMN] name SET VISIBLE` or `SET INVISIBLE`; leave its end, and everything else, to `_plain`."""
        at = 1 + reader.at("COLUMN")
        if reader.ahead(at) == "SET" and reader.ahead(at + 1) in ("VISIBLE", "INVISIBLE"):
            reader.take("COLUMN")
            self.changes.append(SetVisibility(reader.name(), reader.ahead(1) == "INVISIBLE"))

    def _plain(self, reader: TokenReader) -> None:
        """Read an item that does not affect columns."""
        self.results.append(EventType.ALTER)
        words: list[str] = []
        while not reader.ends(","):
            words.append(reader.word)
            reader.skip_group() if reader.word == "(" else reader.next()
        reader.refused |= any(words[-len(form) :] == list(form) for form in _REFUSED_ENDS)

    def _column_words(self, reader: TokenReader) -> bool:
        """Take [COLUMN] [IF [NOT] EXISTS]; return True if IF was present."""
        reader.take("COLUMN")
        lenient = reader.take("IF", "NOT", "EXISTS") or reader.take("IF", "EXISTS")
        reader.refused |= lenient
        return lenient

    def _set_column(self, reader: TokenReader, old: str | None, new: str, lenient: bool) -> None:
        definition = read_definition(reader, new)
        after = None
        if reader.take("FIRST"):
            after = ""
        elif reader.take("AFTER"):
            after = reader.name()
        self.changes.append(SetColumn(definition, old, after, lenient))
        self.results.append(EventType.ALTER)

    def _add(self, reader: TokenReader) -> None:
        if reader.take("PARTITION"):
            self.results.append(EventType.ALTER)
            reader.skip_to()
        elif reader.take("SYSTEM", "VERSIONING"):
            self.changes.append(Versioning(True))
            self.results.append(EventType.ALTER)
        elif reader.at("COLUMN") or (reader.at_name() and not reader.at(*_ELEMENTS)) or self._odd_column(reader):
            lenient = self._column_words(reader)
            if reader.word == "(":
                self._add_several(reader, lenient)
            else:
                self._set_column(reader, None, reader.name(), lenient)
        elif reader.word == "(":
            self._add_several(reader, False)
        else:
            reader.refused |= reader.at("VECTOR")
            self._add_element(read_element(reader))

    def _odd_column(self, reader: TokenReader) -> bool:
        """Return whether a column follows that is named like an element: `ADD period int`, `ADD vector int`."""
        return (reader.at("PERIOD") and reader.ahead(1) != "FOR") or (
            reader.at("VECTOR") and reader.ahead(1) not in INDEX_WORDS
        )

    def _add_several(self, reader: TokenReader, lenient: bool) -> None:
        reader.expect("(")
        while True:
            element = read_element(reader)
            if isinstance(element, Definition):
                self.changes.append(SetColumn(element, lenient=lenient))
            elif isinstance(element, KeyDefinition):
                self._add_key(element)
            if not reader.take(","):
                break
        reader.expect(")")
        self.results.append(EventType.ALTER)

    def _add_element(self, element: Element) -> None:
        if isinstance(element, KeyDefinition):
            self._add_key(element)
            self.results.append(EventType.CINDEX)
        elif isinstance(element, Other) and element.index:
            self.results.append(EventType.CINDEX)

    def _add_key(self, key: KeyDefinition) -> None:
        self.changes.append(SetPrimaryKey(key.columns) if key.primary else SetUnique(key.columns))

    def _drop(self, reader: TokenReader) -> None:
        if reader.take("PRIMARY", "KEY"):
            self.changes.append(SetPrimaryKey(()))
            self.results.append(EventType.ALTER)
        elif reader.take("PARTITION"):
            self.results.append(EventType.ALTER)
            reader.skip_to()
        elif reader.take("SYSTEM", "VERSIONING"):
            self.changes.append(Versioning(False))
            reader.refused = True
        elif reader.at("INDEX", "KEY", "CONSTRAINT"):
            self.results.append(EventType.DINDEX)
            reader.next()
            reader.refused |= reader.take("IF", "EXISTS")
            if reader.name().upper() == "PRIMARY":
                self.changes.append(SetPrimaryKey(()))
        elif reader.take("FOREIGN", "KEY"):
            self.results.append(EventType.ALTER)
            reader.refused |= reader.take("IF", "EXISTS")
            reader.name()
        elif reader.at("CHECK") or (reader.at("PERIOD") and reader.ahead(1) == "FOR"):
            reader.refused = True
            reader.skip_to(",")
        else:
            lenient = self._column_words(reader)
            self.changes.append(DropColumn(reader.name(), lenient))
            self.results.append(EventType.ALTER)
            reader.refused |= bool(reader.take_any("CASCADE", "RESTRICT"))

    def _rename(self, reader: TokenReader) -> None:
        if reader.at("COLUMN"):
            lenient = self._column_words(reader)
            old = reader.name()
            reader.expect("TO")
            self.changes.append(RenameColumn(old, reader.name(), lenient))
            self.results.append(EventType.ALTER)
        elif reader.take_any("INDEX", "KEY"):
            reader.skip_to(",")
            self.results.append(EventType.ALTER)
        else:
            reader.refused |= reader.take_any("TO", "AS", "=") == "="
            self.renamed = table_name(reader)
            self.results.append(EventType.RENAME)

    def _convert(self, reader: TokenReader) -> None:
        self.results.append(EventType.ALTER)
        if reader.take("PARTITION"):
            reader.refused = True
            reader.name()
            reader.expect("TO", "TABLE")
            self.split_off = table_name(reader)
        elif reader.take("TABLE"):
            reader.refused = True
            self.absorbed = table_name(reader)
        else:
            reader.expect("TO")
            reader.refused |= reader.at("CHARSET")
            if reader.take("CHARACTER", "SET") or reader.take("CHARSET"):
                self.changes.append(ConvertCharset(take_charset(reader)))
        reader.skip_to(",")
