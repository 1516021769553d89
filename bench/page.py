"""Processor time of the page with 500 destinations of two clients each, in memory: python -m bench.page"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from statistics import median

from canal_ha.admin.cluster_view import SHOWN_MOST_S
from lab.desk import EXAMPLE, STREAM, Browser, Desk

DESTINATIONS = 500
ROUNDS = 20


def main() -> None:
    """Print the median for a picture that is made anew, and for one that is kept."""
    streams = tuple(replace(STREAM, client_id=client_id) for client_id in (1001, 1002))
    names = [f"shop-{number}" for number in range(DESTINATIONS)]
    desk = Desk(instances=[replace(EXAMPLE, destination=name, streams=streams) for name in names])
    browser = Browser(desk)
    browser.log_in("admin")
    new: list[float] = []
    kept: list[float] = []
    for _ in range(ROUNDS):
        desk.clock.advance(SHOWN_MOST_S + 1)
        for times in (new, kept):
            began = time.process_time()
            answer = browser.get("/")
            times.append(1000 * (time.process_time() - began))
    sys.stdout.write(
        f"{DESTINATIONS} destinations: {median(new):.0f} ms with a new picture, {median(kept):.0f} ms with a kept one;"
        f" {len(answer.body)} bytes\n"
    )


if __name__ == "__main__":
    main()
