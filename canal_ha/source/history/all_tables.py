"""AllTables: the definitions of all tables of a server. Any thread; blocks on MySQL.

Destinations that begin together want the same definitions. One of them asks the server, for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from canal_ha.config.model import InstanceConfig
from canal_ha.decode.history.definitions import definition_of
from canal_ha.decode.history.versions import Key
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.recent_answers import together
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.tables import Tables
from canal_ha.source.positions import locate
from canal_ha.source.positions.scan import Scanner

_TABLES = (
    "SELECT table_schema AS s, table_name AS t FROM information_schema.tables WHERE table_type IN ('BASE TABLE',"
    " 'SYSTEM VERSIONED') AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
)
_MAY_SEE_ALL = (  # the list lacks tables that an account has no right to
    "SELECT 1 AS may FROM information_schema.user_privileges"
    " WHERE privilege_type = 'SELECT' AND REPLACE(grantee, '''', '') = CURRENT_USER()"
)


@dataclass(frozen=True, slots=True)
class AllTables:
    """What the server told.

    before, behind: where the binlog ended before and after the questions. Statements between them may count or not.
    names: of all tables that the account sees.
    definitions: of those that the server shows.
    complete: whether the account sees all tables of the server.
    """

    before: LogPosition
    behind: LogPosition
    names: frozenset[Key]
    definitions: Mapping[Key, str]
    complete: bool


def all_tables(config: InstanceConfig, scanner: Scanner, tables: Tables, began_ms: int, recent_s: float) -> AllTables:
    """Return the definitions of all tables of a destination's master.

    config: of the destination.
    scanner: its session and server are asked.
    tables: fetches the definitions.
    began_ms: when the newest journal was created; tells one binlog of the server from the next.
    recent_s: how old the answer to another destination of the account may be; 0: it has to be asked from now on.

    Raises SourceUnavailable, SourceRefused.
    """
    session, server, source = scanner.session, scanner.server, config.master

    def ask() -> AllTables:
        before = locate.newest(session, server, config, source)
        names = _names(session)
        texts = tables.fetch_all(sorted(names), server.identity)
        names |= _names(session)  # the binlog may name a table before the list does
        behind = locate.newest(session, server, config, source)
        definitions = {name: definition_of(text) for name, text in texts if text}
        return AllTables(before, behind, names, definitions, bool(session.query(_MAY_SEE_ALL)))

    return together(config, source, ("all tables", server.identity, began_ms), ask, recent_s)


def _names(session: SourceSession) -> frozenset[Key]:
    return frozenset((str(row["s"]), str(row["t"])) for row in session.query(_TABLES))
