"""The command: rounds on each server, and a table at the end."""

from __future__ import annotations

import argparse
import sys
import time
from typing import get_args

from lab.differential.dialect import FEATURES, Dialect, without
from lab.differential.round import Image, Metadata, Round
from lab.differential.tally import Tally
from lab.mysql import MariaDB, MySQL, MySQL56, SqlServer

SERVERS: dict[str, type[SqlServer]] = {"mysql": MySQL, "mariadb": MariaDB, "mysql56": MySQL56}
METADATA: dict[str, tuple[Metadata, ...]] = {
    "mysql": ("MINIMAL", "FULL", "CHANGING", "MINIMAL"),
    "mariadb": ("MINIMAL", "FULL", "CHANGING", "NO_LOG"),
    "mysql56": ("MINIMAL",) * 4,
}
IMAGES: tuple[Image, ...] = ("FULL", "MINIMAL", "NOBLOB")
ROUND = 500
"""Statements of one round."""
_UNLOGGED = 5


def run(
    name: str,
    seed: int,
    statements: int,
    features: frozenset[str],
    metadata: Metadata | None = None,
    image: Image | None = None,
) -> Tally:
    """Run rounds on one server until there are so many statements; return their counts.

    name: of SERVERS.
    seed: of the first round; the next rounds have the next numbers.
    statements: of all rounds.
    features: that are turned on.
    metadata, image: None for each in turn.
    """
    total = Tally()
    make = SERVERS[name]
    old = make is MySQL56  # with GTIDs it refuses CREATE TABLE ... SELECT
    with make(gtid=not old, extra=["--max-binlog-size=1G", "--max-connections=300"]) as server:
        while total.statements < statements:
            # unlogged DDL excuses every refusal, so most rounds have none
            own = features if seed % _UNLOGGED == 0 else features - {"unlogged"}
            images = image or IMAGES[seed // 4 % len(IMAGES)]
            if make is MariaDB and images != "FULL":
                own -= {"partial_replace", "virtual"} if images == "MINIMAL" else {"partial_replace"}
            if old and images != "FULL":
                own -= {"no_columns"}
            dialect = Dialect(make.flavor, old, own)
            mode = metadata or METADATA[name][seed % 4]
            count = min(ROUND, statements - total.statements)
            began = time.monotonic()
            tally = Round(server, dialect, seed, count, mode, images).run()
            total.add(tally)
            print(
                f"{name}, seed {seed}, metadata {mode}, image {images}: {tally.statements} statements,"
                f" {len(tally.failures)} failures, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            for failure in tally.failures:
                print(failure, flush=True)
            seed += 1
    return total


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if a row was wrong, or refused without an explanation."""
    parser = argparse.ArgumentParser(prog="python -m lab.differential", description=__doc__)
    parser.add_argument("--server", action="append", choices=SERVERS, help="a server; default: each")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--statements", type=int, default=20_000, help="on each server")
    parser.add_argument("--metadata", choices=get_args(Metadata), help="default: each in turn")
    parser.add_argument("--image", choices=get_args(Image), help="default: each in turn")
    text = "; ".join(f"{name}: {what}" for name, what in FEATURES.items())
    parser.add_argument("--off", action="append", default=[], help=f"turn a feature off. {text}")
    options = parser.parse_args(arguments)
    features = without(*options.off)
    tables, failures = [], 0
    for name in options.server or SERVERS:
        tally = run(name, options.seed, options.statements, features, options.metadata, options.image)
        tables.append(tally.table(name))
        failures += len(tally.failures)
    print("\n".join(tables))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
