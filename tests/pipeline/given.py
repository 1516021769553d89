"""Portions of given entries, for tests of targets without a server and without an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from canal_ha.model.position import LogPosition
from canal_ha.pipeline.description import Description, Evolve, Mode, TargetDescription
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from tests.spark.entries import frames

RUN = "6f1c2a9e"


def described(
    kind: str,
    mode: Mode,
    state: Path,
    options: Mapping[str, Any],
    *,
    evolve: Evolve = "evolve",
    keys: Mapping[str, tuple[str, ...]] | None = None,
) -> Description:
    """Return a pipeline of all tables into one target."""
    target = TargetDescription(kind, mode, evolve, options)
    return Description("shop.yaml", "shop", "embedded", str(state), ("*",), keys or {}, {}, target)


def portion(
    seq: int,
    last: int,
    entries: Sequence[bytes],
    *,
    destination: str = "d",
    run: str = RUN,
    server: str = "a",
    takes: Callable[[str, str], bool] = lambda schema, table: True,
    reader: ChangeReader | None = None,
) -> Portion:
    """Return a commit. seq: its number; last: offset of its last entry; server: whose binlog it is."""
    end = LogPosition("bin.000001", last, 1000, 1, server=server)
    return Portion(
        destination, frames(entries), Progress(run, seq, end, 1000), len(entries), True, reader or ChangeReader(takes)
    )
