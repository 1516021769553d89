"""The mutants: a name, the module, the text, and what replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


class NotApplicable(Exception):
    """The text of a mutant is not in its module exactly as often as it says."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One seeded fault.

    name: what is wrong.
    module: path of the module, from the repository's root.
    old: the text that is replaced.
    new: what it becomes.
    times: how often the module has the text.
    promise: the one that has to notice it; "" if any may.
    """

    name: str
    module: str
    old: str
    new: str
    times: int = 1
    promise: str = ""

    def apply(self, source: str) -> str:
        """Return the module's source with the fault. Raises NotApplicable."""
        if source.count(self.old) != self.times:
            found = source.count(self.old)
            raise NotApplicable(f"mutant {self.name!r}: {found} times in {self.module}, not {self.times}: {self.old!r}")
        return source.replace(self.old, self.new)

    def check(self) -> None:
        """Raise NotApplicable unless the mutant can be applied."""
        compile(self.apply((ROOT / self.module).read_text()), self.module, "exec")


ELECTION = "canal_ha/cluster/election.py"
RUNNING = "canal_ha/cluster/running.py"
OWNERSHIP = "canal_ha/cluster/ownership.py"
LEASE = "canal_ha/zookeeper/lease.py"
ZNODES = "canal_ha/meta/znodes.py"
META = "canal_ha/meta/write_behind.py"
BATCHES = "canal_ha/meta/batches.py"
INSTANCE = "canal_ha/instance/instance.py"
STREAM = "canal_ha/instance/stream.py"
RING = "canal_ha/store/ring.py"
TAKE = "canal_ha/store/take.py"
CONVERSATION = "canal_ha/server/conversation.py"
CONSUMERS = "canal_ha/server/consumers.py"

MUTANTS = (
    # who owns a destination
    Mutant(
        "claim not checked",
        "canal_ha/node/claims.py",
        "        if not self._ownership.lease_ok():\n            raise NotRunningHere(self._ownership.destination)",
        "        pass",
    ),
    Mutant(
        "epoch not checked",
        ZNODES,
        "Check(tree.destination(destination), epoch)",
        "Check(tree.destination(destination), -1)",
    ),
    Mutant("lease too long", LEASE, "PART = 2 / 3", "PART = 4 / 3"),
    Mutant("lease is the whole time-out", LEASE, "PART = 2 / 3", "PART = 1.0"),
    Mutant("lease never ends", LEASE, "PART = 2 / 3", "PART = 1000.0"),
    Mutant(
        "lease from the answer",
        ELECTION,
        "            self.lease.answered(sent_at)",
        "            self.lease.answered(self._clock.seconds())",
    ),
    Mutant("lease on the wall clock", ELECTION, "self._clock.seconds()", "self._clock.wall_seconds()", times=9),
    Mutant(
        "GET answered without a second look at the claim",
        INSTANCE,
        "            self._check()  # the node may have lost the destination while the GET waited\n",
        "",
    ),
    Mutant(
        "a lost session does not stop the instance",
        RUNNING,
        "        return self._step_down(StopReason.SESSION_LOST)",
        "        return []",
    ),
    Mutant(
        "running not watched",
        ELECTION,
        'session.get(tree.running(destination), self._watch(candidate, "running"))',
        "session.get(tree.running(destination))",
    ),
    Mutant(
        "watches not set again after a reconnect",
        OWNERSHIP,
        "        for path in tuple(self._watched):\n            self._arm(path)",
        "        return",
    ),
    Mutant(
        "released before the flush",
        ELECTION,
        "        try:\n            await self._owner.stop(candidate.destination, reason)",
        "        self._feed(candidate, i.InstanceStopped())\n"
        "        try:\n            await self._owner.stop(candidate.destination, reason)",
    ),
    Mutant(
        "a successor claims before the owner has stopped",
        RUNNING,
        "if not (seen.active or paused or now < self._failed_until)",
        "if not (paused or now < self._failed_until)",
    ),
    Mutant(
        "a move does not check the epoch",
        "canal_ha/cluster/mover.py",
        "            Check(tree.destination(destination), claimed.version),\n",
        "",
    ),
    Mutant(
        "an owner does not correct running",
        RUNNING,
        "        if running.address == self._node:\n",
        "        if True:\n",
    ),
    Mutant("pause not looked at", ELECTION, "created, paused)", "created, False)"),
    # cursors
    Mutant("no flush at the stop", INSTANCE, "            await self._last_flush()", "            pass"),
    Mutant(
        "last flush tried once",
        INSTANCE,
        "while not await self.flush() and",
        "while not await self.flush() and False and",
    ),
    Mutant(
        "no flush in between",
        INSTANCE,
        "self._every(self._flush_period_s or WRITE_AGAIN_S, self._flush_due)",
        "pass",
        promise="flushed-in-time",
    ),
    Mutant(
        "ACK done before it is durable",
        INSTANCE,
        "            await self._flush_now(identity.client_id)",
        "            pass",
    ),
    Mutant(
        "failed flush forgotten",
        META,
        "                self._due |= {each for each, due in cursors if failed(each) and self._cursors[each] is due}\n",
        "",
    ),
    Mutant(
        "SUBSCRIBE answered before the cursor is durable",
        META,
        "                if changes:\n                    await self._backend.write(tuple(changes))",
        "                self._due.add(identity.client_id)",
    ),
    Mutant(
        "SUBSCRIBE during an UNSUBSCRIBE of the client",
        INSTANCE,
        "self._subscribing.of(identity.client_id)",
        "self._subscribing.of(object())",
        2,
    ),
    Mutant(
        "own late write taken for an edit",
        ZNODES,
        "        ours = node == known or node in self._unanswered.get(path, ())",
        "        ours = node == known",
    ),
    Mutant("edit overwritten", ZNODES, "SetData(path, data, known.version)", "SetData(path, data, -1)"),
    Mutant(
        "cursor not watched",
        OWNERSHIP,
        "        self._watched[path] = (watch, changed)",
        "        return",
        promise="edit-noticed",
    ),
    Mutant(
        "a former owner puts its old cursors back",
        ZNODES,
        "            if _is_older(self._known.get(path := tree.cursor(self._destination, client_id)),"
        " before.nodes.get(path))\n"
        "            and not ((there := self.durable.cursors.get(client_id)) and steps_back(there, cursor))\n",
        "",
        promise="cursor-never-back",
    ),
    Mutant(
        "kept start ignored", INSTANCE, "None if self.meta.cursors() else self.meta.start or self._first_seen", "None"
    ),
    Mutant(
        "cursors not loaded",
        META,
        "        self._cursors = {client: cursor for",
        "        self._cursors = {} and {client: cursor for",
    ),
    Mutant(
        "switch not durable",
        META,
        "await self._backend.write((ServersChosen(addresses),))",
        "pass",
    ),
    # batches and streams
    Mutant(
        "batch ids begin again",
        "canal_ha/meta/batch_ids.py",
        "return self._of_clients.setdefault((destination, client_id), Numbers())",
        "return Numbers()",
    ),
    Mutant(
        "any id closes the oldest batch",
        BATCHES,
        '        self._check("ack", batch_id)\n        return self._open.pop(batch_id)[0]',
        "        return self._open.pop(next(iter(self._open)))[0]",
    ),
    Mutant(
        "roll-back forgets batches and goes on",
        STREAM,
        "        self._delivered = self._acked\n        if self._ring is None:\n",
        "        if True:\n",
    ),
    Mutant(
        "another filter keeps the old batches",
        STREAM,
        "        self._void_through = max(self._batches.ids, default=self._void_through)\n",
        "",
        promise="acked-not-again",
    ),
    Mutant(
        "another filter keeps the old ring",
        STREAM,
        "            self._abandon_ring()\n            self._delivered = self._acked = None\n        if opens:",
        "            return\n        if opens:",
    ),
    Mutant(
        "a moved cursor skips what was delivered",
        STREAM,
        "        self._delivered = self._acked = self._place = None\n",
        "        self._place = None\n",
    ),
    Mutant(
        "streams outlive their instance",
        INSTANCE,
        "            stream.close(NotRunningHere(self.config.destination))\n",
        "            pass\n",
    ),
    Mutant(
        "SUBSCRIBE opens a stream during the stop",
        INSTANCE,
        "        self._check()\n        known = next(",
        "        known = next(",
    ),
    Mutant(
        "ring frees one segment too many",
        RING,
        "through = bisect_right(self._firsts, end_seq + 1) - 1 if",
        "through = bisect_right(self._firsts, end_seq + 1) if",
    ),
    Mutant(
        "a batch has its segments in reverse order",
        TAKE,
        "    for segment, first, last in pieces:\n        views.append",
        "    for segment, first, last in reversed(pieces):\n        views.append",
    ),
    Mutant(
        "ring rolls back what it has dropped",
        RING,
        "            if self._dropped_seq > self.ack_seq:\n                return False\n",
        "",
    ),
    Mutant(
        "ring never lets a large transaction end",
        RING,
        "        return drained and self._whole_seq <= self.ack_seq and len(self._in_flight) < IN_FLIGHT_MOST",
        "        return False",
    ),
    Mutant(
        "a cursor can be inside a transaction",
        TAKE,
        "    return None\n\n\ndef batch_of",
        "    segment, _, last = pieces[-1]\n    return segment.position(last - 1)\n\n\ndef batch_of",
    ),
    Mutant(
        "acknowledged statements not marked as consumed",
        TAKE,
        "segment.position(done, consumed=segment.ends_event(done))",
        "segment.position(done)",
    ),
    # two connections of a client
    Mutant(
        "rows of a lost connection do not come again",
        CONVERSATION,
        "if newest in await self._shared.destinations.in_flight(identity):",
        "if False:",
        promise="no-gap",
    ),
    Mutant(
        "a roll-back feeds the GET of an older connection",
        CONSUMERS,
        "            if other is not connection:\n                end()",
        "            pass",
        promise="no-gap",
    ),
    Mutant(
        "GETs of an older connection take what a newer one took back",
        CONSUMERS,
        "return back is not None and back.connection is not connection",
        "return False",
        promise="no-gap",
    ),
)
"""Every mutant."""

IN_CI = (
    "lease from the answer",
    "own late write taken for an edit",
    "roll-back forgets batches and goes on",
    "released before the flush",
)
"""The mutants that CI catches on each push."""
