"""A status endpoint with its page, asked with bytes of HTTP; the cluster is this node alone."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from canal_ha.accounts.account import Accounts
from canal_ha.accounts.parse import parse
from canal_ha.admin.actions import actions_of
from canal_ha.admin.additions import DestinationAdded, DestinationRemoved, addition_actions
from canal_ha.admin.api import StatusApi
from canal_ha.admin.cluster_view import ClusterView
from canal_ha.admin.cursors import cursor_actions
from canal_ha.admin.document import NodeFacts, OwnStatus
from canal_ha.admin.pages import WholePage
from canal_ha.admin.placements import placement_actions
from canal_ha.admin.routes import body_most
from canal_ha.admin.seen import Sightings
from canal_ha.admin.sessions import Sessions
from canal_ha.cluster.mover import HandedOver
from canal_ha.cluster.placement import Placed, PlannedMove
from canal_ha.config.listeners import is_loopback
from canal_ha.errors import LocalProtocolError, NotSubscribed, PlacementRefused
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.status import InstanceStatus, ReaderStatus, StreamStatus
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import Within
from canal_ha.model.snapshot import SnapshotRequest, SnapshotState, changed
from canal_ha.node.reports import reports_of, seen_document
from canal_ha.server.audit import Audit
from canal_ha.server.entrance import Entrance
from canal_ha.server.site import QuietSite
from lab.gate import ACCOUNTS

NODE = "10.0.0.1:11111"
OTHER_NODE = "10.0.0.2:11111"
TOKEN = "written at the start"
STREAM = StreamStatus(
    1001,
    r"shop\..*",
    "open",
    cursor=LogPosition("mysql-bin.000004", 491),
    waiting=1,
    seconds_behind=2.5,
    bytes_behind=2048,
    alarms=("lag",),
)
EXAMPLE = InstanceStatus("example", "db:3306", streams=(STREAM,), readers=(ReaderStatus(1001, "reader", "10.0.0.7"),))


@dataclass
class Answer:
    """An HTTP answer. cookies: that it sets, by name."""

    code: int
    headers: Mapping[str, str]
    body: bytes
    cookies: Mapping[str, str]

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode()


class PlacementsOfTwo:
    """Says that this node runs two destinations, `example` and `other`. asked: what was asked, and not only tried."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._paused: set[str] = set()

    async def placed(self) -> Sequence[Placed]:
        """See Placements."""
        members = {NODE: True, OTHER_NODE: True}
        return [
            Placed(name, "" if name in self._paused else NODE, members=members, paused=name in self._paused)
            for name in ("example", "other")
        ]

    async def move(self, destination: str, to: str, *, dry_run: bool) -> HandedOver:
        """See Placements."""
        if to != OTHER_NODE:
            raise PlacementRefused(f"no node {to} is alive; {OTHER_NODE} could run {destination}")
        self._note(dry_run, "move", destination, to)
        return HandedOver(PlannedMove(destination, NODE, to), 0.0 if dry_run else 0.25)

    async def pause(self, destination: str, *, dry_run: bool) -> str:
        """See Placements."""
        if destination in self._paused:
            raise PlacementRefused(f"{destination} is paused already")
        self._note(dry_run, "pause", destination)
        if not dry_run:
            self._paused.add(destination)
        return NODE

    async def resume(self, destination: str, *, dry_run: bool) -> str:
        """See Placements."""
        self._note(dry_run, "resume", destination)
        if not dry_run:
            self._paused.discard(destination)
        return "" if dry_run else NODE

    async def rebalance(self, *, dry_run: bool) -> Sequence[HandedOver]:
        """See Placements."""
        self._note(dry_run, "rebalance")
        return [HandedOver(PlannedMove("example", NODE, OTHER_NODE), 0.0 if dry_run else 0.25)]

    def _note(self, dry_run: bool, *asked: str) -> None:
        if not dry_run:
            self.asked.append(asked)


class FilesOfOne:
    """Takes every file but one that is empty. asked: what was asked, and not only tried."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    async def add(self, destination: str, text: str, *, dry_run: bool) -> DestinationAdded:
        """See DestinationFiles."""
        if not text:
            raise PlacementRefused("the file is empty")
        if not dry_run:
            self.asked.append(("add", destination, text))
        return DestinationAdded(destination, NODE, f"conf/{destination}", False, False, (OTHER_NODE,), ())

    async def remove(self, destination: str, *, purge: bool, dry_run: bool) -> DestinationRemoved:
        """See DestinationFiles."""
        if not dry_run:
            self.asked.append(("remove", destination, purge))
        return DestinationRemoved(destination, NODE, True, False, (OTHER_NODE,), ("its file",), ())


class Desk:
    """See the module.

    with_accounts: those of lab.gate; else the node is open.
    instances: that run here.
    log_dir: of the node.
    """

    def __init__(
        self,
        *,
        with_accounts: bool = True,
        instances: Sequence[InstanceStatus] = (EXAMPLE,),
        log_dir: Path = Path("logs"),
    ) -> None:
        self.written: list[bytes] = []
        self.clock = Clock()
        self.accounts = Accounts(parse(ACCOUNTS, "accounts.toml")) if with_accounts else Accounts()
        self.instances = list(instances)
        self.cursors: list[tuple[int, Place | None]] = []
        self.switched: list[tuple[str, str]] = []
        self.snapshots_within: list[Within] = []
        self.entrance = entrance = Entrance(lambda: self.accounts, self.clock, Audit(self.clock, self.written.append))
        entrance.operator_token = sha256(TOKEN.encode()).digest()
        own = OwnStatus(NodeFacts(NODE, "compiled", time.time()), lambda: self.instances)
        self.seen = Sightings()
        self.placements = PlacementsOfTwo()
        self.files = FilesOfOne()
        view = ClusterView(self.clock, NODE, own, lambda account: seen_document(self.seen, account), self.placements)
        actions = {**actions_of(self._switch, self._snapshot), **placement_actions(self.placements)}
        actions |= {**addition_actions(self.files), **cursor_actions(self._move_cursor, self._delete_cursor)}
        reports = reports_of(
            view, self.seen, Embedded(), self.placements, log_dir, lambda destination: {"settings": []}
        )
        self.sessions = Sessions(self.clock)
        self.api = StatusApi(
            own,
            entrance=entrance,
            answers=is_loopback,
            actions=actions,
            reports=reports,
            sessions=self.sessions,
            pages=WholePage(NODE, entrance, self.sessions, view, actions, reports, self.clock),
        )
        self.site: Any = QuietSite(self.api, entrance, body_most=body_most)

    async def _switch(self, destination: str, to: str) -> str:
        if to == "master":
            raise LocalProtocolError(f"{destination} reads from its master already")
        self.switched.append((destination, to))
        return "db2:3306"

    async def _move_cursor(
        self, destination: str, client_id: int, place: Place, *, dry_run: bool
    ) -> tuple[LogPosition, LogPosition]:
        if client_id != STREAM.client_id:
            raise NotSubscribed(destination, client_id)
        if not dry_run:
            self.cursors.append((client_id, place))
        assert STREAM.cursor
        return STREAM.cursor, LogPosition("mysql-bin.000004", 4)

    async def _delete_cursor(self, destination: str, client_id: int, *, dry_run: bool) -> LogPosition:
        if not dry_run:
            self.cursors.append((client_id, None))
        assert STREAM.cursor
        return STREAM.cursor

    async def _snapshot(
        self, destination: str, client_id: int, request: SnapshotRequest, within: Within
    ) -> SnapshotState:
        self.snapshots_within.append(within)
        return changed("", request, "id1", 5)

    def ask(self, request: str) -> Answer:
        """Send the text of an HTTP request through Twisted's own parser."""
        protocol: Any = self.site.buildProtocol(None)
        transport = StringTransport(
            hostAddress=IPv4Address("TCP", "127.0.0.1", 8089), peerAddress=IPv4Address("TCP", "127.0.0.1", 54321)
        )
        protocol.makeConnection(transport)
        protocol.dataReceived(request.encode("latin-1"))
        head, _, body = transport.value().partition(b"\r\n\r\n")
        protocol.connectionLost(connectionDone)
        status, *lines = head.decode().split("\r\n")
        pairs = [(line.partition(": ")[0].lower(), line.partition(": ")[2]) for line in lines]
        cookies = dict(value.partition(";")[0].split("=", 1) for name, value in pairs if name == "set-cookie")
        return Answer(int(status.split()[1]), dict(pairs), body, cookies)


@dataclass
class Browser:
    """Keeps cookies, and sends forms. Its answers are those of a desk."""

    desk: Desk
    host: str = "localhost"
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        """Open a page."""
        return self._send("GET", path, headers, "")

    def post(self, path: str, fields: Mapping[str, str]) -> Answer:
        """Send a form."""
        return self._send("POST", path, {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(fields))

    def log_in(self, user: str, password: str = "geheim", *, token: str = "") -> Answer:
        """Log in through the form."""
        fields = hidden(self.get("/login?next=/destinations/example").text)
        return self.post("/login", {**fields, "user": user, "password": password, "token": token})

    def _send(self, method: str, path: str, headers: Mapping[str, str], body: str) -> Answer:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        lines = {"Host": self.host, "Connection": "close", **headers, "Content-Length": str(len(body))}
        lines |= {"Cookie": cookie} if cookie else {}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        answer = self.desk.ask(f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}")
        self.cookies |= answer.cookies
        return answer


def hidden(text: str) -> dict[str, str]:
    """Return the hidden fields of a page, except those of the log-out."""
    text = re.sub(r'<form method="post" action="/logout">.*?</form>', "", text, flags=re.DOTALL)
    return {
        str(given["name"]): given.get("value") or "" for _, given in elements(text) if given.get("type") == "hidden"
    }


def elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the elements that a page begins: name and attributes."""
    parser = _Elements()
    parser.feed(text)
    return parser.found


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
