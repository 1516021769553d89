"""Replaying canal's recorded binlog files yields canal's entries, byte for byte, under every recorded setting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from canal_ha.config.model import DecodeOptions
from lab import differences, golden, variants
from lab.variants import COUNTED, VARIANTS, Variant
from tests.time_zone import zone


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Set the time zone to UTC, in which the recordings were made."""
    with zone("UTC"):
        yield


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_entry(variant: Variant) -> None:
    """All entries are canal's, in order, with none missing and none added."""
    score = variants.score(variant)
    assert score.perfect, f"{score.equal} of {score.total} equal, {score.made} made; first: {score.first}"


@pytest.mark.parametrize(("variant", "count"), COUNTED)
def test_as_many_as_recorded(variant: Variant, count: int) -> None:
    """Under settings whose entries were not kept, the number of entries is canal's."""
    assert len(variants.made(variant)) == count


def test_only_json_of_mariadb_differs() -> None:
    """The deliberate differences change only entries with a JSON column of MariaDB."""
    for variant in VARIANTS:
        changed = {one.case for one in golden.entries(variant.name) if differences.deliberate(one.entry) != one.entry}
        assert changed == ({"json"} if variant.name == "mariadb10.11" else set())


def test_time_zone() -> None:
    """In another time zone, only entries with TIMESTAMP columns differ."""
    in_utc = variants.made(VARIANTS[0])
    with zone("Asia/Shanghai"):
        in_shanghai = variants.made(VARIANTS[0])
    assert [offset for offset, _ in in_utc] == [offset for offset, _ in in_shanghai]
    changed = [(one, two) for (_, one), (_, two) in zip(in_utc, in_shanghai, strict=True) if one != two]
    assert changed
    assert all(b"timestamp" in one.lower() for one, _ in changed)


def test_dml_filters_and_compressed_transactions() -> None:
    """With filter.dml.*, canal stops at MySQL's first compressed transaction; the decoder continues to the end."""
    options = DecodeOptions(filter_dml_insert=True, filter_dml_update=True)
    made = variants.made(Variant("mysql9", options))
    assert len(made) > 231  # where canal stopped
    assert made[-1] == variants.made(VARIANTS[0])[-1]
