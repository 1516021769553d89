"""The condition of a snapshot: which rows of a table it reads, in SQL. Pure.

Whoever may start a snapshot of a destination writes it, and it runs with the rights of the destination's account. So it
may name only columns of its own table: then it can neither read other data into a stream nor ask about it. Every word
counts as a name, because a server accepts some words as both.

If columns of the table are hidden from the client, a name must be that of another column, in the table's own spelling
but for the case of ASCII letters. Servers find a column under more names: `_rowid` is a key of one integer, `emaİl` is
`email`, and MySQL looks up the columns of a table with more than 32 of them without regard to accents.

Who asks for the snapshot may be another account than the client's, with columns of its own that it may not see. It sees
how many rows come, so its condition must not name them either.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from string import ascii_lowercase, ascii_uppercase

from canal_ha.errors import SnapshotRefused
from canal_ha.model.excerpt import excerpt, printable, some
from canal_ha.model.surrogates import REASON, has_surrogate

_BLANK = re.compile(r"[ \t\r\n]+")
_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|`(?P<quoted>(?:[^`]|``)+)`"
    r"|(?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]+)"
    r"|(?P<comment>--|\#|/\*)"
    r"|(?P<sign>[-+*/%=<>!&|^~.,()])",
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_REFUSED = frozenset({"SELECT", "TABLE", "VALUES", "WITH", "INTO", "FOR"})  # NEXT VALUE FOR is MariaDB's
_LANGUAGE = (
    "AGAINST ALL AND ANY AS BETWEEN BY CASE DISTINCT DIV ELSE ESCAPE EXISTS IN INTERVAL IS LIKE MATCH "
    "MOD NOT OF OR REGEXP RLIKE ROW SOUNDS THEN USING WHEN XOR"
)
_TYPES = (  # of CAST
    "CHAR DECIMAL NCHAR SIGNED UNSIGNED VARCHAR DATETIME TIME TIMESTAMP"
)
_FUNCTIONS = (  # of their arguments alone
    "ABS ADDDATE ADDTIME ASCII BIN BIT_COUNT CAST CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH COALESCE COLLATE "
    "CONCAT CONCAT_WS CONV CONVERT CONVERT_TZ CRC32 CURDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURTIME "
    "DATE DATEDIFF DATE_ADD DATE_FORMAT DATE_SUB DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR ELT EXP EXTRACT "
    "FIELD FIND_IN_SET FLOOR FORMAT FROM_DAYS FROM_UNIXTIME GREATEST HEX HOUR IF IFNULL INET_ATON INET_NTOA "
    "INSTR ISNULL JSON_CONTAINS JSON_EXTRACT JSON_LENGTH JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE LAST_DAY "
    "LCASE LEAST LEFT LENGTH LN LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2 LOWER LTRIM MAKEDATE MAKETIME "
    "MD5 MICROSECOND MID MINUTE MONTH MONTHNAME NOW NULLIF OCTET_LENGTH ORD PERIOD_ADD PERIOD_DIFF POSITION POW "
    "POWER QUARTER RAND REVERSE RIGHT ROUND RTRIM SECOND SEC_TO_TIME SHA SHA1 SHA2 SIGN SQRT STRCMP "
    "STR_TO_DATE SUBDATE SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME SYSDATE TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF "
    "TIME_TO_SEC TO_DAYS TO_SECONDS TRIM TRUNCATE UCASE UNHEX UNIX_TIMESTAMP UPPER UTC_DATE UTC_TIME "
    "UTC_TIMESTAMP WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK"
)
# Servers look for KILL between two rows, not within a function. So no text may grow much beyond the values of a row:
# a function that lengthens texts must not be called within another one. BINARY is no function here, because CAST pads a
# value of the type BINARY(N) to N bytes. REPLACE is none either, because its time is quadratic on MariaDB.
_LENGTHENING = frozenset({"CONCAT", "CONCAT_WS", "HEX"})
_BEFORE_BRACKETS = frozenset(f"{_LANGUAGE} {_TYPES} {_FUNCTIONS}".split())
_OTHER_WORDS = (  # constants, units of time, and words between the arguments of CAST, CONVERT, MATCH and TRIM
    "BINARY NULL TRUE FALSE UNKNOWN B N X BOTH LEADING TRAILING FROM CHARACTER CHARSET SET DOUBLE PRECISION FLOAT INT "
    "INTEGER JSON REAL MEMBER BOOLEAN MODE NATURAL LANGUAGE QUERY EXPANSION RETURNING "
    "DAY_HOUR DAY_MICROSECOND DAY_MINUTE DAY_SECOND HOUR_MICROSECOND HOUR_MINUTE HOUR_SECOND MINUTE_MICROSECOND "
    "MINUTE_SECOND SECOND_MICROSECOND YEAR_MONTH UNICODE BYTE "
    "SQL_TSI_SECOND SQL_TSI_MINUTE SQL_TSI_HOUR SQL_TSI_DAY SQL_TSI_WEEK SQL_TSI_MONTH SQL_TSI_QUARTER SQL_TSI_YEAR"
)
_WORDS = frozenset(f"{_LANGUAGE} {_TYPES} {_FUNCTIONS} {_OTHER_WORDS}".lower().split())
_NUMBER = re.compile("[0-9]+|[0-9]*e[0-9]*|0x[0-9a-f]+|0b[01]+")
_CHARSET = re.compile(  # or a collation of it, or the introducer of a text
    "_?(armscii8|ascii|big5|binary|cp[0-9]+|dec8|eucjpms|euckr|gb18030|gb2312|gbk|geostd8|greek|hebrew|hp8|keybcs2"
    "|koi8[ru]|latin[0-9]|macce|macroman|sjis|swe7|tis620|ucs2|uca1400|ujis|utf16|utf16le|utf32|utf8|utf8mb3|utf8mb4)"
    "(_[a-z0-9]+)*"
)
_ROWID = "_rowid"  # MySQL's other name of a key of one integer
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def check_names(condition: str, table: str, columns: Collection[str], hidden: Collection[str]) -> None:
    """Raise SnapshotRefused if a condition could ask about a hidden column.

    table: `schema.table`.
    columns: of the table.
    hidden: those whose values the client does not see. If there is none, every name is right.
    """
    if not hidden:
        return
    names = names_in(condition)
    without_accents = {_without_accents(name) for name in names}
    if told := [column for column in hidden if _without_accents(column) in without_accents]:
        raise SnapshotRefused(
            f"{table}: the condition names {some(told)}, whose values the client does not see (a filter of"
            " fields, or canal.instance.privacy): cancel the snapshot, and start it with another condition"
        )
    known = {name.translate(_LOWER) for name in (*columns, *table.split(".", 1))}
    others = (name for name in sorted(names - known - _WORDS) if not _NUMBER.fullmatch(name))
    if strange := [name for name in others if not _CHARSET.fullmatch(name)]:
        raise SnapshotRefused(
            f"{table}: the condition has {some(strange)}, which is neither a column of the table nor a word"
            " that a condition on a table with hidden columns may have (a filter of fields, or canal.instance.privacy):"
            " cancel the snapshot, and start it with a condition that spells the columns as the table does"
        )


def check_asked(condition: str, table: str, hidden: Collection[str]) -> None:
    """Raise SnapshotRefused if a condition could ask about a column that is hidden from the account that asks.

    The columns of the table are not known here.

    table: `schema.table`.
    hidden: columns in the account's rules for the table. If there is none, every name is right.
    """
    if not hidden:
        return
    unseen = {_without_accents(column) for column in (*hidden, _ROWID)}
    named = [(name, _without_accents(name.rstrip())) for name in names_in(condition)]
    if told := [name for name, plain in named if any(_could_mean(plain, column) for column in unseen)]:
        raise SnapshotRefused(
            f"{table}: the condition has {some(sorted(told))}, which may be a column that the account that asks does"
            " not see: use another condition, or ask with an account that has no rules of privacy for this table"
        )


def names_in(condition: str) -> frozenset[str]:
    """Return every word and quoted name of a condition, ASCII letters in lower case: also the columns that it looks at.

    Raises SnapshotRefused for a condition that could look at more than the columns of one row.
    """
    names: set[str] = set()
    opened: list[str] = []  # the functions whose brackets are open; "" for other brackets
    longer = ""  # that one of them which lengthens texts
    name, called = "", False  # of the token before, and whether it may stand before a bracket
    dotted = False
    for found in _tokens(condition):
        text = found[0]
        if found["word"] or found["quoted"]:
            if text.upper() in _REFUSED:
                raise _refused(condition, f"it has the word {text}")
            name = found["word"] or found["quoted"].replace("``", "`")
            called = not dotted and text.upper() in _BEFORE_BRACKETS
            names.add(name.translate(_LOWER))
        else:
            if text == ")":
                if not opened:
                    raise _refused(condition, "a bracket closes that none has opened")
                if opened.pop() == longer:
                    longer = ""
            elif text == "(":
                if name and not called:
                    raise _refused(condition, f"{printable(excerpt(name))} is none of the functions that it may call")
                opened.append(name.upper())
                if opened[-1] in _LENGTHENING:
                    if longer:
                        raise _refused(
                            condition, f"it calls {opened[-1]} within {longer}, and texts could grow without end"
                        )
                    longer = opened[-1]
            name = ""
        dotted = text == "."
    if opened:
        raise _refused(condition, "a bracket opens that none closes")
    return frozenset(names)


def _without_accents(name: str) -> str:
    parts = unicodedata.normalize("NFKD", name)
    return "".join(each for each in parts if not unicodedata.combining(each)).lower()


def _could_mean(name: str, column: str) -> bool:
    """Return whether a server could find a column under a name; both without accents.

    MySQL also takes some letters without an accent for others: `grose` is `größe`. So each letter beyond ASCII counts
    as any other one, unless it is of a script without upper and lower case.
    """
    return len(name) == len(column) and all(map(_could_be, name, column))


def _could_be(one: str, other: str) -> bool:
    if one == other:
        return True
    return not (one + other).isascii() and "Lo" not in (unicodedata.category(one), unicodedata.category(other))


def _tokens(condition: str) -> Iterator[re.Match[str]]:
    """Yield everything but blanks. Raises SnapshotRefused for what is no token."""
    if has_surrogate(condition):
        raise _refused(condition, f"it has {REASON}")
    if _CONTROL.search(condition):
        raise _refused(condition, "it has control characters")
    at = 0
    while at < len(condition):
        if blank := _BLANK.match(condition, at):
            at = blank.end()
            continue
        found = _TOKEN.match(condition, at)
        if found is None:
            raise _refused(condition, f"it cannot be read from {printable(excerpt(condition[at:]))} on")
        if found.lastgroup == "comment":
            raise _refused(condition, f"it has a comment, {found[0]}")
        yield found
        at = found.end()


def _refused(condition: str, why: str) -> SnapshotRefused:
    return SnapshotRefused(
        f"the condition {printable(excerpt(condition))} is refused: {why}. Compare columns of the table with values, as"
        " in created > '2026-01-01'"
    )
