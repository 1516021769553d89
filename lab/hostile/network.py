"""Attacks with connections: silent ones by the thousand, and guesses of passwords."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from canal_ha.wire import scramble
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.hostile.attack import Assault, Attack
from lab.hostile.peer import ATTACKER, Peer
from lab.hostile.stage import MOST, MOST_OF_ADDRESS, VICTIM
from lab.ports import LOOPBACK

GUESSES_PER_S = 50.0
CONNECT_S = 2.0
LOGIN_S = 10.0  # canal.client.login.timeout
OPENERS = 16  # threads: a node that is behind with accepting makes a connection wait a second


def connections(assault: Assault) -> None:
    """Connections that never log in, more than one address may have; the victim connects beside them."""
    with ExitStack() as stack:
        opened = _open(assault, stack, 2 * MOST_OF_ADDRESS, (ATTACKER,))
        capped = _refuses(assault, ATTACKER, "this address has")
        began = time.monotonic()
        _victim_connects(assault)
        waited_s = time.monotonic() - began
    assault.expect(capped or assault.scale < 1, f"one address may have {opened} connections")
    assault.expect(assault.within(waited_s, CONNECT_S), f"the victim connected after {waited_s:.1f} s")
    assault.done = f"{opened} silent connections; a new connection of the victim took {waited_s:.2f} s"


def flood(assault: Assault) -> None:
    """Connections that never log in, more than the node may have; the victim connects once their time is over."""
    began = time.monotonic()
    with ExitStack() as stack:
        opened = _open(assault, stack, 2 * MOST, ("127.0.0.2", "127.0.0.3", "127.0.0.4"))
        capped = _refuses(assault, LOOPBACK, "the node has")
        assault.expect(capped or assault.scale < 1, f"a node may have {opened} connections")
        deadline = time.monotonic() + (LOGIN_S + CONNECT_S) * assault.slow
        while (refusal := _log_in(assault, LOOPBACK)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assault.expect(not refusal, f"the victim cannot log in: {refusal}")
    assault.done = f"{opened} silent connections; the victim logged in {time.monotonic() - began:.1f} s after the first"


def _open(assault: Assault, stack: ExitStack, count: int, sources: Sequence[str]) -> int:
    """Open connections by turns from each source, several at a time; return how many there are."""

    def connected(number: int) -> Peer | None:
        with contextlib.suppress(OSError):
            return Peer(assault.target.port, source=sources[number % len(sources)])
        return None

    with ThreadPoolExecutor(OPENERS) as pool:
        peers = [peer for peer in pool.map(connected, range(assault.times(count))) if peer]
    for peer in peers:
        stack.enter_context(peer)
    return len(peers)


def _refuses(assault: Assault, source: str, text: str) -> bool:
    """Return whether a login from an address is refused with a text. The node tells only a hundred at a time why."""
    deadline = time.monotonic() + LOGIN_S / 2
    while (refusal := _log_in(assault, source)) and time.monotonic() < deadline:
        if text in refusal:
            return True
        time.sleep(0.1)
    return False


def guesses(assault: Assault) -> None:
    """Wrong passwords for the victim's account, on one connection after the other."""
    tried, judged, began = assault.times(3000), 0, time.monotonic()
    while tried > 0 and assault.goes_on():
        with contextlib.suppress(OSError), Peer(assault.target.port) as peer:
            seed = peer.seed()
            while tried > 0 and assault.goes_on():
                tried -= 1
                login = pb.ClientAuth(username=VICTIM[0], password=scramble.token(f"guess {tried}", seed))
                error = peer.ask(pb.CLIENTAUTHENTICATION, login)
                assault.expect(bool(error), "a wrong password was accepted")
                judged += "auth failed" in error
    took_s = time.monotonic() - began
    rate = judged / max(took_s, 1.0)
    assault.expect(rate < GUESSES_PER_S, f"the node judged {rate:.0f} guesses a second")
    _victim_connects(assault)
    assault.done = f"{assault.times(3000)} guesses, of which the node compared {judged} with the password"


def _victim_connects(assault: Assault) -> None:
    error = _log_in(assault, LOOPBACK)
    assault.expect(not error, f"the victim cannot log in: {error}")


def _log_in(assault: Assault, source: str) -> str:
    """Log in as the victim from an address; return the error, "" without one."""
    try:
        with Peer(assault.target.port, source=source) as peer:
            return peer.log_in(*VICTIM)
    except OSError as refused:
        return str(refused) or repr(refused)


ATTACKS = (
    Attack("connections", "silent connections", connections),
    Attack("flood", "silent connections from several addresses", flood),
    Attack("guesses", "wrong passwords", guesses),
)
