"""Names as parts of paths: one segment each, all different, never above the root."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from canal_ha.pipeline.paths import former, segment, without_login

NAMES = st.text(st.sampled_from("./\\~%2Faé字:? ") | st.characters(), max_size=64)


@given(NAMES)
def test_a_name_is_one_segment_below_the_root(name: str) -> None:
    """The segment does not change when it is decoded as part of a URL, as delta-rs does."""
    made = segment(name)
    assert PurePosixPath("/lake", made).parts == ("/", "lake", made)
    assert made not in (".", "..")
    assert not set(made) & set("/\\%?#:.\0")
    assert unquote(made) == made
    assert len(made) <= 200


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_different_names_have_different_segments(names: list[str]) -> None:
    """Two different names never share a segment."""
    assert segment(names[0]) != segment(names[1])


@given(st.text(st.sampled_from("abcXYZ019_$-"), min_size=1, max_size=64))
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    """Existing lakes keep their paths."""
    assert segment(name) == name == former(name, uri=False) == former(name, uri=True)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://AKIA:ab/cd@bucket/x", "s3://bucket/x"),
        ("s3://u:p@ss@bucket/x", "s3://bucket/x"),
        ("s3://u@v:p@ss/@bucket/x@y", "s3://y"),
        ("s3://user@bucket/x", "s3://bucket/x"),
        ("s3://bucket/a@b:c@d", "s3://bucket/a@b:c@d"),
        ("cannot open s3://u:p@bucket/x: no", "cannot open s3://bucket/x: no"),
        ("/lake/a@b", "/lake/a@b"),
    ],
)
def test_a_location_is_shown_without_its_login(uri: str, shown: str) -> None:
    """A password may have the characters that end a login; then more is hidden than needed."""
    assert without_login(uri) == shown


@pytest.mark.parametrize(
    ("name", "made"), [("a.b", "a~2Eb"), ("..", "~2E~2E"), ("é", "~C3~A9"), ("a~2Eb", "a~7E2Eb"), ("%2F", "~252F")]
)
def test_other_letters_are_escaped(name: str, made: str) -> None:
    """Each byte of a letter's UTF-8 form is escaped."""
    assert segment(name) == made


@pytest.mark.parametrize("name", ["字" * 64, "x" * 201, ""])
def test_long_names_end_in_a_digest(name: str) -> None:
    """Segments of long names fit into a file system. The mark before the digest is not an escape."""
    assert "~-" in segment(name)
    assert segment(name) != segment(name + "x")


@pytest.mark.parametrize("name", ["a.b", "é", "a b", "a#b", "a?b", "a:b", "a~b", "a%b", "100%", "~", "a~2E b"])
def test_the_former_path_of_a_name_is_the_name(name: str) -> None:
    """In a URI a name with `?` or `#` has no former path, because these characters end the path."""
    assert former(name, uri=False) == name
    assert former(name, uri=True) == (None if "?" in name or "#" in name else name)


@pytest.mark.parametrize("name", ["a/b", "a\\b", "..", ".", "", "a%2Fb", "..%2Fb", "a%41", "a\tb", "a\x7f"])
def test_names_that_were_no_segment_have_no_former_path(name: str) -> None:
    """Names with a separator, even an encoded one, have no former path."""
    assert former(name, uri=False) is None


@given(NAMES, NAMES)
@example("", ":::" + "𐀀" * 16)  # its segment is cut in the middle of an escape
@example("", ":" * 2 + "𐀀" * 16)
def test_no_former_path_is_the_path_of_another_name(name: str, other: str) -> None:
    """If two names shared a path, one table would be merged into another."""
    assert former(segment(other), uri=False) in (None, other)
    assert former(name, uri=False) != segment(other) or name == other
