"""Runs all benchmarks with the peers on real databases: `bash bench/run.sh`.

Prints the goals with their measured values and writes report.json, report.md and scaling.svg into a directory. With
--publish it also updates the checkout: bench/report.json, docs/performance.md between its marks, docs/scaling.svg.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from pathlib import Path

from bench import goals, machine, measure, peers, picture, report, workloads
from bench.latency import Latency, latency
from bench.scaling import Scaling, scale
from bench.suite import Suite
from canal_ha.decode import kernel

CHECKOUT = Path(__file__).parent.parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
QUICK = 5  # this many times fewer rows
SCALING_SHARE = 0.15  # of the rows of A, for each of up to eight readers


def main() -> int:
    """Read the command line, measure and report. Return 1 if one of our readers has no figures."""
    options = _options()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    missing = dict(text.partition("=")[::2] for text in options.missing)
    wanted = frozenset(options.peers.split(",")) if options.peers else frozenset()
    rows = options.rows or (2_000_000 // QUICK if options.quick else 2_000_000)
    rounds = options.rounds or (3 if options.quick else 5)
    if kernel.BUILD != "compiled":
        say("the kernel is interpreted: an installation with a compiler is faster")
    samples = measure.Samples()
    batch_sizes: dict[str, int] = {}
    latencies: list[Latency] = []
    scalings: list[Scaling] = []
    servers = [workloads.server(database) for database in options.databases.split(",")]
    present = wanted - missing.keys()
    for server in servers:
        with server:
            suite = Suite(server, present, rounds, say, samples, batch_sizes)
            latencies += latency(suite, 2500 if options.quick else 5000)
            for name in options.workloads:
                share = workloads.WORKLOADS[name].share
                say(f"{server.flavor}: workload {name}")
                written = workloads.write(server, name, int(rows * share))
                say(f"written: {written.rows:,} rows, {written.size_bytes / 1e6:.0f} MB of binlog")
                suite.run(written)
                if name == "A" and server is servers[-1]:
                    scalings += scale(suite, written, max(int(rows * SCALING_SHARE), 1))
                workloads.forget(server)
    spark = _spark(rows, rounds // 2 + 1, say) if options.spark else None
    names = [str(server.flavor) for server in servers]
    run = report.Run(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        rows=rows,
        rounds=rounds,
        seconds=time.monotonic() - began,
        machine=machine.machine(),
        versions=machine.versions(servers, present),
        databases=names,
        missing=missing,
        batch_sizes=batch_sizes,
        samples=samples,
        latencies=latencies,
        scalings=scalings,
        goals=goals.reached(samples, latencies, spark, names),
    )
    _write(run, Path(options.output), publish=options.publish)
    print("\n" + report.goals_table(run.goals))
    for name, reason in {**run.missing, **samples.failed}.items():
        print(f"not measured: {name}: {reason.splitlines()[-1] if reason else 'no reason given'}")
    return 1 if samples.failed.keys() & {"ingest", "count", "arrow", "rows"} else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(peers.NAMES), help="default: %(default)s")
    parser.add_argument("--missing", action="append", default=[], metavar="PEER=WHY", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help="rows of workload A; default 2,000,000")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--quick", action="store_true", help="use 400,000 rows and 3 rounds")
    parser.add_argument("--databases", default="mariadb,mysql", help="default: %(default)s")
    parser.add_argument("--workloads", default="ABCDE", help="default: %(default)s")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="skip the pipeline on Spark")
    parser.add_argument("--output", default="bench/results", help="output directory; default: %(default)s")
    parser.add_argument("--publish", action="store_true", help="update the committed report")
    return parser.parse_args()


def _spark(rows: int, rounds: int, say: measure.Say) -> float | None:
    """Return the ratio of bench/spark_rates.py for the shape `table`."""
    command = measure.python("bench.spark_rates", rows, "--rounds", rounds, "--shapes", "table")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("table "):
            say(f"Spark: {line}")
            return float(line.split()[-1])
    say(f"Spark: no figures\n{done.stderr[-1000:]}")
    return None


def _write(run: report.Run, directory: Path, *, publish: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    data = json.dumps(run.as_json(), indent=1) + "\n"
    drawing = picture.svg(run.scalings)
    text = report.markdown(run, "scaling.svg")
    (directory / "report.json").write_text(data)
    (directory / "report.md").write_text(text)
    (directory / "scaling.svg").write_text(drawing)
    if publish:
        (CHECKOUT / "bench" / "report.json").write_text(data)
        (CHECKOUT / "docs" / "scaling.svg").write_text(drawing)
        page = CHECKOUT / "docs" / "performance.md"
        page.write_text(renewed(page.read_text(), text))


def renewed(page: str, text: str) -> str:
    """Return a page with `text` between its marks."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(main())
