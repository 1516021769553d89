"""Each kind of column has a writer for its values, and a kind without one is an error."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from canal_ha.decode import types
from canal_ha.decode.kernel import kinds
from canal_ha.errors import MalformedEvent
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab.dump import Dump, decoder, entries

SOURCE = Path(__file__).parents[2] / "canal_ha" / "decode" / "kernel" / "kinds.py"


def column_kinds() -> dict[str, int]:
    """Return the first group of constants in kinds.py; the next group starts again at a low number."""
    found: dict[str, int] = {}
    for node in ast.parse(SOURCE.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            number = ast.literal_eval(node.value)
            if number <= len(found):
                break
            found[node.targets[0].id] = number
    return found


KINDS = column_kinds()


def written(kind: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text of a small value. The column has this kind, whatever its type in the table map is."""
    value = {kinds.PREFIXED: b"\0", kinds.NOTHING: b""}.get(kind, b"\x80" + bytes(7))
    column = types.CellType(kind, len(value), 1, 1, text=kinds.UTF8, precision=4, decimals=2)
    monkeypatch.setattr(types, "reading", lambda *type_of_column: column)
    dump = Dump().format().begin().table().rows(30, b"\0" + value).xid()
    _, rows, _ = entries(decoder().feed(bytes(dump.data)))
    change = pb.RowChange.FromString(pb.Entry.FromString(rows).storeValue)
    return change.rowDatas[0].afterColumns[0].value


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"NOTHING", "PREFIXED"}))
def test_every_kind_writes_a_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind in kinds.py has a writer that writes a text for a value."""
    assert written(KINDS[name], monkeypatch)


def test_an_empty_text_and_the_type_null_write_an_empty_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty text and the type NULL have writers, which write an empty value."""
    assert written(kinds.PREFIXED, monkeypatch) == written(kinds.NOTHING, monkeypatch) == ""


def test_a_kind_without_a_writer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a kind without a writer raises MalformedEvent instead of writing empty values."""
    assert list(KINDS.values()) == list(range(1, len(KINDS) + 1))
    assert list(KINDS)[-1] == "NOTHING"
    with pytest.raises(MalformedEvent, match=f"no writer for a column of kind {len(KINDS) + 1}"):
        written(len(KINDS) + 1, monkeypatch)
