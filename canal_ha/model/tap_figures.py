"""TapFigures: how many streams read the one dump of their server, and how such dumps have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TapFigures:
    """The taps of a node. See canal_ha.source.server.tap.

    streams: how many follow, by host:port of the server.
    ended: how many taps have ended, by reason; see canal_ha.source.server.tap_records.TapEnd.
    """

    streams: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
