"""What a pipeline keeps of a snapshot's rows that its target has."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.errors import PipelineFailed
from canal_ha.model.position import LogPosition
from canal_ha.pipeline import digests
from canal_ha.pipeline.digests import KeptDigests
from canal_ha.pipeline.progress import Progress


def progress(seq: int, offset: int = 4) -> Progress:
    """Return a progress."""
    return Progress("r", seq, LogPosition("bin.000001", offset), 1000)


def test_digests_of_commits_that_the_target_has(tmp_path: Path) -> None:
    """Those of a commit that was interrupted do not count, also if another one gets its number."""
    kept = KeptDigests(tmp_path / "state", "d")
    assert kept.of(progress(0)) == []
    kept.keep(progress(1), [b"a", b"b"])
    kept.keep(progress(2), [b"c"])
    kept.keep(progress(3), [b"d"])
    again = KeptDigests(tmp_path / "state", "d")
    assert again.of(progress(2)) == [b"a", b"b", b"c"]
    again.keep(progress(3), [b"e"])
    assert KeptDigests(tmp_path / "state", "d").of(progress(3)) == [b"a", b"b", b"c", b"e"]


def test_another_process_on_another_machine_makes_the_file_void(tmp_path: Path) -> None:
    """Its newest commit is not the target's."""
    for other in (progress(5), progress(3, offset=5)):
        kept = KeptDigests(tmp_path, "d")
        kept.keep(progress(3), [b"a"])
        assert kept.of(other) == []
        assert kept.of(progress(3)) == []


def test_a_large_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it never grows beyond a bound; the end of an interrupted write is ignored."""
    monkeypatch.setattr(digests, "_LARGEST", 500)
    monkeypatch.setattr(digests, "DIGESTS_KEPT", 5)
    kept = KeptDigests(tmp_path, "d")
    for seq in range(1, 101):
        kept.keep(progress(seq), [bytes([seq, 1]), bytes([seq, 2])])
    file = tmp_path / "d.digests"
    assert file.stat().st_size < 1000
    file.write_text(file.read_text() + '{"seq": 101, "la')
    assert (
        KeptDigests(tmp_path, "d").of(progress(100))
        == [bytes([seq, part]) for seq in range(98, 101) for part in (1, 2)][1:]
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineFailed, match="state"):
        KeptDigests(tmp_path / "file", "d").keep(progress(1), [b"a"])
