"""An origin for tests. The test supplies its view and its feeds, and there is no server to switch to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest, OpenFeed
from canal_ha.instance.origin import SourceSwitch, SourceView
from canal_ha.model.position import LogPosition


class PlainOrigin:
    """Implements Origin."""

    def __init__(self, view: SourceView, open_feed: OpenFeed) -> None:
        self.view = view
        self.source_switch: SourceSwitch | None = None
        self._open_feed = open_feed

    def definition(self, schema: str, table: str) -> str | None:
        """See Origin."""
        return None

    def tables(self) -> Sequence[tuple[str, str]]:
        """See Origin."""
        return [("shop", "orders"), ("shop", "items"), ("other", "t")]

    def open_feed(self, request: FeedRequest) -> Feed:
        """See Origin."""
        return self._open_feed(request)

    def at_once(self, call: Callable[[], object]) -> None:
        """See Origin: its calls always wait."""

    def keep_house(self, cursors: Collection[LogPosition] | None, *, at_once: bool = False) -> bool:
        """See Origin."""
        return True

    def outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        """See Origin."""
        return {}

    def interrupt(self) -> None:
        """See Origin."""

    def close(self) -> None:
        """See Origin."""
