"""A destination's rows from several servers: one Origin each, their streams merged, their positions side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, LocalProtocolError
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.merged_feed import MergedFeed, MergedSource
from canal_ha.instance.status import SourceFacts
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.model.tell import Tell
from canal_ha.node import upstreams
from canal_ha.node.origin import Origin
from canal_ha.source.group import GroupView, parts
from canal_ha.source.positions.fingerprints import Copied, Recent

T = TypeVar("T")


def servers(config: InstanceConfig, tell: Tell) -> Origin:
    """config: with at least two sources. Each reads, switches and keeps its table history as if it were alone."""
    origins = [upstreams.server(member, _naming(tell, member)) for member in config.members]

    def lost(part: int, at: LogPosition) -> bool:
        return origins[part - 1].outlook({0: at}).get(0, Outlook()).purge_in_s == 0.0

    def open_feed(request: FeedRequest) -> Feed:
        trails = _split(request.start.trail)
        starts = [replace(at, trail=trails.get(at.part, "")) for at in parts(config, request.start)]
        members = [
            MergedSource(member.source_name, origin.open_feed, start)
            for member, origin, start in zip(config.members, origins, starts, strict=True)
        ]
        name = f"{config.destination}-{request.read or request.client_id}"
        return MergedFeed(request, members, name=name, wait_s=config.group_wait_s, tell=tell)

    def close() -> None:
        for origin in origins:
            origin.close()

    def keep_house(oldest: LogPosition | None) -> None:
        stood = {} if oldest is None else {at.part: at for at in parts(config, oldest)}
        _each(origins, lambda part, origin: origin.keep_house(stood.get(part)))

    def outlook(cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        stood = {client_id: parts(config, cursor) for client_id, cursor in cursors.items()}
        answers = _each(
            origins,
            lambda part, origin: origin.outlook({client_id: at[part - 1] for client_id, at in stood.items()}),
        )
        return {
            client_id: min((answer[client_id] for answer in answers if client_id in answer), key=_soonest)
            for client_id in cursors
            if any(client_id in answer for answer in answers)
        }

    view = GroupView(config, [origin.view for origin in origins], lost)
    return Origin(view, open_feed, close, keep_house, outlook, _Switches(config, origins))


class _Switches:
    """What SourceSwitch asks of one source, of several."""

    def __init__(self, config: InstanceConfig, origins: Sequence[Origin]) -> None:
        self._config = config
        self._switches = [origin.switch for origin in origins if origin.switch is not None]

    def begin(self, cursors: tuple[LogPosition, ...]) -> None:
        """See SourceSwitch."""
        stood = [parts(self._config, cursor) for cursor in cursors]
        for index, switch in enumerate(self._switches):
            switch.begin(tuple(at[index] for at in stood))

    def facts(self) -> SourceFacts:
        """Of all sources: what differs between them stands in one text."""
        facts = [switch.facts() for switch in self._switches]
        return SourceFacts(
            address=", ".join(each.address for each in facts),
            role=", ".join(each.role for each in facts),
            server=", ".join(each.server for each in facts if each.server),
            switches=sum(each.switches for each in facts),
            detecting_failures=max(each.detecting_failures for each in facts),
        )

    def switch(self, to: str, reason: str) -> str:
        """See SourceSwitch; to: 2/standby names the source."""
        number, _, role = to.partition("/")
        if not number.isdecimal() or not 1 <= int(number) <= len(self._switches):
            raise LocalProtocolError(
                f"{self._config.destination} has {len(self._switches)} sources: say which one (--source)"
            )
        return self._switches[int(number) - 1].switch(role or "other", reason)

    def remember(self, trail: str) -> _Trails:
        """See SourceSwitch."""
        return _Trails(trail)


class _Trails:
    """The trail of each source in one text, `1:….2:…`."""

    def __init__(self, start: str) -> None:
        self._recent = {part: Recent(trail) for part, trail in _split(start).items()}

    @staticmethod
    def copy(segment: Segment, first: int, last: int) -> tuple[int, Copied]:
        """See Recent."""
        return segment.part, Recent.copy(segment, first, last)

    def add_copy(self, piece: tuple[int, Copied]) -> None:
        """See Recent."""
        part, copied = piece
        if part not in self._recent:
            self._recent[part] = Recent()
        self._recent[part].add_copy(copied)

    def trail(self) -> str:
        """See Recent."""
        return ".".join(f"{part}:{recent.trail()}" for part, recent in sorted(self._recent.items()))


def _split(trail: str) -> dict[int, str]:
    pairs = [each.partition(":") for each in trail.split(".")]
    return {int(part): text for part, colon, text in pairs if colon and part.isdecimal()}


def _naming(tell: Tell, member: InstanceConfig) -> Tell:
    """Say of which source something is told."""

    def told(name: str, /, *, alarm: bool = False, **facts: object) -> None:
        tell(name, alarm=alarm, **{"of": member.destination, **facts})

    return told


def _each(origins: Sequence[Origin], call: Callable[[int, Origin], T]) -> list[T]:
    """What all sources answer; the first error once everybody was asked."""
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
