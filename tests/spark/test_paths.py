"""Names as parts of paths: one segment each, no two alike, never above the root."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.spark.sinks.paths import former, segment

NAMES = st.text(st.sampled_from("./\\~%2Faé字:? ") | st.characters(), max_size=64)


@given(NAMES)
def test_a_name_is_one_segment_below_the_root(name: str) -> None:
    """Also where it is decoded as part of a URL, as delta-rs does."""
    made = segment(name)
    assert PurePosixPath("/lake", made).parts == ("/", "lake", made)
    assert made not in (".", "..")
    assert not set(made) & set("/\\%?#:.\0")
    assert unquote(made) == made
    assert len(made) <= 200


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_different_names_have_different_segments(names: list[str]) -> None:
    """Whatever they hold."""
    assert segment(names[0]) != segment(names[1])


@given(st.text(st.sampled_from("abcXYZ019_$-"), min_size=1, max_size=64))
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    """Lakes that exist keep their paths."""
    assert segment(name) == name == former(name)


@pytest.mark.parametrize(
    ("name", "made"), [("a.b", "a~2Eb"), ("..", "~2E~2E"), ("é", "~C3~A9"), ("a~2Eb", "a~7E2Eb"), ("%2F", "~252F")]
)
def test_other_letters_are_escaped(name: str, made: str) -> None:
    """Byte by byte of UTF-8."""
    assert segment(name) == made


@pytest.mark.parametrize("name", ["字" * 64, "x" * 201, ""])
def test_long_names_end_in_a_digest(name: str) -> None:
    """They fit into a file system, and the mark of the digest is no escape."""
    assert "~-" in segment(name)
    assert segment(name) != segment(name + "x")


@pytest.mark.parametrize(("name", "path"), [("a.b", "a.b"), ("é", "é"), ("a/b", None), ("..", None), ("a%2F", None)])
def test_the_former_path_of_a_name(name: str, path: str | None) -> None:
    """Only names that were one segment had one."""
    assert former(name) == path
