"""Which destinations a scan starts, stops and reloads."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.config.load import load_usable, look_at
from canal_ha.config.model import Stamp
from canal_ha.config.scan import DirectoryState, Reconfiguration, compare


def stamps(**times: int) -> dict[str, Stamp]:
    """Return the stamps of files that were modified at these times."""
    return {name: Stamp(time, time, 1, 1) for name, time in times.items()}


def test_every_situation() -> None:
    """New files start, changed ones (also older ones) reload, missing ones stop, equal ones stay."""
    known = {**stamps(same=5, newer=5, older=5, gone=5), "without_file": None, "got_file": None}
    seen = DirectoryState(stamps(same=5, newer=6, older=4, fresh=1, got_file=9))
    assert compare(known, seen, seen) == Reconfiguration(
        stop=("gone",), reload=("got_file", "newer", "older"), start=("fresh",)
    )
    assert compare(stamps(a=1), DirectoryState(stamps(a=1)), DirectoryState(stamps(a=1))) == Reconfiguration()


def test_a_file_that_changes_between_two_looks_is_left_to_the_next_scan() -> None:
    """Files that are half written, renamed into place or missing for a moment, in either look, cause no change."""
    known = stamps(written=1, renamed=1, back=1)
    before = DirectoryState(stamps(written=2, renamed=1, new=1))
    seen = DirectoryState(stamps(written=3, back=1, new=2))
    assert compare(known, before, seen) == Reconfiguration()
    assert compare(known, seen, before) == Reconfiguration()


def test_what_cannot_be_looked_at_does_not_stop() -> None:
    """A directory without rights, or a file system that is away, stops no destination."""
    known = stamps(a=1, b=1)
    hidden = DirectoryState(stamps(a=1), unreadable={"b": "no rights"})
    assert compare(known, hidden, hidden) == Reconfiguration()
    away = DirectoryState(problem="gone")
    assert compare(known, away, away) == Reconfiguration()
    assert compare(known, away, DirectoryState()) == Reconfiguration()


state = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3)).map(lambda times: stamps(**times))


@given(state, state)
def test_after_the_changes_both_agree(known: dict[str, Stamp], files: dict[str, Stamp]) -> None:
    """After the changes exactly the destinations of the directory run, and no change names one twice."""
    seen = DirectoryState(files)
    changes = compare(known, seen, seen)
    named = [*changes.stop, *changes.reload, *changes.start]
    assert len(named) == len(set(named))
    assert set(known) - set(changes.stop) | set(changes.start) == set(files)
    assert all(known[name] == files[name] for name in set(known) & set(files) - set(changes.reload))


@given(state, state, state)
def test_nothing_is_done_that_one_of_the_looks_contradicts(
    known: dict[str, Stamp], before: dict[str, Stamp], files: dict[str, Stamp]
) -> None:
    """Each destination that is named looked the same both times."""
    changes = compare(known, DirectoryState(before), DirectoryState(files))
    for name in (*changes.stop, *changes.reload, *changes.start):
        assert before.get(name) == files.get(name)


def test_the_state_of_a_directory(tmp_path: Path) -> None:
    """Sub-directories with an instance.properties in any letter case count; `spring`, hidden and empty ones do not."""
    main = tmp_path / "canal.properties"
    main.touch()
    for name in ("one/instance.properties", "two/Instance.Properties", "Spring/instance.properties", "metrics/x.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "instance.properties").touch()
    (tmp_path / "instance.properties").touch()
    os.utime(tmp_path / "one/instance.properties", ns=(7, 7))
    looked = look_at(tmp_path, main)
    assert set(looked.files) == {"one", "two"}
    assert looked.files["one"].modified_ns == 7
    assert (looked.unreadable, looked.problem) == ({}, "")
    assert looked.missing("metrics")


def test_what_cannot_be_read_is_not_taken_for_missing(tmp_path: Path) -> None:
    """After a link that leads nowhere, a missing directory or a missing main file, no destination counts as missing."""
    main = tmp_path / "canal.properties"
    main.touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a/instance.properties").symlink_to(tmp_path / "nowhere")
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    looked = look_at(tmp_path, main)
    assert looked.unreadable["b"] == f"the link {tmp_path}/b points to {tmp_path}/nowhere, which does not exist"
    assert looked.unreadable["a"].startswith(f"the link {tmp_path}/a/instance.properties points to ")
    assert not looked.missing("a")
    assert not looked.missing("b")
    nothing = look_at(tmp_path / "gone", main)
    assert "gone" in nothing.problem
    assert not nothing.missing("x")
    without_main = look_at(tmp_path, tmp_path / "gone.properties")
    assert (without_main.problem, without_main.main_gone) == ("", f"{tmp_path}/gone.properties does not exist")
    assert not without_main.missing("x")


def test_a_link_to_nowhere_is_told_at_the_start(tmp_path: Path) -> None:
    """The error names the link and its target."""
    (tmp_path / "canal.properties").write_text("canal.destinations = a\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/instance.properties").symlink_to("nowhere")
    (refused,) = load_usable(tmp_path, (), {}).refused
    assert str(refused.error) == f"{tmp_path}/a/instance.properties is a link to nowhere, which does not exist"


def test_a_link_to_itself_or_through_a_file_hides_no_other_destination(tmp_path: Path) -> None:
    """One bad link does not keep the node from seeing the rest of the directory."""
    main = tmp_path / "canal.properties"
    main.touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a/instance.properties").touch()
    (tmp_path / "b").symlink_to("b")
    (tmp_path / "c").symlink_to(main / "c")
    looked = look_at(tmp_path, main)
    assert looked.problem == ""
    assert looked.files.keys() == {"a"}
    assert looked.unreadable.keys() == {"b", "c"}
