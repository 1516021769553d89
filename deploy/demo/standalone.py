"""One node without ZooKeeper: cursors in files, clients with a fixed address."""

from __future__ import annotations

import time

from deploy.demo import show
from deploy.demo.audit import Audit
from deploy.demo.verdict import compare
from deploy.demo.workload import Writer
from lab import Client, Node, SqlServer, StartFailed, follow
from lab.node import PROGRAM

DESTINATION = "example"


def wait_for_dumps(server: SqlServer, count: int, node: Node) -> None:
    """Wait until the node reads the binlog once for each of this many clients."""
    deadline = time.monotonic() + 30
    statement = "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    while server.query(statement)[0]["n"] < count:
        if time.monotonic() > deadline or not node.alive():
            raise StartFailed(f"the node does not read from the database\n{node.log_tail()}")
        time.sleep(0.05)


def run(server: SqlServer, rows: int) -> bool:
    """Run the demonstration against a database; return whether everything arrived exactly once and in order."""
    show.headline(f"one node: canal-ha server --conf DIR      (follows {server.address})")
    with Node({DESTINATION: follow(server)}) as node:
        show.say(f"listens on {node.address} after {node.start_seconds:.1f} s")
        show.headline(f"a client: canal-ha client --server {node.address} --destination {DESTINATION} --format pretty")
        counting = Client(node.address, DESTINATION, "--client-id", "1002", "--idle-exit", "8")
        with counting, server.connect() as connection:
            audit = Audit(counting)
            writer = Writer(connection, show.statement)
            with Client(
                node.address, DESTINATION, "--idle-exit", "3", "--timeout", "200", output_format="pretty", output=None
            ) as printing:
                wait_for_dumps(server, 2, node)
                writer.create()
                for _ in writer.story():
                    time.sleep(0.5)
                printing.wait()

            show.headline(
                f"{rows:,} rows inserted, some changed and deleted, counted by client id 1002 (--format json)"
            )
            began = time.time()
            writer.bulk(rows)
            written = time.time()
            audit.wait(len(writer.committed), 60)
            finished = audit.arrivals[-1].at if audit.arrivals else written
            show.say(f"written in {written - began:.1f} s; the last row arrived {finished - written:+.1f} s after that")
            show.headline("the node's own view")
            good = show.command(["canal-ha", "status", "--url", f"http://127.0.0.1:{node.admin_port}"], PROGRAM)
            audit.join(20)  # until the client was idle for a while, so that duplicates would arrive
            counting.wait()
            good = judge(writer, audit) and good
        node.stop()
        orderly = node.exit_code == 0
        show.say(f"the node ended {'in order' if orderly else f'with code {node.exit_code}'} when asked to")
        good = good and orderly
        show.say("\nPASSED" if good else f"\nFAILED\n{node.log_tail()}")
        return good


def judge(writer: Writer, audit: Audit) -> bool:
    """Print the figures; return whether they are correct."""
    findings = compare(writer.committed, writer.starts, audit.arrivals)
    same = audit.table == writer.table()
    show.headline("verdict")
    show.figure("rows written", findings.written)
    show.figure("rows received", findings.received)
    show.figure("rows lost", findings.lost)
    show.figure("rows duplicated", findings.duplicated + findings.unknown)
    show.figure("out of order", findings.out_of_order)
    show.figure("other entries", audit.statements, "statements that are not rows")
    show.say(f"the table rebuilt from what arrived is {'the same as' if same else 'DIFFERENT from'} the database's")
    return same and not findings.faults()
