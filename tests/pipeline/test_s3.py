"""Delta, Parquet and Iceberg in a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.file_area import FileArea
from lab.s3 import REGION, S3, SECRET, USER
from tests.pipeline.given import described, portion
from tests.pipeline.lake_writer import STEP, final_rows, options, transaction

pytestmark = pytest.mark.real

TRANSACTIONS = 150


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        server.files().create_dir("lake")
        yield server


@pytest.fixture(autouse=True)
def _environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.client_environment.items():
        monkeypatch.setenv(name, value)


def write(kind: str, mode: Any, state: Path, given: dict[str, Any]) -> None:
    """Write all transactions, with a new target for each commit."""
    for seq, stop in enumerate((0, 50, 100, TRANSACTIONS)):
        target = open_target(described(kind, mode, state, given))
        target.check()
        stored = target.progress("d")
        assert (stored.seq if stored else -1) == seq - 1
        start = (0, 0, 50, 100)[seq]
        entries = [entry for number in range(start + 1, stop + 1) for entry in transaction(number)]
        target.commit(portion(seq, stop * STEP + 9, entries))
        target.close()


def check(rows: pa.Table, mode: str) -> None:
    """Check the table t."""
    if mode == "mirror":
        assert {row["id"]: row["name"] for row in rows.to_pylist()} == final_rows("t", TRANSACTIONS)
        assert len(rows) == len(final_rows("t", TRANSACTIONS))
    else:
        offsets = [place["offset"] for place in rows.column("_position").to_pylist()]
        assert sorted(offsets) == [number * STEP + 1 for number in range(1, TRANSACTIONS + 1)]


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_iceberg(s3: S3, tmp_path: Path, mode: str) -> None:
    """Files and metadata are in the bucket; the options of the catalog reach it."""
    given = options(tmp_path / "catalog")
    given["catalog"] |= {"warehouse": f"s3://lake/iceberg-{mode}", "s3.endpoint": s3.url, "s3.region": REGION}
    given["catalog"] |= {"s3.access-key-id": USER, "s3.secret-access-key": SECRET}
    write("iceberg", mode, tmp_path, given)
    access = dict(given["catalog"])
    check(load_catalog(access.pop("name"), **access).load_table(("s", "t")).scan().to_arrow(), mode)


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_delta(s3: S3, tmp_path: Path, mode: str) -> None:
    """Commits are exclusive by the server's conditional writes."""
    storage = {"AWS_ENDPOINT_URL": s3.url, "AWS_ALLOW_HTTP": "true", "conditional_put": "etag", **s3.client_environment}
    storage["max_retries"] = "0"  # this server knows no deletion of many objects, which delta-rs asks for 10 times
    write("delta", mode, tmp_path, {"path": f"s3://lake/delta-{mode}", "storage": storage})
    check(DeltaTable(f"s3://lake/delta-{mode}/s/t", storage_options=storage).to_pyarrow_table(), mode)


def test_parquet(s3: S3, tmp_path: Path) -> None:
    """The URI names the endpoint, and the environment has the login."""
    path = f"s3://lake/parquet?endpoint_override={quote(s3.address, safe='')}&scheme=http&region={REGION}"
    write("parquet", "changelog", tmp_path, {"path": path})
    check(ds.dataset("lake/parquet/s/t", filesystem=s3.files()).to_table(), "changelog")


def test_a_parquet_writer_that_was_suspended_replaces_nothing(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has gone on, while the first one was about to store its progress."""
    path = f"s3://lake/suspended?endpoint_override={quote(s3.address, safe='')}&scheme=http&region={REGION}"
    given = described("parquet", "changelog", tmp_path, {"path": path})
    first, other = open_target(given), open_target(given)
    first.commit(portion(0, 9, []))
    write, left = FileArea.write, [1]

    def resumed(area: FileArea, name: str, data: bytes) -> None:
        if left and name.endswith(".json"):
            left.clear()
            assert other.progress("d") is not None
            other.commit(portion(1, 2 * STEP + 9, [*transaction(1), *transaction(2)]))
        write(area, name, data)

    monkeypatch.setattr(FileArea, "write", resumed)
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        first.commit(portion(1, STEP + 9, transaction(1)))
    rows = ds.dataset("lake/suspended/s/t", filesystem=s3.files()).to_table()
    assert [place["offset"] for place in rows.column("_position").to_pylist()] == [STEP + 1, 2 * STEP + 1]
    stored = other.progress("d")
    assert stored is not None
    assert stored.last.offset == 2 * STEP + 9
