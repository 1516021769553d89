"""What the script of a server may use: its flavor, its age, and the features that are turned on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FEATURES = {
    "hidden_names": "ordinary columns called row_start, row_end and my_row_id",
    "set_statement": "MariaDB: SET STATEMENT ... FOR before DDL",
    "mariadb_comments": "/*M! */ comments, which only MariaDB executes",
    "unlogged": "DROP COLUMN that the binlog does not contain (sql_log_bin=0)",
    "charsets": "columns in latin1, gbk, sjis, utf16 and other charsets, and CONVERT TO CHARACTER SET",
    "old_charsets": "MySQL 5.6: the same. Its events tell no charsets, so nodes take those of the present definition",
    "binary": "BINARY(n) columns",
    "xa": "XA transactions that are committed or rolled back",
    "rollback_to": "ROLLBACK and ROLLBACK TO behind changes of a MyISAM table",
    "no_backslash_escapes": "DDL in the sql_mode NO_BACKSLASH_ESCAPES",
    "two_phase": "MariaDB: DDL with binlog_alter_two_phase",
    "session_charsets": "DDL in sessions whose charset is gbk, latin1 or sjis",
    "versioned": "MariaDB: system-versioned tables",
    "network_types": "MariaDB: UUID, INET4 and INET6 columns",
    "partial_replace": "REPLACE without some columns; images of MariaDB that are not FULL lack those it resets",
    "generated_key": "MySQL: sql_generate_invisible_primary_key",
}
"""Features that can be turned on and off, by name."""

OFF = frozenset({"old_charsets"})
"""Features that are off by default, because a node does not handle them yet."""

DEFAULT = frozenset(FEATURES) - OFF


@dataclass(frozen=True, slots=True)
class Dialect:
    """A server's language. old: MySQL 5.6, which lacks JSON, generated columns and RENAME COLUMN."""

    flavor: Literal["mysql", "mariadb"]
    old: bool = False
    features: frozenset[str] = DEFAULT

    @property
    def mariadb(self) -> bool:
        """Whether this is MariaDB."""
        return self.flavor == "mariadb"

    @property
    def charsets(self) -> bool:
        """Whether columns may have any charset."""
        return self.has("charsets") and (not self.old or self.has("old_charsets"))

    def has(self, feature: str) -> bool:
        """Return whether a feature is on. Raises KeyError for an unknown name."""
        return bool(FEATURES[feature]) and feature in self.features


def chosen(on: Iterable[str] = (), off: Iterable[str] = ()) -> frozenset[str]:
    """Return the default features plus `on` minus `off`. Raises ValueError for an unknown name; `all` means each."""
    wanted, unwanted = ({*FEATURES} if "all" in names else {*names} for names in (on, off))
    unknown = (wanted | unwanted) - set(FEATURES)
    if unknown:
        raise ValueError(f"unknown features {', '.join(sorted(unknown))}; there are {', '.join(FEATURES)}")
    return (DEFAULT | wanted) - unwanted
