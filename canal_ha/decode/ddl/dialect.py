"""Rewrites a statement so that it means the same under the default sql_mode and on either server.

Everything that reads statements expects that form: the classification, the table history, and the readers of a stored
history. The entry keeps the statement as it was logged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_ANSI_QUOTES, _NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20  # bits of sql_mode, the same on MySQL and MariaDB
_ESCAPED, _PLAIN = r"\\.|[^{0}\\]", r"[^{0}]"  # the characters of a string


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a source reads its statements.

    mariadb: the server is MariaDB, which executes `/*M! ... */`. To MySQL that is a comment.
    sql_mode: of the session, as a QUERY event records it.
    """

    mariadb: bool
    sql_mode: int = 0

    @property
    def ansi_quotes(self) -> bool:
        """Whether double quotes enclose names."""
        return bool(self.sql_mode & _ANSI_QUOTES)

    @property
    def backslash_escapes(self) -> bool:
        """Whether a backslash escapes the next character of a string."""
        return not self.sql_mode & _NO_BACKSLASH_ESCAPES


def plain(sql: str, dialect: Dialect) -> str:
    """Return the statement as the default sql_mode writes it, without the comments that its server did not execute."""
    ansi = dialect.ansi_quotes and '"' in sql
    backslashes = not dialect.backslash_escapes and "\\" in sql
    if not (ansi or backslashes or (not dialect.mariadb and "/*M!" in sql)):
        return sql
    pieces = []
    for piece in _pieces(dialect).finditer(sql):
        text = piece[0]
        if piece["foreign"]:
            text = " "
        elif piece["double"] and ansi:
            text = "`" + text[1:].removesuffix('"').replace('""', '"').replace("`", "``") + "`"
        elif (piece["single"] or piece["double"]) and backslashes:
            text = text.replace("\\", "\\\\")
        pieces.append(text)
    return "".join(pieces)


@lru_cache(maxsize=16)
def _pieces(dialect: Dialect) -> re.Pattern[str]:
    """Return the pattern of one lexical piece. A piece that is not closed runs to the statement's end."""
    single = (_ESCAPED if dialect.backslash_escapes else _PLAIN).format("'")
    double = (_ESCAPED if dialect.backslash_escapes and not dialect.ansi_quotes else _PLAIN).format('"')
    marks, foreign = (r"/\*M?!", "(?!)") if dialect.mariadb else (r"/\*!", r"/\*M!.*?(?:\*/|\Z)")
    return re.compile(
        rf"""(?P<single>'(?:{single}|'')*+'?) | (?P<double>"(?:{double}|"")*+"?) | `(?:[^`]|``)*+`?
        | (?:--(?=\s|\Z)|\#)[^\n]*+ | {marks} | (?P<foreign>{foreign}) | /\*.*?(?:\*/|\Z) | [^'"`#/-]++ | .""",
        re.DOTALL | re.VERBOSE,
    )
