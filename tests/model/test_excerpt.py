"""Texts from outside, as a terminal gets them."""

from __future__ import annotations

import pytest

from canal_ha.model.excerpt import EXCERPT_CHARACTERS, MESSAGE_CHARACTERS, message, one_line, some


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop.größe: 價格 🙂", "shop.größe: 價格 🙂"),
        ("é\x1b[2J", "é\\x1b[2J"),
        ("a\nERROR forged", "a\\nERROR forged"),
        ("a\rb\x9b\u202ec\ud800", "a\\rb\\x9b\\u202ec\\ud800"),
    ],
)
def test_a_message_cannot_steer_a_terminal(text: str, shown: str) -> None:
    """Only the characters that do so have escapes."""
    assert message(text) == shown


def test_a_message_of_several_lines_keeps_them_if_asked() -> None:
    """Other characters that steer have escapes."""
    assert message("a\n\x1b", lines=True) == "a\n\\x1b"


def test_what_a_library_says_on_several_lines_is_shown_on_one() -> None:
    """libpq writes a line break and a tab, delta-rs colours."""
    assert one_line(OSError("refused\n\tIs it \x1b[31m↳\x1b[0m running?\n")) == "refused Is it ↳ running?"


def test_a_message_cannot_fill_a_terminal() -> None:
    """The end of a long one is left out."""
    assert message("x" * 10_000_000) == "x" * MESSAGE_CHARACTERS + "…"


def test_names_cannot_steer_a_terminal() -> None:
    """They are ASCII without control characters; a backslash stays, so that a pattern can be copied."""
    assert (
        some(["a\x1b[2J", "b\nc", "d\x7f\x9b", "größe", r"shop\..*"])
        == r"a\x1b[2J, b\nc, d\x7f\x9b, gr\xf6\xdfe, shop\..*"
    )


def test_many_long_names_are_cut() -> None:
    """Five are shown."""
    assert some(["x" * 10_000] * 7) == ", ".join(["x" * (EXCERPT_CHARACTERS - 1) + "…"] * 5) + " and 2 more"
