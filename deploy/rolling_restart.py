"""Restart nodes one after the other, so that each destination only pauses for its hand-over."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from canal_ha.errors import ConfigError
from deploy.nodes import LocalNode, Stuck, everything_runs, wait_for

SETTLED_S = 60.0


def restart(nodes: list[LocalNode]) -> None:
    """Restart each node after all destinations run again. Raises Stuck at the first problem."""
    missing = [str(node) for node in nodes if node.runs() is None]
    if missing:
        raise Stuck(f"no node was restarted, because these nodes do not answer: {', '.join(missing)}")
    for node in nodes:
        others = [other for other in nodes if other is not node]
        began = time.monotonic()
        ran = ", ".join(sorted(node.runs() or ())) or "nothing"
        node.stop()
        moved_s = wait_for(
            lambda others=others: everything_runs(others),  # type: ignore[misc]  # mypy knows no defaults of lambdas
            SETTLED_S,
            "all destinations to run on the other nodes; see `canal-ha status`",
        )
        node.start()
        wait_for(lambda: everything_runs(nodes), SETTLED_S, "all destinations to run")
        print(
            f"{node}: ran {ran}; taken over {moved_s:.2f} s after its end; back after {time.monotonic() - began:.1f} s"
        )


def main() -> int:
    """Read the command line and restart the nodes."""
    parser = argparse.ArgumentParser(prog="deploy/rolling-restart.sh", description=__doc__)
    parser.add_argument("conf", nargs="+", type=Path, help="configuration directories of the nodes on this machine")
    arguments = parser.parse_args()
    if len(arguments.conf) < 2:
        parser.error("a single node cannot hand over its destinations: restart it directly")
    try:
        restart([LocalNode(conf) for conf in arguments.conf])
    except (Stuck, ConfigError) as error:
        print(f"rolling-restart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
