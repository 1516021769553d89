"""Statements that change neither rows nor columns: canal drops those that its parser knows; the others are QUERY.

The patterns match the statement's first tokens in upper case, separated by one blank, with N for a quoted name, S for
a string, 0 for a number. They were found by running the reference's parser (druid 1.2.21). Routine bodies, which it
sometimes rejects, count as understood.
"""

from __future__ import annotations

import re

from canal_ha.decode.ddl.tokens import Token, TokenKind

_DEFINER = r"(DEFINER = \S+( @ \S+)? )?"
_USER = r"\S+( @ \S+)?"
_ROUTINE_REFUSED = r"IF NOT EXISTS|.* (SONAME|READS SQL|MODIFIES SQL|CONTAINS SQL|NO SQL|EACH ROW (FOLLOWS|PRECEDES)) "
_MARKS = {TokenKind.QUOTED: "N", TokenKind.TEXT: "S", TokenKind.NUMBER: "0"}

_DROPPED = tuple(
    re.compile(pattern)
    for pattern in (
        r"ALTER DATABASE (?!CHARACTER|DEFAULT|COLLATE)\S+ (DEFAULT )?(CHARACTER SET|COLLATE|UPGRADE)",
        r"ALTER (VIEW|PROCEDURE|FUNCTION|EVENT|SEQUENCE|RESOURCE GROUP) ",
        rf"ALTER {_DEFINER}EVENT ",
        rf"ALTER USER {_USER} (IDENTIFIED BY|PASSWORD EXPIRE)",
        rf"CREATE (OR REPLACE )?(ALGORITHM = \w+ )?{_DEFINER}VIEW ",
        rf"CREATE (OR REPLACE )?(ALGORITHM = \w+ {_DEFINER}|DEFINER = \S+( @ \S+)? )SQL SECURITY \w+ VIEW ",
        r"CREATE MATERIALIZED VIEW ",
        rf"CREATE (OR REPLACE )?{_DEFINER}(PROCEDURE|FUNCTION|TRIGGER) (?!{_ROUTINE_REFUSED})",
        rf"CREATE (OR REPLACE )?{_DEFINER}EVENT ",
        rf"CREATE USER (IF NOT EXISTS )?{_USER}(?!.* (VIA|REQUIRE|ACCOUNT|PASSWORD EXPIRE|DEFAULT ROLE|ATTRIBUTE) )",
        r"CREATE ROLE \w+ $",
        r"CREATE (SERVER|TABLESPACE|LOGFILE GROUP|RESOURCE GROUP) ",
        r"CREATE SEQUENCE (?!IF NOT EXISTS)",
        r"DROP (VIEW|PROCEDURE|FUNCTION|TRIGGER|EVENT|USER|SERVER|TABLESPACE|LOGFILE|RESOURCE GROUP|SEQUENCE) ",
        r"DROP ROLE (?!IF EXISTS)",
        r"RENAME USER ",
        r"GRANT (?!.*_ADMIN )(?!SYSTEM_USER)(?!.*, SYSTEM_USER ).* ON ",
        r"REVOKE (?!IF EXISTS).* (ON|GRANT OPTION) ",
        r"SET (?!ROLE |DEFAULT ROLE |RESOURCE GROUP )",
        r"FLUSH ",
        r"(ANALYZE|OPTIMIZE) TABLE (?!.* (UPDATE HISTOGRAM|DROP HISTOGRAM|PERSISTENT FOR) )",
        r"(CHECK|CHECKSUM) TABLE ",
        r"(SELECT|CALL|VALUES|SAVEPOINT|RELEASE|ROLLBACK|LOAD (DATA|XML)|USE|SHOW|EXPLAIN|DESC|DESCRIBE|KILL)( |$)",
        r"(START TRANSACTION|LOCK TABLES?|UNLOCK TABLES?|XA|PREPARE|EXECUTE|DEALLOCATE|BINLOG|HELP|RESET|PURGE)( |$)",
        r";",
    )
)


def dropped(tokens: list[Token]) -> bool:
    """Return True if canal makes no entry of a statement that starts like this; False if it makes a QUERY."""
    text = " ".join(_MARKS.get(token.kind) or token.word or token.text for token in tokens) + " "
    return any(pattern.match(text) for pattern in _DROPPED)
