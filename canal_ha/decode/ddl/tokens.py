"""Splits SQL text into tokens, and reads them for the statement grammar.

sqlglot's MySQL tokenizer does the lexing; its syntax tree is not used. It drops executable comments, so their bodies
are uncovered first. A source removes the marks of comments that it did not execute, so all marks in a binlog count;
those of MariaDB in a binlog of MySQL are gone by then (dialect.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from sqlglot import TokenType
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError

LEADING_LENGTH = 4096  # characters of a statement that `leading` looks at


class Unreadable(Exception):
    """The statement is not within our grammar; the text says where reading stopped. It never leaves this room."""


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"  # an identifier or keyword without quotes
    QUOTED = "quoted"  # an identifier in back-quotes
    TEXT = "text"  # a string
    NUMBER = "number"
    VALUE = "value"  # hexadecimal, bit and national strings, character set introducers
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    text: as written.
    value: without its quotes and escapes.
    word: upper case; "" unless it is a WORD or SIGN.
    hidden: it stood in an executable comment.
    start: its place in the statement; -1 if it is not known.
    """

    kind: TokenKind
    text: str
    value: str
    word: str
    hidden: bool = False
    start: int = field(default=-1, compare=False)


class _Tokenizer(MySQL.Tokenizer):
    COMMANDS: ClassVar[set[TokenType]] = set()  # by default everything after RENAME and others is one string


_KINDS = {
    TokenType.IDENTIFIER: TokenKind.QUOTED,
    TokenType.STRING: TokenKind.TEXT,
    TokenType.NUMBER: TokenKind.NUMBER,
    TokenType.HEX_STRING: TokenKind.VALUE,
    TokenType.BIT_STRING: TokenKind.VALUE,
    TokenType.NATIONAL_STRING: TokenKind.VALUE,
    TokenType.INTRODUCER: TokenKind.VALUE,
}
# Names that begin like a number in hexadecimal, binary or scientific notation. 0X and 0B begin no number.
_DIGITS_FIRST = re.compile(r"0[XB][\w$]*|0x(?![0-9a-fA-F]+\Z)[\w$]*|0b(?![01]+\Z)[\w$]*|\d+[eE]")
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_STRING = r"'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|\"[^\"\\]*(?:(?:\\.|\"\")[^\"\\]*)*\""
_LINE_COMMENT = r"--(?=\s|\Z)[^\n]*|\#[^\n]*"
_COVERED = re.compile(
    _STRING + rf"|`[^`]*`|(?P<line>{_LINE_COMMENT})|(?P<open>/\*M?!(?:\d{{5,6}})?)|(?P<comment>/\*)|(?P<close>\*/)",
    re.DOTALL,
)
_FRONT = re.compile(r"(?:\s+|(?:--(?=\s)|\#)[^\n]*\n|/\*(?!M?!).*?\*/)+", re.DOTALL)  # comments, however long
_LEADING = re.compile(rf"(?P<text>{_STRING})|(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[\w$]+)|(?P<sign>\S)", re.DOTALL)


def uncover(sql: str) -> tuple[str, list[tuple[int, int]]]:
    """Blank comments and the marks of executable ones, keeping the length; also return the latter's [start, end)."""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    done = index = 0
    opened: list[int] = []

    def blank(start: int, end: int) -> None:
        nonlocal done
        pieces.extend((sql[done:start], " " * (end - start)))
        done = end

    while match := _COVERED.search(sql, index):
        index = match.end()
        if match["line"]:
            blank(*match.span())
        elif match["open"]:
            opened.append(match.start())
            blank(*match.span())
        elif match["comment"]:
            end = sql.find("*/", index)
            index = len(sql) if end < 0 else end + 2
            blank(match.start(), index)
        elif match["close"] and opened:
            spans.append((opened.pop(), index))
            blank(*match.span())
    pieces.append(sql[done:])
    return "".join(pieces), spans


def covered(sql: str) -> bool:
    """Return whether the whole statement stands in executable comments, as dump programs write some."""
    text, spans = uncover(sql)
    outside = list(text)
    for start, end in spans:
        outside[start:end] = " " * (end - start)
    return bool(spans) and not "".join(outside).strip(" \t\r\n;")


def tokenize(sql: str) -> list[Token]:
    """Split a whole statement. Raises Unreadable if the tokenizer rejects it."""
    text, spans = uncover(sql)
    try:
        found = _Tokenizer().tokenize(text)
    except (TokenError, RecursionError) as error:
        raise Unreadable(f"not SQL: {error}") from error
    tokens: list[Token] = []
    end = -1
    for item in found:
        raw = text[item.start : item.end + 1]
        kind = _kind(item.token_type, raw)
        hidden = any(first <= item.start < last for first, last in spans)
        if (
            kind is TokenKind.WORD
            and item.start == end
            and tokens
            and tokens[-1].kind in (TokenKind.NUMBER, TokenKind.WORD)
        ):
            before = tokens.pop()  # 1abc is one identifier
            tokens.append(_token(kind, before.text + raw, hidden, before.start))
        elif kind is TokenKind.WORD:
            tokens.extend(  # PRIMARY KEY comes as one token
                _token(kind, part[0], hidden, item.start + part.start()) for part in re.finditer(r"\S+", raw)
            )
        else:
            tokens.append(_token(kind, raw, hidden, item.start))
        end = item.end + 1
    return tokens


def leading(sql: str) -> list[Token]:
    """Return a statement's first tokens, found without the tokenizer: for long statements and those it rejects."""
    front = _FRONT.match(sql)
    start = front.end() if front else 0
    text, _ = uncover(sql[start : start + LEADING_LENGTH])
    tokens = []
    for match in _LEADING.finditer(text):
        if match["word"]:
            kind = TokenKind.NUMBER if match["word"].isdigit() else TokenKind.WORD
        else:
            kind = TokenKind.QUOTED if match["quoted"] else TokenKind.TEXT if match["text"] else TokenKind.SIGN
        tokens.append(_token(kind, match[0], False))
    return tokens


def _kind(found: TokenType, raw: str) -> TokenKind:
    """Return a token's kind. The tokenizer takes names such as 0x1g, 0XAB and 7e for quoted ones and for numbers."""
    if _DIGITS_FIRST.fullmatch(raw):
        return TokenKind.WORD
    return _KINDS.get(found) or (TokenKind.WORD if _is_word(raw) else TokenKind.SIGN)


def _is_word(raw: str) -> bool:
    return all(char.isalnum() or char in "_$" or char.isspace() or ord(char) > 127 for char in raw)


def _token(kind: TokenKind, raw: str, hidden: bool, start: int = -1) -> Token:
    if kind is TokenKind.QUOTED:
        return Token(kind, raw, raw[1:-1].replace("``", "`"), "", hidden, start)
    if kind is TokenKind.TEXT:
        return Token(kind, raw, _unescape(raw), "", hidden, start)
    return Token(kind, raw, raw, raw.upper() if kind in (TokenKind.WORD, TokenKind.SIGN) else "", hidden, start)


def _unescape(raw: str) -> str:
    """Return the value of a string: `\\%` and `\\_` keep their backslash, other unknown escapes lose it."""
    quote = raw[0]

    def replace(match: re.Match[str]) -> str:
        char = match[1]
        if char is None:
            return quote
        return match[0] if char in "%_" else _ESCAPES.get(char, char)

    return re.sub(rf"\\(.)|{quote}{quote}", replace, raw[1:-1], flags=re.DOTALL)


class TokenReader:
    """A position in a list of tokens. `next`, `expect`, `name` and the skips raise Unreadable on other tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.refused = False  # whether canal's parser does not know something that was read
        self.tables: list[Token] = []  # the names of tables and schemas that were read

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens) or self._tokens[self._at].word == ";"

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return None if self.done else self._tokens[self._at]

    @property
    def word(self) -> str:
        """The next token in upper case if it is a word or sign; else ""."""
        return "" if self.done else self._tokens[self._at].word

    def ahead(self, count: int) -> str:
        """Return the word `count` tokens after the next one."""
        index = self._at + count
        return self._tokens[index].word if index < len(self._tokens) else ""

    def next(self) -> Token:
        """Take any token."""
        if self.done:
            raise Unreadable("the statement ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def take(self, *words: str) -> bool:
        """Take these words if all of them come next, in this order; return whether they did."""
        if any(self.ahead(index) != word for index, word in enumerate(words)) or self.done:
            return False
        self._at += len(words)
        return True

    def take_any(self, *words: str) -> str:
        """Take and return one of these words; "" if none comes next."""
        word = self.word
        if word not in words:
            return ""
        self._at += 1
        return word

    def expect(self, *words: str) -> None:
        """Take these words. Raises Unreadable if they do not come next."""
        if not self.take(*words):
            raise Unreadable(f"expected {' '.join(words)}{self.here}")

    def take_settings(self) -> None:
        """Take MariaDB's `SET STATEMENT variable = value, ... FOR`; several may stand before a statement."""
        while self.take("SET", "STATEMENT"):
            self.skip_to("FOR")
            self.expect("FOR")

    def name(self) -> str:
        """Take an identifier, quoted or not. Raises Unreadable if none comes next."""
        token = self.token
        if token is None or not _names(token):
            raise Unreadable(f"expected a name{self.here}")
        self._at += 1
        return token.value

    def table_part(self) -> str:
        """Take an identifier that names a table or a schema, and keep its token. Raises as `name`."""
        token = self.token
        value = self.name()
        assert token is not None
        self.tables.append(token)
        return value

    def at_name(self) -> bool:
        """Return whether an identifier comes next; keywords count."""
        return self.token is not None and _names(self.token)

    def skip_group(self) -> None:
        """Skip `( ... )`, nested."""
        self.expect("(")
        depth = 1
        while depth:
            word = self.next().word
            depth += (word == "(") - (word == ")")

    def at(self, *words: str) -> bool:
        """Return whether one of these words comes next."""
        return not self.done and self.word in words

    def ends(self, *words: str) -> bool:
        """Return whether one of these words comes next, or the end."""
        return self.done or self.word in words

    def skip_to(self, *words: str) -> None:
        """Skip up to one of the words outside parentheses, or to the end."""
        while not self.ends(*words):
            if self.word == "(":
                self.skip_group()
            else:
                self.next()

    def rest(self) -> list[Token]:
        """Return everything from here on, without taking it."""
        return self._tokens[self._at :]

    @property
    def here(self) -> str:
        """The reader's position, for messages."""
        return " at the end" if self.token is None else f" before {self.token.text[:40]!r}"


def _names(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.QUOTED) or (
        token.kind is TokenKind.TEXT and token.text.startswith('"')
    )
