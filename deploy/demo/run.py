"""Start a database, a node and two clients; write; show what arrives; judge. Exit code 1 when anything is wrong."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from deploy.demo.audit import Audit
from deploy.demo.workload import Writer
from tests.real import Client, MariaDB, MySQL, Node, SqlServer, StartFailed, follow
from tests.real.node import PROGRAM

DESTINATION = "example"


def show(line: str) -> None:
    """Print a statement as it is sent to the database."""
    print(
        f"\n\033[1msql> {' '.join(line.split())}\033[0m" if sys.stdout.isatty() else f"\nsql> {' '.join(line.split())}"
    )
    sys.stdout.flush()


def headline(text: str) -> None:
    """Print what happens next."""
    print(f"\n=== {text}", flush=True)


def wait_for_dumps(server: SqlServer, count: int, node: Node) -> None:
    """Wait until the node reads the binlog once for each of so many clients."""
    deadline = time.monotonic() + 30
    statement = "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    while server.query(statement)[0]["n"] < count:
        if time.monotonic() > deadline or not node.alive():
            raise StartFailed(f"the node does not follow the database\n{node.log_tail()}")
        time.sleep(0.05)


def run(server: SqlServer, rows: int) -> bool:
    """Run the demonstration against a database; return whether everything arrived exactly once and in order."""
    headline(f"one node: canal-ha server --conf DIR      (follows {server.address})")
    with Node({DESTINATION: follow(server)}) as node:
        print(f"listens on {node.address} after {node.start_seconds:.1f} s")
        headline(f"a client: canal-ha client --server {node.address} --destination {DESTINATION} --format pretty")
        counting = Client(node.address, DESTINATION, "--client-id", "1002", "--idle-exit", "8")
        with counting, server.connect() as connection:
            audit = Audit(counting)
            writer = Writer(connection, show)
            with Client(
                node.address, DESTINATION, "--idle-exit", "3", "--timeout", "200", output_format="pretty", output=None
            ) as printing:
                wait_for_dumps(server, 2, node)
                writer.create()
                for _ in writer.story():
                    time.sleep(0.5)
                printing.wait()

            headline(f"{rows:,} rows inserted, some changed and deleted, counted by client id 1002 (--format json)")
            began = time.monotonic()
            writer.bulk(rows)
            written = time.monotonic()
            audit.wait(writer.committed.total(), 60)
            print(
                f"written in {written - began:.1f} s; the last row arrived {audit.finished - written:+.1f} s after that"
            )
            headline("canal-ha status")
            subprocess.run([PROGRAM, "status", "--url", f"http://127.0.0.1:{node.admin_port}"], check=True)
            audit.join(20)  # until the client has heard nothing for a while: duplicates would show up
            counting.wait()
            good = judge(writer, audit)
        node.stop()
        orderly = node.exit_code == 0
        print(f"the node ended {'in order' if orderly else f'with code {node.exit_code}'} when asked to")
        good = good and orderly
        print("\nPASSED" if good else f"\nFAILED\n{node.log_tail()}", flush=True)
        return good


def judge(writer: Writer, audit: Audit) -> bool:
    """Print the figures and whether they are as they must be."""
    lost = (writer.committed - audit.received).total()
    surplus = (audit.received - writer.committed).total()
    same = audit.table == writer.table()
    headline("verdict")
    print(f"rows written      {writer.committed.total():>10,}")
    print(f"rows received     {audit.received.total():>10,}")
    print(f"rows lost         {lost:>10,}")
    print(f"rows duplicated   {surplus:>10,}")
    print(f"out of order      {audit.out_of_order:>10,}")
    print(f"other entries     {audit.statements:>10,}   (statements that are not rows)")
    print(f"the table rebuilt from what arrived is {'the same as' if same else 'DIFFERENT from'} the database's")
    return not lost and not surplus and not audit.out_of_order and same


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="deploy/demo.sh", description=__doc__)
    parser.add_argument("--mysql", action="store_true", help="MySQL 9 instead of MariaDB")
    parser.add_argument("--rows", type=int, default=20_000, help="rows inserted in the counted part")
    arguments = parser.parse_args()
    try:
        with MySQL() if arguments.mysql else MariaDB() as server:
            headline(
                f"{type(server).__name__} {server.version} on {server.address}, started in {server.start_seconds:.1f} s"
            )
            return 0 if run(server, arguments.rows) else 1
    except StartFailed as failure:
        print(f"\ndemo: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything started is ended", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
