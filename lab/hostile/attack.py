"""What an attack is, how one is run, and what it must not reach."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lab.hostile.stage import Stage, logs_kib
from lab.node import Node
from lab.process import memory_mib

NEXT_ROW_S = 2.0  # the victim's next row, during each attack
GROWTH_MIB = 20.0  # of the node, by one attack
LOGS_KIB, LOGS_KIB_PER_S = 256.0, 40.0  # that one attack may write: 50 lines a second in the log, and in the audit log
LONGEST_S = 600.0  # of one attack
SETTLE_S = 1.0  # at most, and no longer than the attack: until the node has freed what it held


@dataclass(slots=True)
class Assault:
    """One attack while it runs.

    stage: where.
    target: the node that runs the victim's destination.
    scale: part of the full number of repetitions, up to 1.0.
    seed: of what is random.
    slow: factor of all limits of time, for a loaded machine.
    usual_s: how long the victim's next row takes because of what the attack does beside attacking.
    done: what was done, for the table.
    broken: what must not have happened.
    """

    stage: Stage
    target: Node
    scale: float
    seed: int
    slow: float = 1.0
    usual_s: float = 0.0
    done: str = ""
    broken: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def times(self, count: int) -> int:
        """Return how often to do what a whole run does `count` times."""
        return max(1, round(count * self.scale))

    def rounds(self, count: int) -> Iterator[int]:
        """Yield the numbers of what a whole run does `count` times, until the attack's time is over."""
        for number in range(self.times(count)):
            if not self.goes_on():
                return
            yield number

    def goes_on(self) -> bool:
        """Return whether the attack has time left; note once that it did not get to its end."""
        in_time = self.within(time.monotonic() - self._began, LONGEST_S)
        self.expect(in_time, f"the attack was not over after {LONGEST_S * self.slow:.0f} s")
        return in_time

    def within(self, took_s: float, limit_s: float) -> bool:
        """Return whether something took no longer than it may on this machine."""
        return took_s <= limit_s * self.slow

    def expect(self, holds: bool, otherwise: str) -> None:
        """Note a broken promise once."""
        if not holds and otherwise not in self.broken:
            self.broken.append(otherwise)


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack.

    name: for the command line.
    what: it does.
    run: does it.
    moves: whether the destination changes its node.
    growth_mib: of the node, that the configuration allows.
    """

    name: str
    what: str
    run: Callable[[Assault], None]
    moves: bool = False
    growth_mib: float = GROWTH_MIB


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack did.

    took_s: its duration.
    next_row_s: the longest time that a row took to the victim.
    grown_mib, logged_kib: of the target's memory and logs.
    """

    name: str
    done: str
    took_s: float
    next_row_s: float
    grown_mib: float
    logged_kib: float
    broken: tuple[str, ...]

    def text(self) -> str:
        """Return a line, and one more for each broken promise."""
        line = (
            f"{self.name:13} {self.took_s:6.1f} {self.next_row_s:7.2f} s {self.grown_mib:4.0f} MiB "
            f"{self.logged_kib:4.0f} KiB  {self.done}"
        )
        return "\n".join([line, *(f"{'':13} BROKEN {what}" for what in self.broken)])


HEADER = f"{'attack':13} {'s':>6} {'next row':>9} {'memory':>8} {'logs':>8}  what was done"


def carry_out(attack: Attack, stage: Stage, scale: float, seed: int, slow: float = 1.0) -> Outcome:
    """Run one attack and judge it. scale, seed, slow: see Assault."""
    target = stage.owner
    assault = Assault(stage, target, scale, seed, slow)
    memory, logged, began = memory_mib(target.pid), logs_kib(target), time.monotonic()
    try:
        attack.run(assault)
    except (AssertionError, OSError) as error:
        assault.broken.append(f"ended early: {error!r}")
    took_s = time.monotonic() - began
    try:
        next_row_s = stage.victim.worst_s(began)
    except AssertionError:  # no row came at all
        next_row_s = math.inf
    time.sleep(min(SETTLE_S, took_s))
    grown = 0.0 if attack.moves else memory_mib(target.pid) - memory
    logged = logs_kib(target) - logged
    assault.expect(
        assault.within(next_row_s - assault.usual_s, NEXT_ROW_S), f"the victim waited {next_row_s:.1f} s for a row"
    )
    assault.expect(grown <= attack.growth_mib, f"the node grew by {grown:.0f} MiB")
    assault.expect(logged <= LOGS_KIB + took_s * LOGS_KIB_PER_S, f"the node wrote {logged:.0f} KiB of logs")
    assault.expect(not stage.victim.lost(), f"rows {stage.victim.lost()[:5]} did not arrive")
    return Outcome(attack.name, assault.done, took_s, next_row_s, grown, logged, tuple(assault.broken))
