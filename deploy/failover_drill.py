"""Crash the node that runs a destination, or stop it in an orderly way, and measure how long no node ran it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from canal_ha.errors import ConfigError
from deploy.nodes import LocalNode, Stuck, wait_for

PATIENCE_S = 120.0


def drill(nodes: list[LocalNode], destination: str, *, orderly: bool) -> float:
    """Return the seconds from the fault until another node reports the destination. Raises Stuck."""
    owner = next((node for node in nodes if destination in (node.runs() or ())), None)
    if owner is None:
        raise Stuck(f"none of these nodes runs {destination}; see `canal-ha status`")
    others = [node for node in nodes if node is not owner]
    if not any(node.runs() is not None and destination in node.destinations for node in others):
        raise Stuck(f"no node stands by for {destination}: start another node, else the drill is an outage")
    print(f"{destination} runs on {owner}: {'SIGTERM' if orderly else 'SIGKILL'}", flush=True)
    if orderly:
        owner.terminate()
    else:
        owner.kill()
    seconds = wait_for(
        lambda: any(destination in (node.runs() or ()) for node in others), PATIENCE_S, f"{destination} to run again"
    )
    taker = next(node for node in others if destination in (node.runs() or ()))
    print(f"{destination} runs on {taker} after {seconds:.2f} s", flush=True)
    owner.wait_for_end(PATIENCE_S)
    owner.start()
    print(f"{owner} is running again and stands by", flush=True)
    return seconds


def main() -> int:
    """Read the command line and run the drill; return 1 if the take-over was too slow."""
    parser = argparse.ArgumentParser(prog="deploy/failover-drill.sh", description=__doc__)
    parser.add_argument("destination")
    parser.add_argument("conf", nargs="+", type=Path, help="configuration directories of the nodes on this machine")
    parser.add_argument("--orderly", action="store_true", help="send SIGTERM instead of SIGKILL")
    parser.add_argument("--within", type=float, help="longest take-over, s (default: 1 if orderly, else session + 2)")
    arguments = parser.parse_args()
    try:
        nodes = [LocalNode(conf) for conf in arguments.conf]
        allowed = arguments.within or (1.0 if arguments.orderly else max(node.session_s for node in nodes) + 2.0)
        seconds = drill(nodes, arguments.destination, orderly=arguments.orderly)
    except (Stuck, ConfigError) as error:
        print(f"failover-drill: {error}", file=sys.stderr)
        return 1
    if seconds > allowed:
        print(f"failover-drill: {seconds:.2f} s is more than {allowed:.1f} s", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
