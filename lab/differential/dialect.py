"""What the script of a server may use: its flavor, its age, and the features that are turned on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FEATURES = {
    "hidden_names": "ordinary columns called row_start, row_end and my_row_id",
    "set_statement": "MariaDB: SET STATEMENT ... FOR before DDL",
    "mariadb_comments": "/*M! */ comments, which only MariaDB executes",
    "unlogged": "DROP COLUMN that the binlog does not contain (sql_log_bin=0)",
    "charsets": "columns in latin1, gbk, sjis, utf16 and other charsets, and CONVERT TO CHARACTER SET",
    "binary": "BINARY(n) columns",
    "xa": "XA transactions that are committed or rolled back",
    "rollback_to": "ROLLBACK and ROLLBACK TO behind changes of a MyISAM table",
    "no_backslash_escapes": "DDL in the sql_mode NO_BACKSLASH_ESCAPES",
    "two_phase": "MariaDB: DDL with binlog_alter_two_phase",
    "session_charsets": "DDL in sessions whose charset is gbk, latin1 or sjis",
    "versioned": "MariaDB: system-versioned tables",
    "network_types": "MariaDB: UUID, INET4 and INET6 columns",
    "partial_replace": "REPLACE without some columns; images of MariaDB that are not FULL lack those it resets",
    "virtual": "VIRTUAL generated columns; MINIMAL images of MariaDB lack those without an index",
    "no_columns": "INSERT and REPLACE of no column; a partial image of MySQL 5.6 has no byte for such a row",
    "generated_key": "MySQL: sql_generate_invisible_primary_key",
}
"""Features that can be turned off, by name."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A server's language. old: MySQL 5.6, which lacks JSON, generated columns and RENAME COLUMN."""

    flavor: Literal["mysql", "mariadb"]
    old: bool = False
    features: frozenset[str] = frozenset(FEATURES)

    @property
    def mariadb(self) -> bool:
        """Whether this is MariaDB."""
        return self.flavor == "mariadb"

    def has(self, feature: str) -> bool:
        """Return whether a feature is on. Raises KeyError for an unknown name."""
        return bool(FEATURES[feature]) and feature in self.features


def without(*names: str) -> frozenset[str]:
    """Return all features but these. Raises ValueError for an unknown name."""
    unknown = {*names} - set(FEATURES)
    if unknown:
        raise ValueError(f"unknown features {', '.join(sorted(unknown))}; there are {', '.join(FEATURES)}")
    return frozenset(FEATURES) - {*names}
