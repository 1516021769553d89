"""GroupView: positions of a destination with several sources. Any thread.

A position identifies its source by number and by address. The address counts first, so that sources may be renumbered.
A source that a position does not include begins at its configured start, else at the position's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from canal_ha.config.model import GroupMember, InstanceConfig, WhenLost
from canal_ha.errors import CanalError, SourceRefused, SourceUnavailable
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.source.server import switch
from canal_ha.source.server.view import View


class MemberView(Protocol):
    """The questions that a GroupView asks of one source; see View."""

    @property
    def version(self) -> str: ...
    def newest(self) -> LogPosition: ...
    def start(self, kept: LogPosition | None) -> LogPosition: ...
    def find(self, place: Place) -> LogPosition: ...
    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition: ...


class GroupView:
    """The positions of all sources of a destination.

    config: of the destination.
    views: one for each of its sources.
    lost: lost(part, position) returns whether a source has purged the journal of this position.
    """

    def __init__(
        self, config: InstanceConfig, views: Sequence[MemberView], lost: Callable[[int, LogPosition], bool]
    ) -> None:
        self._config = config
        self._members = config.members
        self._views = views
        self._lost = lost

    @property
    def version(self) -> str:
        """Versions of the servers; "" until they are known."""
        return ", ".join(filter(None, dict.fromkeys(view.version for view in self._views)))

    def newest(self) -> LogPosition:
        """Return where the binlogs end now. Raises SourceUnavailable, SourceRefused, after asking all sources."""
        return self._all(lambda part: self._views[part - 1].newest())

    def start(self, kept: LogPosition | None) -> LogPosition:
        """Return where a new client begins in each source; see View."""
        known = {} if kept is None else {each.part: each for each in parts(self._config, kept, whole=False)}
        return self._all(lambda part: self._views[part - 1].start(known.get(part)))

    def find(self, place: Place) -> LogPosition:
        """Return the transaction boundary for a place, in each source or in the one that the place names.

        Raises SourceUnavailable, PositionLost, and SourceRefused for a place that has no meaning for several sources.
        """
        name, count = self._config.destination, len(self._views)
        if place.part:
            if place.part > count:
                raise SourceRefused(f"{name} has no source {place.part}: give one from 1 to {count}")
            return replace(self._views[place.part - 1].find(replace(place, part=0)), part=place.part)
        if not (place.end or place.timestamp_ms):
            raise SourceRefused(
                f"{name} has {count} sources: give time:..., earliest or latest, or address one as 1/JOURNAL:OFFSET"
            )
        return self._all(lambda part: self._views[part - 1].find(place))

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """Return where to continue when one source's journal is gone; the other sources keep their positions."""

        def one(part: int) -> LogPosition:
            at = known[part]
            return self._views[part - 1].instead(at, when) if self._lost(part, at) else at

        known = {each.part: each for each in parts(self._config, cursor)}
        return self._all(one)

    def _all(self, ask: Callable[[int], LogPosition]) -> LogPosition:
        """Return the answers of all sources as one position; raise the first error after asking all."""
        answers: list[LogPosition] = []
        failure: CanalError | None = None
        for part in range(1, len(self._views) + 1):
            try:
                answers.append(replace(ask(part), part=part, others=()))
            except CanalError as error:
                failure = failure or error
        if failure:
            raise failure
        return answers[0].beside(answers)


class MembersView(GroupView):
    """A GroupView with connections of its own, for commands."""

    def __init__(self, config: InstanceConfig) -> None:
        self._own = tuple(View(member) for member in config.members)
        super().__init__(config, self._own, lambda part, at: self._own[part - 1].kept_for({0: at})[0][0] == 0.0)

    def reach(self, at: LogPosition) -> str:
        """Describe, one line for each source, whether its binlog still has this position."""
        return "\n".join(
            f"{each.part}, {self._members[each.part - 1].source_name}: {self._reach(each)}"
            for each in parts(self._config, at)
        )

    def close(self) -> None:
        """Close the connections."""
        for view in self._own:
            view.close()

    def _reach(self, at: LogPosition) -> str:
        try:
            return elsewhere(self._members[at.part - 1], at) or self._own[at.part - 1].reach(at)
        except SourceUnavailable as error:
            return f"cannot ask the source: {error}"


def as_read(config: InstanceConfig, cursors: Iterable[LogPosition], chosen: Sequence[str]) -> InstanceConfig:
    """Return the configuration with the server of each source that a node reads as its master, the other as standby.

    config: of the destination.
    cursors: of its clients.
    chosen: the servers that were switched to last; see ServersChosen.
    """
    if not config.group:
        now = _as_read(config, cursors, chosen[0] if chosen else "")
        return replace(config, master=now.master, standby=now.standby)
    known = chosen if len(chosen) == len(config.group) else ("",) * len(config.group)
    places = [parts(config, cursor) for cursor in cursors]
    members = [
        _as_read(member, [at[index] for at in places], known[index]) for index, member in enumerate(config.members)
    ]
    return replace(config, master=members[0].master, standby=members[0].standby, group=tuple(members))


def _as_read(config: InstanceConfig, cursors: Iterable[LogPosition], chosen: str) -> GroupMember:
    role = switch.first(config, cursors, chosen)
    read = switch.server(config, role)
    assert read is not None  # `first` returns a server that is configured
    return GroupMember(read, switch.server(config, role.other))


def elsewhere(read: InstanceConfig, at: LogPosition) -> str:
    """Return a note if a position is of the standby's binlog and not of the master's; "" otherwise.

    read: the configuration of one source, from `as_read`.
    at: a position of that source.
    """
    standby = read.standby
    if standby is None or f"{at.address}:{at.port}" not in {standby.address} - {read.master.address}:
        return ""
    return (
        f"a position of {standby.address}, and {read.destination} reads {read.master.address} now: the node finds its"
        " place there when the client reads"
    )


def parts(config: InstanceConfig, at: LogPosition, *, whole: bool = True) -> tuple[LogPosition, ...]:
    """Return one position for each source of the destination, by number.

    config: of the destination.
    at: a position of one or more sources.
    whole: include sources that `at` does not include.
    """
    left = list(at.parts)
    found: dict[int, LogPosition] = {}
    members = dict(enumerate(config.members, start=1))
    for fits in (_has_address, _has_number):
        for number, member in members.items():
            if number not in found:
                mine = next((each for each in left if fits(each, number, member)), None)
                if mine is not None:
                    left.remove(mine)
                    found[number] = replace(mine, part=number, others=())
    if whole:
        for number, member in members.items():
            found.setdefault(number, replace(_unknown(member, at), part=number))
    return tuple(found[number] for number in sorted(found))


def _has_address(at: LogPosition, number: int, member: InstanceConfig) -> bool:
    return (at.address, at.port) in [
        (source.host, source.port) for source in (member.master, member.standby) if source is not None
    ]


def _has_number(at: LogPosition, number: int, member: InstanceConfig) -> bool:
    return (at.part or 1) == number


def _unknown(member: InstanceConfig, at: LogPosition) -> LogPosition:
    """Return where a source begins that joined the destination later."""
    master = member.master
    if master.journal and not (master.timestamp_ms and not master.position):
        return LogPosition(master.journal, max(4, master.position), gtid=None, address=master.host, port=master.port)
    since_ms = max(1, master.timestamp_ms or at.timestamp_ms) + member.fallback_interval_s * 1000  # subtracted later
    return LogPosition("", 0, since_ms, gtid=None, address=master.host, port=master.port)
