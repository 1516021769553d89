"""GTID mode: matches a cursor's position and GTID set on the current server. Blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from canal_ha.errors import PositionLost
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import binary_logs, may_contain
from canal_ha.source.positions import locate
from canal_ha.source.positions.last_transaction import LastTransaction
from canal_ha.source.positions.scan import Scanner


@dataclass(frozen=True, slots=True)
class Settled:
    """Where to begin for a cursor.

    at: with the set executed before it.
    lags: whether the server lacks some of that set. Always False on MariaDB, which accepts no such set.
    end: journal and offset behind which it writes what it lacks; what it has of the set lies before.
    """

    at: LogPosition
    lags: bool
    end: tuple[str, int]


def settled(scanner: Scanner, at: LogPosition) -> Settled:
    """Return where to begin for a cursor.

    A cursor without a set keeps its position and gets the set, because GTID mode was just turned on. If its position is
    gone or another server's, reading continues at the first transaction that its set lacks. Without either the cursor
    is returned unchanged, and the dump reports the error.
    Raises PositionLost if the server has lost transactions of the set, or purged some that the set lacks.
    """
    mariadb = scanner.server.mariadb
    missing = _subtracted(scanner, "%s", "@@GLOBAL.gtid_executed", at.gtid) if at.gtid and not mariadb else ""
    logs = binary_logs(scanner.session)  # asked last: what the server has by now must not lie behind their end
    end = logs[-1].name, logs[-1].size_bytes
    there = may_contain(logs, at)
    if not at.gtid:
        return Settled(replace(at, gtid=scanner.executed(at)) if there else at, False, end)
    forgotten = _forgotten(scanner, at.gtid, missing)
    if forgotten:
        raise PositionLost(
            f"{scanner.session.where.address}: the server does not have its own transactions {forgotten}, which were"
            f" read from it before: its binary logs were reset, or it is an older copy; {_cure(scanner, at)}"
        )
    return Settled(at if there else behind(scanner, at), bool(missing), end)


def behind(scanner: Scanner, at: LogPosition) -> LogPosition:
    """Return where the first transaction begins that the set of a position lacks, with that set.

    Raises PositionLost if such transactions are purged.
    """
    gtid_set = at.gtid or ""
    purged = _purged(scanner, gtid_set)
    if purged:
        raise PositionLost(
            f"{scanner.session.where.address}: transactions {purged} are purged (gtid_purged) and the set of {at} lacks"
            f" them; {_cure(scanner, at)}"
        )
    # ask for the end first: a transaction committed between the two answers must not be skipped
    newest = locate.newest(scanner.session, scanner.server, scanner.config, scanner.source)
    return replace(scanner.lacking(gtid_set) or newest, gtid=gtid_set)


def lags(scanner: Scanner, gtid_set: str) -> bool:
    """Return whether the server has not executed all of a set.

    On MariaDB, a transaction of its own can have the number of one that it lacks.
    """
    if not scanner.server.mariadb:
        return bool(_subtracted(scanner, "%s", "@@GLOBAL.gtid_executed", gtid_set))
    asked = "SELECT @@GLOBAL.gtid_binlog_state AS written, @@GLOBAL.gtid_slave_pos AS replicated"
    row = scanner.session.query(asked)[0]
    written = {(domain, server): number for domain, server, number in _mariadb(str(row["written"] or ""))}
    replicated = {domain: number for domain, _, number in _mariadb(str(row["replicated"] or ""))}
    return any(
        number > max(written.get((domain, server), 0), replicated.get(domain, 0))
        for domain, server, number in _mariadb(gtid_set)
    )


def is_in(scanner: Scanner, own: LastTransaction, gtid_set: str) -> bool | None:
    """Return whether a set includes a transaction of the server's own; None if nobody can tell.

    A set of MariaDB names only the last transaction of each domain.
    """
    if not own.gtid or not gtid_set:
        return None
    if not scanner.server.mariadb:
        asked = "SELECT GTID_SUBTRACT(GTID_SUBTRACT(%s, %s), %s) AS rest"
        return not scanner.session.query(asked, own.gtid, own.gtid_before, gtid_set)[0]["rest"]
    last = {domain: (server, number) for domain, server, number in _mariadb(gtid_set)}
    for domain, server, number in set(_mariadb(own.gtid)) - set(_mariadb(own.gtid_before)):
        last_server, last_number = last.get(domain, (server, 0))
        if last_server != server and last_number > number:
            return None
        return last_server == server and last_number >= number
    return None


def _cure(scanner: Scanner, at: LogPosition) -> str:
    oldest = binary_logs(scanner.session)[0].name
    return (
        f"the oldest journal is {oldest}; {scanner.config.destination} cannot continue from {at}: restore the"
        " journals, or set the cursor (canal-ha cursor set), or choose canal.instance.position.lost"
    )


def _forgotten(scanner: Scanner, gtid_set: str, missing: str) -> str:
    """Return the server's own transactions in a set that it has not executed; "" if there are none.

    Transactions of other servers are ignored, because a replica need not have them all.
    missing: what of the set a server of MySQL has not executed.
    """
    if scanner.server.mariadb:
        state = str(scanner.session.query("SELECT @@GLOBAL.gtid_binlog_state AS state")[0]["state"] or "")
        written = {(domain, server): number for domain, server, number in _mariadb(state)}
        own = [item for item in _mariadb(gtid_set) if item[1] == scanner.server.server_id]
        return ",".join("{}-{}-{}".format(*item) for item in own if item[2] > written.get(item[:2], 0))
    uuid = scanner.server.uuid.lower()
    return ",".join(item for item in missing.split(",") if uuid and item.startswith(uuid))


def _purged(scanner: Scanner, gtid_set: str) -> str:
    """Return the purged transactions that a set lacks. MariaDB has no such list; it refuses the dump."""
    return "" if scanner.server.mariadb else _subtracted(scanner, "@@GLOBAL.gtid_purged", "%s", gtid_set)


def _subtracted(scanner: Scanner, whole: str, part: str, gtid_set: str) -> str:
    rows = scanner.session.query(f"SELECT GTID_SUBTRACT({whole}, {part}) AS rest", gtid_set)
    return "".join(str(rows[0]["rest"] or "").split())


def _mariadb(gtid_set: str) -> list[tuple[int, int, int]]:
    """Return domain, server id and number of each item; items that are no MariaDB GTID are left out."""
    found = []
    for item in gtid_set.split(","):
        parts = item.strip().split("-")
        if len(parts) == 3 and all(part.isdecimal() for part in parts):
            found.append((int(parts[0]), int(parts[1]), int(parts[2])))
    return found
