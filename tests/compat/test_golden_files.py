"""Replaying canal's recorded binlog files yields canal's entries, byte for byte, under every recorded setting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from canal_ha.config.model import DecodeOptions
from lab import differences, golden, variants
from lab.variants import COUNTED, VARIANTS, Variant
from tests.decode.conftest import zone


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """The recordings were made in UTC."""
    with zone("UTC"):
        yield


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_entry(variant: Variant) -> None:
    """In order, with nothing more and nothing less."""
    score = variants.score(variant)
    assert score.perfect, f"{score.equal} of {score.total} equal, {score.made} made; first: {score.first}"


@pytest.mark.parametrize(("variant", "count"), COUNTED)
def test_as_many_as_recorded(variant: Variant, count: int) -> None:
    """Settings whose entries are not kept leave as many of them as canal left."""
    assert len(variants.made(variant)) == count


def test_only_json_of_mariadb_differs() -> None:
    """The deliberate differences touch no other entries than those with a JSON column of MariaDB."""
    for variant in VARIANTS:
        changed = {one.case for one in golden.entries(variant.name) if differences.deliberate(one.entry) != one.entry}
        assert changed == ({"json"} if variant.name == "mariadb10.11" else set())


def test_time_zone() -> None:
    """In another zone nothing but the text of TIMESTAMP columns differs, by the zone's offset."""
    in_utc = variants.made(VARIANTS[0])
    with zone("Asia/Shanghai"):
        in_shanghai = variants.made(VARIANTS[0])
    assert [offset for offset, _ in in_utc] == [offset for offset, _ in in_shanghai]
    changed = [(one, two) for (_, one), (_, two) in zip(in_utc, in_shanghai, strict=True) if one != two]
    assert changed
    assert all(b"timestamp" in one.lower() for one, _ in changed)


def test_dml_filters_and_compressed_transactions() -> None:
    """filter.dml.* of MySQL's compressed transactions: canal stops at the first one, we go on to the end."""
    options = DecodeOptions(filter_dml_insert=True, filter_dml_update=True)
    made = variants.made(Variant("mysql9", options))
    assert len(made) > 231  # where canal stopped
    assert made[-1] == variants.made(VARIANTS[0])[-1]
