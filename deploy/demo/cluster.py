"""Two nodes and ZooKeeper: the running node is killed, later stopped, under writes; the client continues."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass

from deploy.demo import show
from deploy.demo.audit import Audit
from deploy.demo.parts import ClusterClient, Pair, events
from deploy.demo.standalone import DESTINATION, wait_for_dumps
from deploy.demo.verdict import Findings, compare
from deploy.demo.workload import SteadyWrites, Writer
from deploy.demo.zkcli import zkcli
from lab import Node, SqlServer, StartFailed, ZooKeeper, follow
from lab.node import PROGRAM

SESSION_S = 6  # canal.zookeeper.session.timeout, as it is by default
PROMISED_S = {"kill": SESSION_S + 2.0, "term": 1.0}
PATIENCE_S = 60.0  # on a busy machine

TREE = "/otter/canal"
PLACE = f"{TREE}/destinations/{DESTINATION}"
COUNTING = "1002"


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A take-over. began: time of the signal, s since 1970; seconds: from then to the next row."""

    began: float
    seconds: float


class Demonstration:
    """All running parts, and the steps of the demonstration in their order."""

    def __init__(self, server: SqlServer, zookeeper: ZooKeeper, stack: ExitStack) -> None:
        self.server = server
        self.hosts = zookeeper.hosts
        self.nodes = [
            Node({DESTINATION: follow(server)}, zk_servers=zookeeper.hosts, name=f"node-{letter}") for letter in "AB"
        ]
        self.pair = Pair(DESTINATION, self.nodes)
        self._stack = stack
        self._badly_ended: list[str] = []

    def start_nodes(self) -> Node:
        """Start both nodes at once; return the one that runs the destination."""
        show.headline("two nodes: canal-ha server --conf DIR, each with canal.zkServers in its canal.properties")
        for node in self.nodes:
            self._stack.callback(node.__exit__)
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        running = self.pair.running()
        show.say(f"Both nodes raced for the destination {DESTINATION!r}.")
        show.say(f"{name(running)} ({running.address}) won and runs it.")
        stand_by = self.pair.other(running)
        show.say(f"{name(stand_by)} ({stand_by.address}) stands by.")
        return running

    def tell_story(self, writer: Writer) -> tuple[ClusterClient, Audit]:
        """Print changes of every kind with a first client; return the counting client and its rows."""
        show.headline(f"a client: canal-ha client --zk {self.hosts} --destination {DESTINATION}")
        show.say("It asks ZooKeeper which node runs the destination. A second one, id 1002, counts rows.")
        counting = self._client("--client-id", COUNTING, "--format", "json", "--timeout", "100", output=subprocess.PIPE)
        audit = Audit(counting)
        printing = self._client("--timeout", "200", output=None)
        wait_for_dumps(self.server, 2, self.pair.running())
        writer.create()
        for _ in writer.story():
            time.sleep(0.4)
        self._all_arrived(writer, audit)
        time.sleep(1.0)
        printing.end()
        return counting, audit

    def kill(self, running: Node, counting: ClusterClient, audit: Audit, writer: Writer) -> TakeOver:
        """Kill the running node with SIGKILL."""
        stand_by = self.pair.other(running)
        show.headline(f"kill -9 {running.pid}      ({name(running)} crashes under writes)")
        show.say(
            f"It did not release its 'running' node: ZooKeeper removes it when the session of {SESSION_S} s expires."
        )
        show.say(f"{name(stand_by)} then takes over the destination, with the cursors stored in ZooKeeper.")
        before = len(writer.committed)
        began = time.time()
        running.kill()
        return self._watch(began, before, stand_by, counting, audit, writer)

    def hand_over(self, running: Node, counting: ClusterClient, audit: Audit, writer: Writer) -> TakeOver:
        """Stop the running node with SIGTERM: it writes its cursors, releases the destination and ends."""
        stand_by = self.pair.other(running)
        show.headline(f"kill -TERM {running.pid}      (an orderly stop of {name(running)}, as systemd does it)")
        show.say("It stores the cursors and releases 'running' at once: no node waits for a session to expire,")
        show.say("and no acknowledged row is delivered again.")
        before = len(writer.committed)
        began = time.time()
        os.kill(running.pid, signal.SIGTERM)
        taken = self._watch(began, before, stand_by, counting, audit, writer)
        self._end(running)
        return taken

    def restart(self, node: Node) -> None:
        """Start the killed node again."""
        show.headline(f"{name(node)} is started again")
        began = time.time()
        node.start()
        self.pair.wait_for(node, "running.standby", began)
        show.say(f"It is up after {time.time() - began:.1f} s, finds the destination taken, and stands by.")

    def judge(self, writer: Writer, audit: Audit, killed: TakeOver, handed_over: TakeOver) -> list[str]:
        """Print the figures; return the faults."""
        findings = compare(writer.committed, writer.starts, audit.arrivals, (killed.began, handed_over.began))
        same = audit.table == writer.table()
        show.headline("verdict")
        print_findings(findings)
        show.figure("take-over after SIGKILL", f"{killed.seconds:.2f} s", promise("kill", killed))
        show.figure("take-over after SIGTERM", f"{handed_over.seconds:.2f} s", promise("term", handed_over))
        show.say(f"the table rebuilt from what arrived is {'the same as' if same else 'DIFFERENT from'} the database's")
        for node in self.nodes:
            if node.alive():
                os.kill(node.pid, signal.SIGTERM)
                self._end(node)
        if not self._badly_ended:
            show.say("each stopped node ended in an orderly way")
        faults = findings.faults() + self._badly_ended
        if findings.redeliveries[1].rows:
            faults.append("rows were delivered again after the orderly stop")
        if not same:
            faults.append("the rebuilt table differs")
        return faults

    def settle(self, writer: Writer, audit: Audit) -> None:
        """After the last write, wait for missing rows, then a while for unexpected ones."""
        self._all_arrived(writer, audit)
        time.sleep(2.0)

    def _end(self, node: Node) -> None:
        """Wait for the end of a stopped node and note its exit code; a second signal would find no handler."""
        deadline = time.monotonic() + node.stop_timeout_s
        while node.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        node.kill()
        if node.exit_code:
            self._badly_ended.append(f"{name(node)} ended with code {node.exit_code}")

    def _client(self, *arguments: str, output: int | None) -> ClusterClient:
        client = ClusterClient(self.hosts, DESTINATION, *arguments, output=output)
        self._stack.enter_context(client)
        return client

    def _all_arrived(self, writer: Writer, audit: Audit) -> None:
        audit.wait(len(writer.committed), PATIENCE_S)

    def _watch(
        self, began: float, before: int, taker: Node, counting: ClusterClient, audit: Audit, writer: Writer
    ) -> TakeOver:
        """Wait for the next row from the new owner; print the steps of the take-over."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connected = counting.connected(taker, began)
            row = None if connected is None else audit.first_after(connected)
            if row is not None:
                break
            if time.monotonic() > deadline or not audit.alive():
                raise StartFailed(f"no row arrived from {taker.name}\n{self.pair.log_tails()}\n{counting.log_tail()}")
            time.sleep(0.02)
        meanwhile = len(writer.committed) - before
        claimed = [event.at for event in events(taker.log) if event.name == "running.claimed" and event.at >= began]
        for moment, what in (
            *((moment, f"{name(taker)} runs the destination") for moment in claimed[-1:]),
            (connected or began, f"the client is connected to {name(taker)}"),
            (row.at, f"the next row; {meanwhile:,} rows were written meanwhile and arrive now"),
        ):
            show.say(f"  {moment - began:6.2f} s   {what}")
        return TakeOver(began, row.at - began)


def run(server: SqlServer, zookeeper: ZooKeeper) -> bool:
    """Run the demonstration; return whether all checks passed."""
    with ExitStack() as stack:
        play = Demonstration(server, zookeeper, stack)
        first = play.start_nodes()
        second = play.pair.other(first)
        connection, other_connection = (stack.enter_context(server.connect()) for _ in range(2))
        writer = Writer(connection, show.statement)
        counting, audit = play.tell_story(writer)

        show.headline("the znodes")
        znodes(play.hosts)
        show.headline("steady writes over a second connection")
        with SteadyWrites(writer, other_connection, rows=10, pause_s=0.03):
            time.sleep(3)
            show.say(f"{len(writer.committed):,} rows are written, {len(audit.arrivals):,} are at the client")
            killed = play.kill(first, counting, audit, writer)
            time.sleep(2)
            show.headline("the znodes now")
            znodes(play.hosts)
            play.restart(first)
            show.headline("the cluster at a glance")
            status = show.command(["canal-ha", "status", "--zk", play.hosts], PROGRAM)
            handed_over = play.hand_over(second, counting, audit, writer)
            time.sleep(2)
            zkcli(play.hosts, f"get {PLACE}/running")
        play.settle(writer, audit)
        counting.end()
        audit.join(PATIENCE_S)
        faults = play.judge(writer, audit, killed, handed_over)
        if not status:
            faults.append("canal-ha status failed")
        show.say(
            f"\nFAILED: {'; '.join(faults)}\n{play.pair.log_tails()}\n{counting.log_tail()}" if faults else "\nPASSED"
        )
        return not faults


def znodes(hosts: str) -> None:
    """Print the znodes, the owner of the destination with its epoch, and the counting client's cursor."""
    zkcli(
        hosts,
        f"ls -R {TREE}",
        f"get {PLACE}/running",
        f"stat {PLACE} | grep dataVersion",
        f"get {PLACE}/{COUNTING}/cursor",
    )
    show.say("(dataVersion is the epoch. Each take-over adds one. Writes of an earlier epoch are refused.)")


def print_findings(findings: Findings) -> None:
    """Print the arrived and the written rows side by side."""
    after_crash, after_hand_over = findings.redeliveries
    where = "in one piece, from a transaction's start" if after_crash.whole else "NOT from a transaction's start"
    show.figure("rows written", findings.written)
    show.figure("rows received", findings.received)
    show.figure("rows lost", findings.lost)
    show.figure("rows duplicated", findings.duplicated + findings.unknown)
    show.figure("out of order", findings.out_of_order)
    show.figure("redelivered after SIGKILL", after_crash.rows, f"allowed; {where}" if after_crash.rows else "")
    show.figure("redelivered after SIGTERM", after_hand_over.rows, "" if not after_hand_over.rows else "NOT allowed")


def promise(kind: str, take_over: TakeOver) -> str:
    """Return the promised time and whether it was kept. A busy machine may be late without a fault."""
    late = take_over.seconds > PROMISED_S[kind]
    return f"promised: at most {PROMISED_S[kind]:.0f} s{'; LATE: is this machine busy?' if late else ''}"


def name(node: Node) -> str:
    """Return the node's name in the output."""
    return node.name.replace("-", " ")
