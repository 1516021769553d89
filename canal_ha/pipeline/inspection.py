"""Inspects the parts, the plan and the progress of a pipeline, without running it and without Spark."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from canal_ha import private_files
from canal_ha.client.discovery import split_address
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.errors import CanalError
from canal_ha.model.position import LogPosition
from canal_ha.pipeline import options as source_options
from canal_ha.pipeline.access import WAIT_S, SourceAccess, filter_of
from canal_ha.pipeline.cursor import judge
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.destinations import resolve
from canal_ha.pipeline.key_tables import idle_keys
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.progress_owner import foreign
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.target import OwnedTables, PipelineTarget
from canal_ha.pipeline.transforms import Transforms
from canal_ha.zookeeper.reading import BlockingZnodes

CONNECT_TIMEOUT_S = 5.0
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class PartReport:
    """The state of one part of a pipeline.

    problem: "" if it works.
    warns: `says` tells what may be a mistake.
    """

    part: str
    says: str
    problem: str = ""
    warns: bool = False


@dataclass(frozen=True, slots=True)
class CommittedState:
    """How far the target has a destination.

    destination: its name.
    progress: of the target; None before the first commit, or if it could not be read.
    cursor: of the server; None if there is none, or if it cannot be read without subscribing.
    unread: what could not be read, so that None does not say that there is none.
    end: present end of the source's binlog; None if the server does not tell it.
    problem: why a start would fail, or what could not be read; "" for nothing.
    """

    destination: str
    progress: Progress | None = None
    cursor: LogPosition | None = None
    unread: Literal["", "progress", "cursor"] = ""
    end: LogPosition | None = None
    problem: str = ""

    @property
    def says(self) -> str:
        """A short description."""
        if self.unread == "progress":
            return "progress unknown"
        if self.progress is None:
            return "nothing committed yet"
        return f"commit {self.progress.seq} ended at {self.progress.last}"

    @property
    def lag_s(self) -> float:
        """Age of the newest committed change, s; -1 if unknown."""
        newest_ms = self.progress.newest_ms if self.progress is not None else 0
        return max(time.time() - newest_ms / 1000, 0.0) if newest_ms else -1.0


def reachable(options: SourceOptions) -> PartReport:
    """Check whether any of the configured addresses accepts connections."""
    given = options.zk_servers.partition("/")[0].split(",") if options.zk_servers else list(options.servers)
    part = "ZooKeeper" if options.zk_servers else "servers"
    problems = []
    for address in given:
        try:
            socket.create_connection(split_address(address), CONNECT_TIMEOUT_S).close()
            return PartReport(part, address)
        except (OSError, ValueError) as error:
            problems.append(f"{address}: {error}")
    return PartReport(part, ",".join(given), "no address answers: " + "; ".join(problems))


def destinations(options: SourceOptions) -> tuple[tuple[str, ...], PartReport]:
    """Find the destinations; return their names, none on a problem, and the report."""
    try:
        names = resolve(options)
    except CanalError as error:
        return (), PartReport("destinations", ", ".join(options.destinations), str(error))
    return names, PartReport("destinations", ", ".join(names))


def check(description: Description) -> Iterator[PartReport]:
    """Check source, state, target and progress of a pipeline on the embedded engine. Raises OptionInvalid."""
    options = source_options.parse(description.source)
    reached = reachable(options)
    yield reached
    names, found = destinations(options)
    yield found
    yield _writable(description.state)
    yield from unused_keys(description)
    try:
        target = open_target(description)
    except CanalError as error:
        yield PartReport("target", description.target.kind, str(error))
        return
    try:
        yield PartReport("target", target.check())
        for name in names if not reached.problem else ():
            state = _state(description, options, target, name)
            yield PartReport("progress", f"{name}: {state.says}", state.problem)
        if isinstance(target, OwnedTables):
            yield from _tables(description, target, names)
    except CanalError as error:
        yield PartReport("target", description.target.kind, str(error))
    finally:
        target.close()


def status(description: Description) -> list[CommittedState]:
    """Return how far the target has each destination. Raises OptionInvalid, and the target's errors."""
    options = source_options.parse(description.source)
    target = open_target(description)
    try:
        return [_state(description, options, target, name) for name in resolve(options)]
    finally:
        target.close()


def start_of(description: Description, state: CommittedState) -> str:
    """Return where a pipeline would begin, in words; "" if what decides it could not be read."""
    options = source_options.parse(description.source)
    if state.progress is not None:
        return f"after commit {state.progress.seq} of the target, {state.progress.last}"
    if state.unread:
        return ""
    if state.cursor is not None:
        return f"at the cursor of client id {options.client_id}, {state.cursor}"
    if options.snapshot:
        tables = "all tables" if options.snapshot == ("*",) else ", ".join(options.snapshot)
        known = "" if options.zk_servers else f", unless client id {options.client_id} has a cursor already"
        return f"with the existing rows of {tables}, then their changes{known}"
    known = "" if options.zk_servers else f", or at the cursor of client id {options.client_id} if it has one"
    return f"at the present end of the source's binlog{known}"


def placed(description: Description) -> list[tuple[str, str]]:
    """Return the pipeline's tables, and their names at the target; a pattern's with "" unless no transform renames."""
    transforms = Transforms(description.transforms, description.keys)
    renames = any(kind == "route" or "to" in each for given in description.transforms for kind, each in given.items())
    found = []
    for pattern in description.tables:
        schema, _, table = pattern.partition(".")
        if not set(pattern) & _WILDCARDS and table:
            place = transforms.of(schema, table)
            found.append((pattern, f"{place.schema}.{place.table}"))
        else:
            found.append((pattern, "" if renames else pattern))
    return found


def unused_keys(description: Description) -> Iterator[PartReport]:
    """Warn of tables under `keys` that the target never gets."""
    for table, why in idle_keys(description):
        yield PartReport("keys", f"{table}: {why}", warns=True)


def _tables(description: Description, target: OwnedTables, names: Sequence[str]) -> Iterator[PartReport]:
    """Report the tables of the target that no destination may write, as far as `tables` has whole names of theirs.

    Which destination has a table is not known: one that may write it is enough.
    """
    transforms = Transforms(description.transforms, description.keys)
    for pattern in description.tables:
        schema, _, table = pattern.partition(".")
        if set(pattern) & _WILDCARDS or not table:
            continue
        problems = []
        for name in names:
            try:
                plan = transforms.of(schema, table)
                target.check_table(name, plan.schema, plan.table, merges=plan.merges)
            except CanalError as error:
                problems.append(str(error))
        if problems and len(problems) == len(names):
            yield PartReport("table", pattern, problems[0])


def _writable(state: str) -> PartReport:
    """Make the pipeline's directory, and write a file there, which is removed."""
    probe = Path(state) / ".check"
    try:
        private_files.replace(probe, b"")
        probe.unlink()
    except OSError as error:
        return PartReport("state", state, f"{state} cannot be written: {error.strerror or error}")
    return PartReport("state", state)


def _state(description: Description, options: SourceOptions, target: PipelineTarget, name: str) -> CommittedState:
    state = CommittedState(name, unread="progress")
    try:
        state = replace(state, progress=target.stored(name), unread="cursor")
        if options.zk_servers:
            with BlockingZnodes(options.zk_servers, options.zk_access) as znodes:
                state = replace(state, cursor=CursorNodes(znodes).read(name, options.client_id))
        state = replace(state, unread="")
        where = f"pipeline {description.name}, client id {options.client_id} of {name}"
        other = foreign(state.progress, options.owner(description.name), where, state.cursor)
        wrong = other or judge(state.cursor, state.progress, where)
        state = replace(state, problem=str(wrong) if wrong is not None else "")
        return replace(state, end=SourceAccess(name, options, filter_of(description, options)).end(WAIT_S))
    except CanalError as error:
        return replace(state, problem=state.problem or str(error))
