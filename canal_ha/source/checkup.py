"""Checks a source before a node reads it, and yields one finding for each check. Blocks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryFile

from canal_ha.config.model import InstanceConfig, LocalFiles, SourceConfig
from canal_ha.decode.privacy import Privacy, Protection, privacy_of
from canal_ha.errors import CanalError, HistoryUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import BinaryLog, Flavor, binary_logs, check, examine, expiry, may_contain
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.files.journals import listed
from canal_ha.source.files.view import LocalView, read_definitions
from canal_ha.source.history.stores import history_store, missing_file
from canal_ha.source.positions import locate, lost
from canal_ha.source.positions.scan import Scanner

CLOCK_MOST_S = 5.0
EXPIRY_LEAST_S = 86400.0


class Verdict(Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, the result, and what to do about it."""

    verdict: Verdict
    what: str
    text: str


def source(config: InstanceConfig, source: SourceConfig, cursors: Mapping[int, LogPosition]) -> Iterator[Finding]:
    """Check reachability, binlog settings, rights, clock, expiry, and each client's position.

    config: of the destination.
    source: the server to check.
    cursors: positions by client id.
    """
    address = f"{source.host}:{source.port}"
    try:
        session = SourceSession(config, source)
    except CanalError as error:
        yield Finding(Verdict.FAILED, "MySQL", str(error))
        return
    with closing(session):
        yield Finding(Verdict.OK, "MySQL", f"{address} accepts the login of {session.where.account}")
        try:
            server = examine(session)
            yield from _settings(server, config, address)
            yield from _rights(session, server, config, source)
            yield from _privacy(session, config)
            yield from _clock_and_expiry(session, address)
            yield from _positions(binary_logs(session), cursors)
        except CanalError as error:
            yield Finding(Verdict.FAILED, "MySQL", str(error))


def files(config: InstanceConfig, local: LocalFiles, cursors: Mapping[int, LogPosition]) -> Iterator[Finding]:
    """Check the directory of binlog files, the table definitions, and each client's position.

    config: of the destination.
    local: the directory, and the file with definitions.
    cursors: positions by client id.
    """
    view = LocalView(config, local)
    try:
        oldest, newest = view.oldest(), view.newest()
        logs = listed(local.directory)
        if local.schema_file:
            tables = len(read_definitions(local.schema_file))
            yield Finding(Verdict.OK, "definitions", f"{tables} tables in {local.schema_file}")
    except CanalError as error:
        yield Finding(Verdict.FAILED, "files", str(error))
        return
    text = f"{local.directory} holds {len(logs)} of {view.version}, from {oldest} to {newest}"
    yield Finding(Verdict.OK, "files", text)
    yield from _positions(logs, cursors)


def history(config: InstanceConfig, *, clustered: bool) -> Iterator[Finding]:
    """Check whether the table history can be stored, and whether the next node finds it.

    config: of the destination.
    clustered: the node uses ZooKeeper.
    """
    if clustered and config.tsdb_in_zookeeper and config.decode.table_history and not config.tsdb_url:
        yield Finding(Verdict.OK, "table history", "in ZooKeeper, beside the cursors")
        return
    if directory := missing_file(config):
        yield storable("table history", directory, "canal.instance.tsdb.dir")
        yield from _on_this_node(config, clustered=clustered)
        return
    store = history_store(config)
    if store is None:
        yield Finding(Verdict.OK, "table history", "in memory only")
        return
    try:
        records = store.count()
    except HistoryUnavailable as error:
        yield Finding(Verdict.FAILED, "table history", str(error))
    else:
        yield Finding(Verdict.OK, "table history", f"can be stored; {records} records so far")
        yield from _on_this_node(config, clustered=clustered)
    finally:
        store.close()


def storable(what: str, directory: Path, key: str) -> Finding:
    """Check that files can be created below a directory, and leave nothing there.

    what: is stored in the files.
    directory: may be missing, as the node creates it.
    key: names the directory in the configuration.
    """
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        TemporaryFile(dir=existing).close()  # has no name where the file system allows that
    except OSError as error:
        text = f"{existing} cannot be written ({error.strerror}): change its owner, or set {key}"
        return Finding(Verdict.FAILED, what, text)
    return Finding(Verdict.OK, what, f"stored in files below {directory}")


def _on_this_node(config: InstanceConfig, *, clustered: bool) -> Iterator[Finding]:
    """Warn of a history that the next owner does not find. See `history`."""
    if clustered and not config.tsdb_url:
        yield Finding(
            Verdict.WARNING,
            "table history",
            "stays on this node: another node that takes over may not know how tables looked before;"
            " remove canal.instance.tsdb.zookeeper = false",
        )


def _settings(server: Flavor, config: InstanceConfig, address: str) -> Iterator[Finding]:
    name = "MariaDB" if server.mariadb else "MySQL"
    try:
        check(server, config, address)
    except CanalError as error:
        yield Finding(Verdict.FAILED, "binlog", str(error))
        return
    yield Finding(Verdict.OK, "binlog", f"{name} {server.version}, ROW, row image {server.row_image or 'FULL'}")
    if server.row_metadata != "FULL":
        yield Finding(
            Verdict.WARNING,
            "binlog",
            "events do not name their columns: a stream stops at a table whose definition at that position was not"
            " recorded; run: SET GLOBAL binlog_row_metadata = FULL (older events stay without names)",
        )


def _rights(session: SourceSession, server: Flavor, config: InstanceConfig, source: SourceConfig) -> Iterator[Finding]:
    """Check the rights by using them."""
    newest = locate.newest(session, server, config, source)
    binary_logs(session)
    Scanner(session, server, config, source).began_ms(newest.journal)
    yield Finding(Verdict.OK, "rights", f"the binlog can be read; it ends at {newest}")
    tables = session.query(
        "SELECT COUNT(*) AS n FROM information_schema.tables WHERE table_schema NOT IN"
        " ('mysql', 'sys', 'information_schema', 'performance_schema')"
    )[0]["n"]
    if not tables:
        yield Finding(
            Verdict.WARNING,
            "rights",
            f"no table is visible: if there are tables, run: GRANT SELECT ON *.* TO {session.where.account}",
        )


def _privacy(session: SourceSession, config: InstanceConfig) -> Iterator[Finding]:
    """Warn of what the rules for protected columns miss."""
    privacy = privacy_of(config.decode)
    if privacy.on:
        yield from _absent(session, privacy)
        yield from _generated(session, privacy)


def _absent(session: SourceSession, privacy: Privacy) -> Iterator[Finding]:
    """Warn of protected columns that no table has: the rule may have a typing error, or the column another name now."""
    names = sorted(privacy.columns)
    rows = session.query(
        "SELECT table_schema AS s, table_name AS t, LOWER(column_name) AS c FROM information_schema.columns"
        f" WHERE LOWER(column_name) IN ({', '.join(['%s'] * len(names))})",
        *names,
    )
    there = {row["c"] for row in rows if row["c"] in privacy.columns_of(row["s"], row["t"])}
    for name in names:
        if name not in there:
            yield Finding(
                Verdict.WARNING,
                "privacy",
                f"no table has a column {name} that canal.instance.privacy.* protects: if it has another name now, add"
                " that name to the rules, because clients that begin later get it unprotected",
            )


def _generated(session: SourceSession, privacy: Privacy) -> Iterator[Finding]:
    """Warn of generated columns that mention a protected column and are less protected."""
    rows = session.query(
        "SELECT table_schema AS s, table_name AS t, column_name AS c, generation_expression AS e"
        " FROM information_schema.columns WHERE generation_expression <> ''"
    )
    for row in rows:
        protected = privacy.columns_of(row["s"], row["t"])
        named = [name for name in re.findall(r"[\w$]+", row["e"].lower()) if name in protected]
        own = protected.get(row["c"].lower(), Protection.NONE)
        if any(protected[name] > own for name in named):
            yield Finding(
                Verdict.WARNING,
                "privacy",
                f"{row['s']}.{row['t']}.{row['c']} is generated from {', '.join(sorted({*named}))}, which is protected"
                " more: add it to the rules canal.instance.privacy.*",
            )


def _clock_and_expiry(session: SourceSession, address: str) -> Iterator[Finding]:
    expiry_s, server_s = expiry(session)
    skew_s = server_s - time.time()
    if abs(skew_s) > CLOCK_MOST_S:
        text = f"the clock of {address} differs by {skew_s:+.0f} s: lags are wrong by as much; run NTP on both hosts"
        yield Finding(Verdict.WARNING, "clock", text)
    else:
        yield Finding(Verdict.OK, "clock", f"within {CLOCK_MOST_S:.0f} s of {address}")
    if 0 < expiry_s < EXPIRY_LEAST_S:
        yield Finding(
            Verdict.WARNING,
            "expiry",
            f"journals are kept for {expiry_s:.0f} s: a client that is away longer loses its position; run:"
            f" SET GLOBAL binlog_expire_logs_seconds = {7 * 86400}",
        )


def _positions(logs: Sequence[BinaryLog], cursors: Mapping[int, LogPosition]) -> Iterator[Finding]:
    for client_id, cursor in cursors.items():
        reach = lost.reach(logs, cursor)
        if cursor.journal and not may_contain(logs, cursor):
            text = f"client {client_id} at {cursor}: {reach}; move it: canal-ha cursor set, or set position.lost"
            yield Finding(Verdict.FAILED, "position", text)
        else:
            yield Finding(Verdict.OK, "position", f"client {client_id} at {cursor}: {reach}")
