"""What `canal-ha cursor` shows."""

from __future__ import annotations

from pathlib import Path

from canal_ha.cli.cursor import Chosen, describe
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.position import LogPosition


def test_a_clients_mark_cannot_steer_the_operators_terminal(tmp_path: Path) -> None:
    """A mark with line ends and control characters is shown with escapes, on its one line."""
    chosen = Chosen("example", 1001, CursorFiles(tmp_path), None, None)
    shown = describe(chosen, LogPosition("binlog.000001", 4, mark="\x1b[2J\nexample, client 7: \u202e"))
    _, mark = shown.split("\n")
    assert mark == r"mark of its client: \x1b[2J\nexample, client 7: \u202e"
