"""Reads column definitions and the other elements of a table, as in CREATE TABLE and ALTER TABLE.

The mysqlType text is the statement's own text in canal's spelling: no blanks in the brackets, without `signed`,
character sets and collations, and `double` for `float(25)` and longer. Syntax that canal's parser does not know
sets `TokenReader.refused`; such a type is spelled as the server shows it. See docs/protocol.md#mysql-type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from canal_ha.decode.ddl.tokens import Token, TokenKind, TokenReader, Unreadable
from canal_ha.model.table import Column

ELEMENT_END = (",", ")", "PARTITION", "REMOVE")  # the last two end an ALTER TABLE without a comma before them
INDEX_WORDS = ("KEY", "INDEX")

_NATIONAL = {"CHAR": "char", "CHARACTER": "char", "VARCHAR": "varchar", "VARCHARACTER": "varchar"}
_VARYING = ("VARYING", "VARCHAR", "VARCHARACTER")
_BYTES = {"char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob"}
_TEXTS = frozenset(
    {"char", "character", "char varying", "character varying", "varchar", "varcharacter", "varchar2"}
    | {"nchar", "nvarchar", "national char", "national varchar"}
    | {"tinytext", "text", "mediumtext", "longtext", "long", "clob"}
)
_SIMPLE_ATTRIBUTES = ("VIRTUAL", "STORED", "PERSISTENT", "COLUMN_FORMAT", "STORAGE")


@dataclass(frozen=True, slots=True)
class Definition:
    """One column as defined.

    primary: its definition has PRIMARY KEY.
    versioned: it has WITH SYSTEM VERSIONING, which makes the whole table system-versioned.
    row_bound: it is GENERATED ALWAYS AS ROW START or ROW END, in the place of one that the server would add.
    generated: an expression says its values.
    """

    column: Column
    primary: bool = False
    versioned: bool = False
    row_bound: bool = False
    generated: bool = False


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """A primary or unique key. columns: names, without expressions."""

    primary: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """An element that is neither column nor primary or unique key: index, foreign key, check, period.

    index: whether canal counts it as an index.
    """

    index: bool


Element = Definition | KeyDefinition | Other


def read_element(reader: TokenReader) -> Element:
    """Read one element between the brackets of CREATE TABLE, or after ADD: a column, key, index or constraint."""
    if reader.take("CONSTRAINT"):
        if reader.word not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            reader.name()
        if reader.word not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            raise Unreadable(f"expected a constraint{reader.here}")
    if reader.take("PRIMARY", "KEY"):
        return KeyDefinition(True, key_columns(reader))
    if reader.take("UNIQUE"):
        reader.take_any(*INDEX_WORDS)
        return KeyDefinition(False, key_columns(reader))
    if reader.take("FOREIGN", "KEY"):
        _skip_element(reader)
        return Other(index=False)
    if reader.word == "CHECK":
        reader.next()
        reader.skip_group()
        if not reader.take("NOT", "ENFORCED"):
            reader.take("ENFORCED")
        return Other(index=False)
    if reader.take_any(*INDEX_WORDS, "FULLTEXT", "SPATIAL"):
        _skip_element(reader)
        return Other(index=True)
    if reader.word == "VECTOR" and reader.ahead(1) in INDEX_WORDS:
        _skip_element(reader)
        return Other(index=True)
    if reader.word == "PERIOD" and reader.ahead(1) == "FOR":
        reader.refused = True
        _skip_element(reader)
        return Other(index=False)
    return read_definition(reader, reader.name())


def read_definition(reader: TokenReader, name: str) -> Definition:
    """Read a column's type and attributes, up to a comma, closing bracket, FIRST, AFTER or the end."""
    text, charset = _read_type(reader)
    words = text.split()
    serial = words[0].upper() == "SERIAL"
    column = Column(
        name=name,
        mysql_type=text,
        unsigned=serial or "unsigned" in words[1:],
        nullable=not serial,
        unique=serial,
        charset=charset,
        auto_increment=serial,
    )
    primary = versioned = row_bound = generated = False
    while not reader.ends(*ELEMENT_END, "FIRST", "AFTER"):
        if reader.take("NOT", "NULL"):
            column = replace(column, nullable=False)
        elif reader.take("NULL"):
            column = replace(column, nullable=True)
        elif reader.take("PRIMARY"):
            reader.take("KEY")
            primary = True
        elif reader.take("KEY"):
            primary = True
        elif reader.take("UNIQUE"):
            reader.take("KEY")
            column = replace(column, unique=True)
        elif reader.take("SERIAL", "DEFAULT", "VALUE"):
            reader.refused = True
            column = replace(column, nullable=False, unique=True, auto_increment=True)
        elif reader.take("AUTO_INCREMENT"):
            column = replace(column, auto_increment=True)
        elif reader.at("VISIBLE", "INVISIBLE"):
            reader.refused |= not (reader.token is not None and reader.token.hidden)
            column = replace(column, invisible=reader.next().word == "INVISIBLE")
        elif reader.take("WITH", "SYSTEM", "VERSIONING"):
            reader.refused = versioned = True
        elif _takes_row_bound(reader):
            reader.refused = row_bound = True
        elif reader.take("CHARACTER", "SET") or reader.take("CHARSET"):  # behind other attributes, such as COMPRESSED
            column = replace(column, charset=take_charset(reader))
        elif reader.take("COLLATE"):
            charset = take_charset(reader)
            column = replace(column, charset=column.charset or charset)
        else:
            generated |= reader.at("GENERATED", "AS")
            _skip_attribute(reader)
    if primary:
        column = replace(column, key=True, nullable=False)
    return Definition(column, primary, versioned, row_bound, generated)


def take_charset(reader: TokenReader) -> str:
    """Take the name of a charset or of a collation, and return the charset; "" for DEFAULT."""
    charset = reader.next().value.lower().partition("_")[0]
    return "" if charset == "default" else charset


def with_default(column: Column, charset: str) -> Column:
    """Return a column with this charset if it is a text whose definition names none."""
    name = column.mysql_type.partition("(")[0].lower()
    if column.charset or name not in _TEXTS:
        return column
    return replace(column, charset="utf8mb3" if name.startswith("n") else charset)


def converted(column: Column, charset: str) -> Column:
    """Return a column after CONVERT TO this charset: a text of any charset but binary gets it."""
    name = column.mysql_type.partition("(")[0].lower()
    return replace(column, charset=charset) if name in _TEXTS and column.charset != "binary" else column


def _takes_row_bound(reader: TokenReader) -> bool:
    """Take [GENERATED ALWAYS] AS ROW START or ROW END; return whether it came next."""
    return any(
        reader.take(*generated, "AS", "ROW", bound)
        for generated in ((), ("GENERATED", "ALWAYS"))
        for bound in ("START", "END")
    )


def _skip_attribute(reader: TokenReader) -> None:
    """Skip an attribute that changes neither name, type nor key; an unknown one is skipped word by word."""
    word = reader.word
    if reader.take("DEFAULT") or reader.take("ON", "UPDATE"):
        _skip_expression(reader)
    elif reader.take("COMMENT"):
        reader.next()
    elif reader.take_any(*_SIMPLE_ATTRIBUTES):
        if word in ("COLUMN_FORMAT", "STORAGE"):
            reader.next()
    elif reader.take("GENERATED", "ALWAYS") or reader.word == "AS":
        reader.expect("AS")
        reader.skip_group()
    elif reader.take("CONSTRAINT"):
        if reader.word == "CHECK":
            reader.refused = True
        else:
            reader.name()
    elif reader.take("CHECK"):
        reader.skip_group()
        if not reader.take("NOT", "ENFORCED"):
            reader.take("ENFORCED")
    elif reader.take("REFERENCES"):
        _skip_reference(reader)
    else:
        reader.refused |= not (reader.token is not None and reader.token.hidden)
        if reader.word == "(":
            reader.skip_group()
        else:
            reader.next()
            if reader.take("="):
                reader.next()


def _skip_reference(reader: TokenReader) -> None:
    reader.name()
    if reader.take("."):
        reader.name()
    if reader.word == "(":
        reader.skip_group()
    else:
        reader.refused = True
    while reader.word in ("MATCH", "ON"):
        if reader.take("MATCH"):
            reader.next()
        else:
            reader.expect("ON")
            reader.next()
            if not (reader.take("SET", "NULL") or reader.take("SET", "DEFAULT") or reader.take("NO", "ACTION")):
                reader.next()


def _skip_expression(reader: TokenReader) -> None:
    """Skip one value: a literal, a call, or anything in brackets."""
    while reader.take_any("+", "-", "@"):
        pass
    if reader.word == "(":
        reader.skip_group()
    elif reader.take("NEXT", "VALUE", "FOR"):
        reader.refused = True
        reader.name()
    else:
        reader.next()
    while reader.take("."):
        reader.next()
    if reader.word == "(":
        reader.skip_group()
    while reader.token is not None and reader.token.kind in (TokenKind.TEXT, TokenKind.VALUE, TokenKind.NUMBER):
        reader.next()  # the string after an introducer or DATE; adjacent strings are one
    while reader.take_any("+", "-", "*", "/", "||"):
        _skip_expression(reader)


def _skip_element(reader: TokenReader) -> None:
    """Skip the rest of an index or foreign key. canal's parser rejects IF and IGNORED in it."""
    while not reader.ends(*ELEMENT_END):
        reader.refused |= reader.word in ("IF", "IGNORED")
        if reader.word == "(":
            reader.skip_group()
        else:
            reader.next()


def key_columns(reader: TokenReader) -> tuple[str, ...]:
    """Read `[name] [USING type] (column [(length)] [ASC|DESC], (expression), ...) options`; return the columns."""
    while reader.word != "(":
        reader.refused |= reader.word == "IF"
        reader.next()
    reader.expect("(")
    names: list[str] = []
    while not reader.take(")"):
        if reader.word == "(":
            reader.skip_group()
        elif reader.at_name():
            names.append(reader.name())
        reader.skip_to(",", ")")
        if reader.word != ")":
            reader.expect(",")
    _skip_element(reader)
    return tuple(names)


# ---- types


def _read_type(reader: TokenReader) -> tuple[str, str]:
    """Return the mysqlType text and the column's own character set ("" if none)."""
    name = _type_name(reader)
    arguments = _type_arguments(reader) if reader.word == "(" else []
    unsigned = zerofill = False
    charset = ""
    while True:
        if reader.take("UNSIGNED"):
            unsigned = True
        elif reader.take("ZEROFILL"):
            zerofill = True
        elif reader.take("CHARACTER", "SET") or reader.take("CHARSET") or reader.at("CHAR"):
            reader.refused |= reader.take("CHAR", "SET") or reader.take("=")
            charset = take_charset(reader)
        elif reader.take("COLLATE"):
            collated = take_charset(reader)
            charset = charset or collated
        elif reader.take("BYTE"):
            reader.refused = True
            name = _BYTES.get(name.lower(), name)
        elif reader.take_any("ASCII", "UNICODE"):
            reader.refused = True
        elif not reader.take_any("SIGNED", "BINARY"):
            break
    if name.lower() == "float" and len(arguments) == 1 and arguments[0].isdigit() and int(arguments[0]) > 24:
        name = "double"
    brackets = f"({','.join(arguments)})" if arguments else ""
    return f"{name}{brackets}{' unsigned' if unsigned or zerofill else ''}{' zerofill' if zerofill else ''}", charset


def _type_name(reader: TokenReader) -> str:
    token = reader.next()
    if token.kind is not TokenKind.WORD:
        raise Unreadable(f"expected a type before {token.text[:40]!r}")
    if reader.take("."):  # mariadb_schema.date
        reader.refused = True
        token = reader.next()
    word = token.word
    if word == "DOUBLE" and reader.word == "PRECISION":
        return f"{token.text} {reader.next().text}"
    if word == "CHARACTER" and reader.word == "VARYING":
        return f"{token.text} {reader.next().text}"
    if word in ("CHAR", "NCHAR") and reader.take_any(*_VARYING):
        reader.refused = True
        return "varchar"
    if word == "NATIONAL" and reader.word in _NATIONAL:
        kind = reader.next()
        if reader.take("VARYING"):
            reader.refused = True
            return "varchar"
        if kind.word in ("CHAR", "VARCHAR"):
            return f"{token.text} {kind.text}"
        reader.refused = True
        return _NATIONAL[kind.word]
    if word == "LONG" and reader.word in ("VARBINARY", "VARCHAR", "VARCHARACTER", "CHAR", "CHARACTER"):
        if reader.ahead(1) == "SET":
            return token.text
        reader.refused = True
        binary = reader.next().word == "VARBINARY"
        reader.take("VARYING")
        return "mediumblob" if binary else "mediumtext"
    return token.text


def _type_arguments(reader: TokenReader) -> list[str]:
    reader.expect("(")
    arguments: list[str] = []
    while not reader.take(")"):
        token = reader.next()
        if token.word != ",":
            text = _argument(token)
            if arguments and token.kind is TokenKind.TEXT and arguments[-1].startswith("_"):
                text = f"{arguments.pop()} {text}"
            arguments.append(text)
    return arguments


def _argument(token: Token) -> str:
    if token.kind is TokenKind.TEXT:
        return "'" + token.value.replace("'", "''") + "'"
    if token.kind is TokenKind.NUMBER and token.text.isdigit():
        return str(int(token.text))
    if token.kind is TokenKind.VALUE and token.text[:2] in ("x'", "X'"):
        return "0x" + token.text[2:-1]
    return token.text
