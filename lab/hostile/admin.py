"""Attacks on the port of canal's admin protocol: damaged frames, silent connections, guesses, missing rights."""

from __future__ import annotations

import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from google.protobuf.message import Message

from canal_ha.server.admin_service import CONNECTIONS_MOST
from canal_ha.wire.admin_session import KINDS
from canal_ha.wire.framing import frame
from canal_ha.wire.proto import admin_protocol_pb2 as pb
from lab.admin_peer import AdminPeer
from lab.hostile.attack import Assault, Attack
from lab.hostile.frames import BEFORE_LOGIN, burst
from lab.hostile.network import GUESSES_PER_S, LOGIN_S
from lab.hostile.peer import ATTACKER
from lab.hostile.requests import ANSWER_S, ENDLESS_MIB, send_on
from lab.hostile.stage import BOSS, DESTINATION, ELSEWHERE, INSIDER, STRANGER
from lab.ports import LOOPBACK

FRAMES, SENDERS = 10_000, 4
SECRETS = ("passwords = [", "canal.passwd", "root:")
"""What only files beside the logs contain."""
OPEN = {
    INSIDER: {("SERVER check", ""), ("SERVER list", ""), ("INSTANCE check", DESTINATION)},
    STRANGER: {("SERVER check", ""), ("SERVER list", ""), ("INSTANCE check", ELSEWHERE)},
}
"""What an account that only reads may ask."""
PATHS = (
    "../../conf/accounts.toml",
    "../conf/canal.properties",
    "../audit/audit.log",
    "/etc/passwd",
    "....//....//etc/passwd",
    "%2e%2e/conf/canal.properties",
    "example.log\x00/../../conf/canal.properties",
    ".",
    "..",
    "x" * 40_000,
)


def _packet(kind: pb.PacketType.ValueType, body: Message) -> pb.Packet:
    return pb.Packet(type=kind, version=1, body=body.SerializeToString())


WHOLE = [
    _packet(kind, body)
    for kind, body in (
        (pb.SERVER, pb.ServerAdmin(action="list")),
        (pb.SERVER, pb.ServerAdmin(action="stop")),
        (pb.INSTANCE, pb.InstanceAdmin(destination=DESTINATION, action="check")),
        (pb.INSTANCE, pb.InstanceAdmin(destination=DESTINATION, action="stop")),
        (pb.LOG, pb.LogAdmin(type="server", action="file", count=100)),
        (pb.LOG, pb.LogAdmin(type="instance", action="list", destination=DESTINATION, file="example.log")),
        (pb.CLIENTAUTHENTICATION, pb.ClientAuth(username="a", password=b"b" * 20, net_read_timeout=1)),
    )
]
"""The requests that are damaged."""
_LAST = frame(_packet(pb.INSTANCE, pb.InstanceAdmin(destination=ELSEWHERE, action="check")).SerializeToString())
_LIST = frame(_packet(pb.SERVER, pb.ServerAdmin(action="list")).SerializeToString())


def _peer(assault: Assault, source: str = ATTACKER) -> AdminPeer:
    return AdminPeer(assault.stage.admin_protocol_ports[assault.target.name], source=source)


def _operator_is_served(assault: Assault) -> None:
    """The operator logs in, the node serves, and the victim's destination runs on one of the two nodes."""
    with _peer(assault, LOOPBACK) as peer:
        assault.expect(peer.log_in(*BOSS) == (0, ""), "the operator cannot log in")
        assault.expect(peer.request("SERVER check") == (0, "1"), "the node does not serve")
    assault.expect(assault.stage.owner.alive(), "no node runs the victim's destination")


def frames(assault: Assault) -> None:
    """Damaged frames in bursts, on several connections, from an account that may only look."""
    share = max(1, assault.times(FRAMES) // SENDERS)
    with ThreadPoolExecutor(SENDERS) as pool:
        tallies = list(pool.map(lambda number: _send(assault, number, share), range(SENDERS)))
    before, after = map(sum, zip(*tallies, strict=True))
    _operator_is_served(assault)
    assault.done = f"{before} damaged frames before and {after} after a login"


def _send(assault: Assault, number: int, share: int) -> tuple[int, int]:
    """Send damaged frames; return how many the node has read before and after a login."""
    chance = random.Random(f"{assault.seed}/{number}")
    before = after = 0
    while before + after < share and assault.goes_on():
        with _peer(assault, f"127.0.1.{chance.randint(2, 250)}") as peer:
            inside = before >= share * BEFORE_LOGIN
            if inside and peer.log_in(*INSIDER)[0]:
                raise ConnectionError("the insider cannot log in")
            alive = True
            while alive and before + after < share and assault.goes_on():
                read, alive = burst(peer.sock, WHOLE, chance, _LAST)
                before, after = (before, after + read) if inside else (before + read, after)
                alive = alive and inside
    return before, after


def crowd(assault: Assault) -> None:
    """Connections that never log in, more than the port may have; the operator logs in once their time is over."""
    began, refused = time.monotonic(), 0
    with ExitStack() as stack:
        for number in range(assault.times(3 * CONNECTIONS_MOST)):
            try:
                peer = stack.enter_context(_peer(assault, f"127.0.1.{2 + number % 3}"))
                peer.sock.settimeout(ANSWER_S)
            except OSError:
                refused += 1
        deadline = time.monotonic() + (LOGIN_S + ANSWER_S) * assault.slow
        while not _boss_gets_in(assault) and time.monotonic() < deadline:
            time.sleep(0.2)
        _operator_is_served(assault)
    assault.done = (
        f"{assault.times(3 * CONNECTIONS_MOST)} silent connections, {refused} closed without a word; "
        f"the operator logged in {time.monotonic() - began:.1f} s after the first"
    )


def _boss_gets_in(assault: Assault) -> bool:
    with contextlib.suppress(OSError), _peer(assault, LOOPBACK) as peer:
        return peer.log_in(*BOSS) == (0, "")
    return False


def guesses(assault: Assault) -> None:
    """Wrong passwords for the operator's account, on one connection after the other."""
    count = tried = assault.times(1000)
    judged, began = 0, time.monotonic()
    while tried > 0 and assault.goes_on():
        with contextlib.suppress(OSError), _peer(assault) as peer:
            while tried > 0:
                tried -= 1
                code, error = peer.log_in(BOSS[0], f"guess {tried}")
                assault.expect(bool(code), "a wrong password was accepted")
                judged += "auth failed" in error
    rate = judged / max(time.monotonic() - began, 1.0)
    assault.expect(rate < GUESSES_PER_S, f"the node judged {rate:.0f} guesses a second")
    _operator_is_served(assault)
    assault.done = f"{count} guesses, of which the node compared {judged} with the password"


def rights(assault: Assault) -> None:
    """Each request of accounts that may only look, and of the operator with paths to other files than logs."""
    tried = 0
    for _ in assault.rounds(20):
        for login, allowed in OPEN.items():
            for kind in sorted(KINDS):
                for destination in ("", DESTINATION, ELSEWHERE):
                    tried += 1
                    with _peer(assault) as peer:
                        peer.log_in(*login)
                        code, text = peer.request(kind, destination)
                    named = "" if kind.startswith("SERVER ") else destination
                    may = (kind, named) in allowed
                    assault.expect(bool(code) is not may, f"{login[0]}: {kind} {destination} is answered {text[:80]!r}")
                    assault.expect(
                        kind != "SERVER list" or _elsewhere(login) not in text, f"{login[0]} sees {text[:80]!r}"
                    )
    for path in PATHS:
        for destination in (DESTINATION, "", path[:64]):
            tried += 2
            _look(assault, destination, path)
    _operator_is_served(assault)
    assault.done = f"{tried} requests without a right, or for other files than logs"


def _elsewhere(login: tuple[str, str]) -> str:
    """Return the destination that an account must not see."""
    return ELSEWHERE if login == INSIDER else DESTINATION


def _look(assault: Assault, destination: str, path: str) -> None:
    for kind in ("LOG server", "LOG instance"):
        with _peer(assault, LOOPBACK) as peer:
            peer.log_in(*BOSS)
            began = time.monotonic()
            _, text = peer.request(kind, destination, file=path, lines=2**31 - 1)
        took_s = time.monotonic() - began
        assault.expect(assault.within(took_s, ANSWER_S), f"{kind} {path[:40]} took {took_s:.1f} s")
        assault.expect(not any(secret in text for secret in SECRETS), f"{kind} {path[:40]} is answered {text[:80]!r}")


def unread(assault: Assault) -> None:
    """Requests without end, whose replies nobody reads."""
    sent = 0
    with ExitStack() as stack:
        for number in assault.rounds(20):
            peer = stack.enter_context(_peer(assault, f"127.0.1.{2 + number}"))
            peer.log_in(*INSIDER)
            sent += send_on(assault, peer.sock, 1000 * _LIST, ENDLESS_MIB)
    _operator_is_served(assault)
    assault.done = f"{assault.times(20)} connections sent {sent >> 10} KiB of requests and read no reply"


ATTACKS = (
    Attack("admin-frames", "damaged frames on canal's admin port", frames),
    Attack("admin-crowd", "silent connections to it", crowd),
    Attack("admin-guesses", "wrong passwords for the operator's account", guesses),
    Attack("admin-rights", "requests without a right, and paths to other files than logs", rights),
    Attack("admin-unread", "replies that nobody reads", unread),
)
