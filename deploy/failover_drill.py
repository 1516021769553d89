"""Let the node that runs a destination crash (or stop in order), and measure how long nobody ran it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from canal_ha.errors import ConfigError
from deploy.nodes import LocalNode, Stuck, wait_for

PATIENCE_S = 120.0


def drill(nodes: list[LocalNode], destination: str, *, orderly: bool) -> float:
    """Seconds from the fault until another node says that it runs the destination. Raises Stuck."""
    owner = next((node for node in nodes if destination in (node.runs() or ())), None)
    if owner is None:
        raise Stuck(f"none of these nodes runs {destination}; see `canal-ha status`")
    others = [node for node in nodes if node is not owner]
    if not any(node.runs() is not None and destination in node.destinations for node in others):
        raise Stuck(f"nobody stands by for {destination}: the drill would be an outage")
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
    wait_for(lambda: owner.process() is None or owner.status(), PATIENCE_S, f"the end of {owner}")
    owner.start()
    print(f"{owner} is back and stands by", flush=True)
    return seconds


def main() -> int:
    """Read the command line and drill; 1 when it took longer than allowed."""
    parser = argparse.ArgumentParser(prog="deploy/failover-drill.sh", description=__doc__)
    parser.add_argument("destination")
    parser.add_argument("conf", nargs="+", type=Path, help="configuration directories of the nodes on this machine")
    parser.add_argument("--orderly", action="store_true", help="SIGTERM instead of SIGKILL")
    parser.add_argument("--within", type=float, help="seconds allowed (default: 1 orderly, else session time-out + 2)")
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
