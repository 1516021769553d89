"""Runs a pipeline in a process of its own: `python -m tests.pipeline.driver DESCRIPTION.json [--once] [--crash=N]`.

With --crash, the process kills itself behind its Nth commit with rows, before it acknowledges.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canal_ha.errors import CanalError
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.engine import PipelineEngine
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.targets import open_target
from lab.process import spawn
from tests.pipeline.copies import Copies

ROOT = Path(__file__).resolve().parents[2]


def described(
    directory: Path, source: Mapping[str, object], kind: str, mode: str = "mirror", **options: Any
) -> Description:
    """Return a description of a pipeline of all tables. options: of the target; `tables` and `keys` of the pipeline."""
    tables, keys = options.pop("tables", ("*",)), options.pop("keys", {})
    evolve = options.pop("evolve", "evolve")
    return Description(
        file=str(directory / "pipeline.yaml"),
        name="test",
        engine="embedded",
        state=str(directory / "state"),
        tables=tuple(tables),
        keys=keys,
        source={name: str(value) for name, value in source.items()},
        target=TargetDescription(kind, mode, evolve, {"path": str(directory / kind), **options}),  # type: ignore[arg-type]
    )


class Pipeline:
    """A pipeline in a process; as a context manager it ends with the block."""

    def __init__(self, description: Description, *, once: bool = False, crash: int = 0) -> None:
        """Start it. crash: number of the commit behind which it dies; 0: it lives."""
        file = Path(description.file).with_suffix(".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        target = description.target
        body = {
            **{name: getattr(description, name) for name in ("name", "state", "tables", "keys", "source")},
            "target": [target.kind, target.mode, target.evolve, dict(target.options)],
        }
        file.write_text(json.dumps(body))
        self.log = file.with_suffix(".log")
        command = [sys.executable, "-m", "tests.pipeline.driver", str(file), *(["--once"] if once else [])]
        command += [f"--crash={crash}"] if crash else []
        with self.log.open("ab") as output:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.process = spawn(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

    def wait(self, timeout_s: float = 120.0) -> int:
        """Return the exit code. Raises AssertionError with the log's end."""
        try:
            return int(self.process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the pipeline still runs\n{self.tail()}") from None

    def tail(self) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def run_once(description: Description) -> None:
    """Run a pipeline up to the present end of the binlog, in this process."""
    engine(description).run(once=True)


def engine(description: Description, crash: int = 0) -> PipelineEngine:
    """Return the engine of a pipeline; the target `copies` is the tests' own. crash: see the module."""
    target = Copies(description) if description.target.kind == "copies" else open_target(description)
    if crash:
        commit, left = target.commit, iter(range(crash - 1, -1, -1))

        def dying(portion: Portion) -> None:
            commit(portion)
            if portion.rows and not next(left):
                os.kill(os.getpid(), signal.SIGKILL)

        target.commit = dying  # type: ignore[method-assign]
    return PipelineEngine(description, target)


def _main(file: str, *flags: str) -> int:
    logging.basicConfig(level=logging.INFO)  # tests wait for events in the log
    body = json.loads(Path(file).read_text())
    target = TargetDescription(*body.pop("target"))
    body["tables"] = tuple(body["tables"])
    description = Description(file=file, engine="embedded", target=target, **body)
    crash = next((int(flag.partition("=")[2]) for flag in flags if flag.startswith("--crash=")), 0)
    try:
        engine(description, crash).run(once="--once" in flags)
    except CanalError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 1
    print("ended", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
