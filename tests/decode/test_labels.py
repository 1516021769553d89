"""The labels of ENUM and SET columns, from a mysqlType text."""

from __future__ import annotations

import pytest

from canal_ha.client.rows import converted
from canal_ha.decode.labels import labelled, labels_of, with_labels


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("enum('a','b')", ("a", "b")),
        ("ENUM ('it''s','x,y','','(')", ("it's", "x,y", "", "(")),
        ("enum(0x61,'b ','c',b'1100100',0b1100101,0x66)", ("a", "b", "c", "d", "e", "f")),
        ("set('x ',0x79,0xc3a9)", ("x", "y", "é")),
        ("enum(0xE9,'x')", ("0xE9", "x")),
        ("enum('a ','a')", ("a ", "a")),
        ("set(' c ','d\t')", (" c", "d\t")),
        ("varchar(3)", ()),
        ("", ()),
    ],
)
def test_labels(text: str, labels: tuple[str, ...]) -> None:
    """Literals count as the labels that they are, and in their place (seen on MySQL 9.7 and MariaDB 10.11)."""
    assert labels_of(text) == labels


def test_labels_are_spelled_as_they_are_read() -> None:
    """Quotes are doubled; the type keeps its name."""
    assert with_labels("set(0x61)", ["it's", "b"]) == "set('it''s','b')"
    assert labels_of(with_labels("enum('z')", ["it's", "x,y", ""])) == ("it's", "x,y", "")


@pytest.mark.parametrize(("number", "several"), [(4, False), (8, True), (-1, False)])
def test_a_number_without_a_label_is_an_error(number: int, several: bool) -> None:
    """The declaration is that of another time. Rows show the number then, and do not lose the value."""
    with pytest.raises(ValueError, match="no value of a column with 3 labels"):
        labelled(number, ("a", "b", "c"), several=several)
    assert converted(str(number), 4, f"{'set' if several else 'enum'}('a','b','c')") == str(number)
