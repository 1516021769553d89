"""Start a database, a node and a client, and change a row every second until Ctrl-C. deploy/playground.sh runs it."""

from __future__ import annotations

import argparse
import itertools
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from deploy.demo.show import headline, say, statement
from lab import Client, MariaDB, Node, SqlServer, StartFailed, ZooKeeper, follow
from lab.mysql import ADMIN
from lab.node import PROGRAM

DESTINATION = "example"
TABLE = "shop.orders"
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Leslie", "Frances", "Margaret", "Radia")
CREATE = f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, customer VARCHAR(60), paid BOOLEAN)"
PAUSE_S = 1.0
KEPT = 3  # rows of the table, so that a newcomer soon sees a DELETE


@dataclass(frozen=True, slots=True)
class Playground:
    """What runs, each on a free port of this machine."""

    server: SqlServer
    node: Node
    client: Client

    def describe(self) -> str:
        """Return what a person can do with it."""
        url = f"http://127.0.0.1:{self.node.admin_port}"
        mysql = f"MYSQL_PWD={ADMIN} mysql --host=127.0.0.1 --port={self.server.port} --user={ADMIN} shop"
        program = shlex.quote(PROGRAM)  # in the virtual environment, which the reader's shell may not have activated
        return (
            f"the page of the cluster:  {url}/\n"
            f"your own statements:      {mysql}\n"
            f"the status:               {program} status --url {url}\n"
            f"one more client:          {program} client --server {self.node.address} --destination {DESTINATION}"
            " --client-id 1002\n"
            "Ctrl-C ends everything."
        )

    def fault(self) -> str:
        """Return why it cannot go on; "" while it can."""
        if not self.server.alive():
            return f"the database has ended\n{self.server.log_tail()}"
        if not self.node.alive():
            return f"the node has ended\n{self.node.log_tail()}"
        if self.client.process.poll() is not None:
            return f"the client has ended with code {self.client.process.returncode}"
        return ""


def start(parts: ExitStack) -> Playground:
    """Start everything. parts: end it. Raises StartFailed."""
    headline("starting, in temporary directories and on free ports")
    server = parts.enter_context(MariaDB())
    say(f"MariaDB {server.version} on {server.address}")
    servers = ""
    if missing := ZooKeeper.missing():
        say(f"without ZooKeeper, because {missing} is missing: the node keeps cursors in a file")
    else:
        servers = parts.enter_context(ZooKeeper()).hosts
        say(f"ZooKeeper on {servers}")
    server.execute("CREATE DATABASE shop", CREATE)
    journal, offset = server.position()
    properties = {"canal.instance.master.journal.name": journal, "canal.instance.master.position": str(offset)}
    node = Node({DESTINATION: follow(server, properties)}, zk_servers=servers, wait_for={DESTINATION})
    parts.enter_context(node)
    parts.callback(node.stop)  # in order, before the context of the node kills what is left
    say(f"canal-ha on {node.address}")
    client = parts.enter_context(Client(node.address, DESTINATION, output=None))
    return Playground(server, node, client)


def changes() -> Iterator[str]:
    """Yield statements for ever; the table stays small."""
    for number in itertools.count(1):
        yield f"INSERT INTO {TABLE} VALUES ({number}, '{NAMES[number % len(NAMES)]}', FALSE)"
        yield f"UPDATE {TABLE} SET paid = TRUE WHERE id = {number}"
        if number > KEPT:
            yield f"DELETE FROM {TABLE} WHERE id = {number - KEPT}"


def play(playground: Playground, seconds: float) -> None:
    """Change rows until Ctrl-C, or for this many seconds. Raises StartFailed if a part ends."""
    until = time.monotonic() + seconds
    with playground.server.connect() as connection, connection.cursor() as cursor:
        for line in changes():
            statement(line)
            cursor.execute(line)
            time.sleep(PAUSE_S)
            if fault := playground.fault():
                raise StartFailed(fault)
            if time.monotonic() >= until:
                return


def main() -> int:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(prog="deploy/playground.sh", description="A database, a node and a client to try.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end by itself; default: at Ctrl-C")
    seconds = parser.parse_args().seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as parts:
            playground = start(parts)
            headline("it runs; the client prints each change")
            say(playground.describe())
            play(playground, seconds)
    except StartFailed as failure:
        print(f"\nplayground: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    say("\nplayground: everything has ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
