"""The condition of a snapshot: which rows of a table it reads, in SQL. Pure.

Whoever may start a snapshot of a destination writes it, and it runs with the rights of the destination's account. So it
may name only columns of its own table: then it can neither read other data into a stream nor ask about it. Every word
counts as a name, because a server accepts some words as both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from canal_ha.errors import SnapshotRefused
from canal_ha.model.excerpt import excerpt, printable

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
    "AGAINST ALL AND ANY AS BETWEEN BINARY BY CASE DISTINCT DIV ELSE ESCAPE EXISTS IN INTERVAL IS LIKE MATCH "
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
    "POWER QUARTER RAND REPLACE REVERSE RIGHT ROUND RTRIM SECOND SEC_TO_TIME SHA SHA1 SHA2 SIGN SQRT STRCMP "
    "STR_TO_DATE SUBDATE SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME SYSDATE TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF "
    "TIME_TO_SEC TO_DAYS TO_SECONDS TRIM TRUNCATE UCASE UNHEX UNIX_TIMESTAMP UPPER UTC_DATE UTC_TIME "
    "UTC_TIMESTAMP WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK"
)
_BEFORE_BRACKETS = frozenset(f"{_LANGUAGE} {_TYPES} {_FUNCTIONS}".split())


def names_in(condition: str) -> frozenset[str]:
    """Return every word and quoted name of a condition, in lower case: also the columns that it looks at.

    Raises SnapshotRefused for a condition that could look at more than the columns of one row.
    """
    names: set[str] = set()
    depth = 0
    name, called = "", False  # of the token before, and whether it may stand before a bracket
    dotted = False
    for found in _tokens(condition):
        text = found[0]
        if found["word"] or found["quoted"]:
            if text.upper() in _REFUSED:
                raise _refused(condition, f"it has the word {text}")
            name = found["word"] or found["quoted"].replace("``", "`")
            called = not dotted and text.upper() in _BEFORE_BRACKETS
            names.add(name.lower())
        else:
            depth += {"(": 1, ")": -1}.get(text, 0)
            if depth < 0:
                raise _refused(condition, "a bracket closes that none has opened")
            if text == "(" and name and not called:
                raise _refused(condition, f"{printable(excerpt(name))} is none of the functions that it may call")
            name = ""
        dotted = text == "."
    if depth:
        raise _refused(condition, "a bracket opens that none closes")
    return frozenset(names)


def _tokens(condition: str) -> Iterator[re.Match[str]]:
    """Yield everything but blanks. Raises SnapshotRefused for what is no token."""
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
