"""Texts from outside, as a terminal gets them."""

from __future__ import annotations

import pytest

from canal_ha.model.excerpt import MESSAGE_CHARACTERS, message


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


def test_a_message_cannot_fill_a_terminal() -> None:
    """The end of a long one is left out."""
    assert message("x" * 10_000_000) == "x" * MESSAGE_CHARACTERS + "…"
