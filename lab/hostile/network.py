"""Attacks with connections: silent ones by the thousand, and guesses of passwords."""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack

from canal_ha.wire import scramble
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.hostile.attack import Assault, Attack
from lab.hostile.peer import Peer
from lab.hostile.stage import VICTIM
from lab.ports import LOOPBACK

GUESSES_PER_S = 50.0
CONNECT_S = 2.0


def connections(assault: Assault) -> None:
    """Connections that never log in, more than one address may have; the victim connects beside them."""
    opened = 0
    with ExitStack() as stack:
        for _ in range(assault.times(3000)):
            with contextlib.suppress(OSError):
                stack.enter_context(Peer(assault.target.port))
                opened += 1
        began = time.monotonic()
        _victim_connects(assault)
        waited_s = time.monotonic() - began
    assault.expect(waited_s < CONNECT_S, f"the victim connected after {waited_s:.1f} s")
    assault.done = f"{opened} silent connections; a new connection of the victim took {waited_s:.2f} s"


def guesses(assault: Assault) -> None:
    """Wrong passwords for the victim's account, on one connection after the other."""
    tried, judged, began = assault.times(3000), 0, time.monotonic()
    while tried > 0:
        with contextlib.suppress(OSError), Peer(assault.target.port) as peer:
            seed = peer.seed()
            while tried > 0:
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
    try:
        with Peer(assault.target.port, source=LOOPBACK) as peer:
            error = peer.log_in(*VICTIM)
    except OSError as refused:
        error = str(refused)
    assault.expect(not error, f"the victim cannot log in: {error}")


ATTACKS = (
    Attack("connections", "silent connections", connections),
    Attack("guesses", "wrong passwords", guesses),
)
