"""Start a database and a cluster or one node, write, and check the arriving rows. Exit code 1 on any fault."""

from __future__ import annotations

import argparse
import sys

from deploy.demo import cluster, standalone
from deploy.demo.show import headline, say
from lab import MariaDB, MySQL, SqlServer, StartFailed, ZooKeeper


def play_cluster(server: SqlServer, *, with_spark: bool) -> bool:
    """Start ZooKeeper and the database at once, then run the cluster."""
    zookeeper = ZooKeeper()
    zookeeper.launch()
    with zookeeper, server:
        introduce(server)
        say(f"ZooKeeper on {zookeeper.address}")
        if with_spark:
            from deploy.demo import spark  # imported here because it needs the packages of `install.sh spark`

            return spark.run(server, zookeeper)
        return cluster.run(server, zookeeper)


def play_standalone(server: SqlServer, rows: int) -> bool:
    """Start the database, then one node."""
    with server:
        introduce(server)
        return standalone.run(server, rows)


def introduce(server: SqlServer) -> None:
    """Print the database's name, version and address."""
    headline("the parts, in temporary directories and on free ports")
    say(f"{type(server).__name__} {server.version} on {server.address}")


def main() -> int:
    """Read the command line and run the demonstration."""
    parser = argparse.ArgumentParser(prog="deploy/demo.sh", description=__doc__)
    parser.add_argument("--mysql", action="store_true", help="use MySQL 9 instead of MariaDB")
    parser.add_argument("--standalone", action="store_true", help="run one node without ZooKeeper instead of a cluster")
    parser.add_argument("--spark", action="store_true", help="add a Spark job that writes a Delta table")
    parser.add_argument("--rows", type=int, default=20_000, help="with --standalone: number of rows to insert")
    arguments = parser.parse_args()
    server = MySQL() if arguments.mysql else MariaDB()
    try:
        if arguments.standalone:
            good = play_standalone(server, arguments.rows)
        else:
            good = play_cluster(server, with_spark=arguments.spark)
    except StartFailed as failure:
        print(f"\ndemo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; all started processes ended", file=sys.stderr)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
