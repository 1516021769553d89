"""Which destinations start, stop and reload."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.config.load import conf_state
from canal_ha.config.scan import Changes, compare


def test_every_situation_of_the_specification() -> None:
    """New files start, changed ones reload (also backwards), vanished ones stop, equal ones stay."""
    known = {"same": 5, "newer": 5, "older": 5, "gone": 5, "without_file": 0, "got_file": 0}
    seen = {"same": 5, "newer": 6, "older": 4, "fresh": 1, "got_file": 9}
    assert compare(known, seen) == Changes(stop=("gone",), reload=("got_file", "newer", "older"), start=("fresh",))
    assert not compare({"a": 1}, {"a": 1})


state = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3))


@given(state, state)
def test_after_the_changes_both_agree(known: dict[str, int], seen: dict[str, int]) -> None:
    """Doing what is said leaves exactly the destinations of the directory; nothing is named twice."""
    changes = compare(known, seen)
    named = [*changes.stop, *changes.reload, *changes.start]
    assert len(named) == len(set(named))
    assert set(known) - set(changes.stop) | set(changes.start) == set(seen)
    assert all(known[name] == seen[name] for name in set(known) & set(seen) - set(changes.reload))


def test_the_state_of_a_directory(tmp_path: Path) -> None:
    """Sub-directories with an instance.properties in any case count; `spring`, hidden and empty ones do not."""
    for name in ("one/instance.properties", "two/Instance.Properties", "Spring/instance.properties", "metrics/x.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "instance.properties").touch()
    (tmp_path / "instance.properties").touch()
    os.utime(tmp_path / "one/instance.properties", ns=(7, 7))
    assert set(conf_state(tmp_path)) == {"one", "two"}
    assert conf_state(tmp_path)["one"] == 7
    assert conf_state(tmp_path / "gone") == {}
