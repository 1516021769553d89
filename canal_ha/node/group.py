"""GroupOrigin: a destination whose rows come from several servers. It merges their rows and joins their positions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, LocalProtocolError, SnapshotRefused
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.merged_feed import MergedFeed, MergedSource
from canal_ha.instance.origin import KeepServers
from canal_ha.instance.status import SourceFacts
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.model.tell import Tell
from canal_ha.node.upstreams import Upstreams
from canal_ha.source.group import GroupView, parts
from canal_ha.source.history.stores import HistoryClaim
from canal_ha.source.positions.fingerprints import Copied, Recent

T = TypeVar("T")


class GroupOrigin:
    """Several servers as one source. Each reads, switches and keeps its table history as if it were alone.

    Implements instance.Origin.
    """

    def __init__(self, config: InstanceConfig, tell: Tell, claim: HistoryClaim | None = None) -> None:
        """Keep the sources apart.

        config: of a destination with at least two sources.
        tell: hears what happens to each of them.
        claim: of this node to the destination; None without ZooKeeper.
        """
        self._config = config
        self._tell = tell
        self._origins = [Upstreams(member, _naming(tell, member), claim) for member in config.members]
        self.view = GroupView(config, self._origins, self._purged)
        self.source_switch = _Switches(config, self._origins)

    def open_feed(self, request: FeedRequest) -> Feed:
        """Return a feed that merges the feeds of all sources, not started."""
        config = self._config
        trails, lasts = _split(request.start.trail), _split(request.start.origins)
        starts = [
            replace(at, trail=trails.get(at.part, ""), origins=lasts.get(at.part, ""))
            for at in parts(config, request.start)
        ]
        members = [
            MergedSource(member.source_name, origin.open_feed, start)
            for member, origin, start in zip(config.members, self._origins, starts, strict=True)
        ]
        name = f"{config.destination}-{request.read or request.client_id}"
        return MergedFeed(request, members, name=name, wait_s=config.group_wait_s, tell=self._tell)

    def tables(self) -> Sequence[tuple[str, str]]:
        """Raise SnapshotRefused."""
        raise SnapshotRefused("it merges several servers: take the snapshot through a destination of one of them")

    def definition(self, schema: str, table: str) -> str | None:
        """Return that of the first source that shows the table."""
        found = (origin.definition(schema, table) for origin in self._origins)
        return next((text for text in found if text), None)

    def at_once(self, call: Callable[[], object]) -> None:
        """See Origin: its calls always wait."""

    def keep_house(self, cursors: Collection[LogPosition] | None, *, at_once: bool = False) -> bool:
        """See Origin. Every source does it, even if another one fails."""
        places = None if cursors is None else [parts(self._config, cursor) for cursor in cursors]
        done = _each(
            self._origins,
            lambda part, origin: origin.keep_house(
                None if places is None else [at[part - 1] for at in places], at_once=at_once
            ),
        )
        return all(done)

    def outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        """Return, by client id, the outlook of the source that purges first."""
        places = {client_id: parts(self._config, cursor) for client_id, cursor in cursors.items()}
        answers = _each(
            self._origins,
            lambda part, origin: origin.outlook({client_id: at[part - 1] for client_id, at in places.items()}),
        )
        return {
            client_id: min((answer[client_id] for answer in answers if client_id in answer), key=_soonest)
            for client_id in cursors
            if any(client_id in answer for answer in answers)
        }

    def interrupt(self) -> None:
        """See Origin."""
        for origin in self._origins:
            origin.interrupt()

    def close(self) -> None:
        """Close every source."""
        for origin in self._origins:
            origin.close()

    def _purged(self, part: int, at: LogPosition) -> bool:
        """Whether a source has purged the journal of this position."""
        return self._origins[part - 1].purged(at)


class _Switches:
    """Implements instance.SourceSwitch for several sources."""

    def __init__(self, config: InstanceConfig, origins: Sequence[Upstreams]) -> None:
        self._config = config
        self._switches = origins
        self._chosen = [""] * len(origins)
        self._choosing = threading.Lock()  # sources switch independently, and one text keeps the choices of all

    def begin(self, cursors: tuple[LogPosition, ...], chosen: tuple[str, ...], keep: KeepServers) -> None:
        """See SourceSwitch."""
        if len(chosen) == len(self._switches):
            self._chosen = list(chosen)
        places = [parts(self._config, cursor) for cursor in cursors]
        for index, switch in enumerate(self._switches):
            own = tuple(at[index] for at in places)
            switch.begin(own, (self._chosen[index],), partial(self._keep, keep, index))

    def _keep(self, keep: KeepServers, index: int, chosen: tuple[str, ...]) -> None:
        """Make the choice of one source durable, together with the choices of the others."""
        with self._choosing:
            after = [*self._chosen[:index], *chosen, *self._chosen[index + 1 :]]
            keep(tuple(after))
            self._chosen = after

    def facts(self) -> SourceFacts:
        """Return the facts of all sources; texts of several sources stand side by side."""
        facts = [switch.facts() for switch in self._switches]
        return SourceFacts(
            address=", ".join(each.address for each in facts),
            role=", ".join(each.role for each in facts),
            server=", ".join(each.server for each in facts if each.server),
            switches=sum(each.switches for each in facts),
            detecting_failures=max(each.detecting_failures for each in facts),
        )

    def switch(self, to: str, reason: str) -> str:
        """See SourceSwitch. to: with the number of the source before it, such as 2/standby."""
        number, _, role = to.partition("/")
        if not number.isdecimal() or not 1 <= int(number) <= len(self._switches):
            raise LocalProtocolError(
                f"{self._config.destination} has {len(self._switches)} sources: say which one (--source)"
            )
        return self._switches[int(number) - 1].switch(role or "other", reason)

    def remember(self, cursor: LogPosition) -> _Trails:
        """See SourceSwitch."""
        return _Trails(cursor)


class _Trails:
    """Keeps the fingerprints of each source. Their text is `1:….2:…`."""

    def __init__(self, start: LogPosition) -> None:
        lasts = _split(start.origins)
        self._recent = {part: Recent(trail, lasts.get(part, "")) for part, trail in _split(start.trail).items()}

    @staticmethod
    def copies(pieces: Sequence[tuple[Segment, int, int]]) -> list[tuple[int, Copied]]:
        """See Recent."""
        return [(segment.part, Recent.copy(segment, first, last)) for segment, first, last in pieces]

    def add_copies(self, copies: Sequence[tuple[int, Copied]]) -> None:
        """See Recent."""
        for part, copied in copies:
            if part not in self._recent:
                self._recent[part] = Recent()
            self._recent[part].add_copy(copied)

    def trail(self) -> str:
        """See Recent."""
        return _joined({part: recent.trail() for part, recent in self._recent.items()})

    def origins(self) -> str:
        """See Recent."""
        return _joined({part: recent.origins() for part, recent in self._recent.items()})


def _joined(texts: Mapping[int, str]) -> str:
    return ".".join(f"{part}:{text}" for part, text in sorted(texts.items()))


def _split(joined: str) -> dict[int, str]:
    pairs = [each.partition(":") for each in joined.split(".")]
    return {int(part): text for part, colon, text in pairs if colon and part.isdecimal()}


def _naming(tell: Tell, member: InstanceConfig) -> Tell:
    """Add to each event which source it is about."""

    def tell_of_member(name: str, /, *, alarm: bool = False, **facts: object) -> None:
        tell(name, alarm=alarm, **{"of": member.destination, **facts})

    return tell_of_member


def _each(origins: Sequence[Upstreams], call: Callable[[int, Upstreams], T]) -> list[T]:
    """Ask every source and return the answers. Raises the first error, after all were asked."""
    answers: list[T] = []
    failure: CanalError | None = None
    for part, origin in enumerate(origins, start=1):
        try:
            answers.append(call(part, origin))
        except CanalError as error:
            failure = failure or error
    if failure:
        raise failure
    return answers


def _soonest(outlook: Outlook) -> float:
    return outlook.purge_in_s if outlook.purge_in_s >= 0 else float("inf")
