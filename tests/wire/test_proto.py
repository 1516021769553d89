"""The schemas and the code generated from them."""

import os
import re
import subprocess
import sys
from pathlib import Path

from canal_ha.wire.proto import entry_protocol_pb2 as entries

PROTO = Path(__file__).parents[2] / "canal_ha" / "wire" / "proto"
COMPILER_VERSION = re.compile(r"# Protobuf Python Version: .*|(?<=Domain\.PUBLIC,\n)(?:    \d+,\n){3}")


def generated(folder: Path) -> dict[str, str]:
    """Return the texts by file name, without the version of the compiler."""
    return {path.name: COMPILER_VERSION.sub("", path.read_text()) for path in sorted(folder.glob("*_pb2.py*"))}


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    """The committed code equals the code that the schemas generate now."""
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([str(PROTO / "generate.sh"), str(tmp_path)], env=environment, check=True, timeout=60)
    assert generated(tmp_path / "canal_ha" / "wire" / "proto") == generated(PROTO)


def test_entries_have_proto2_presence_and_defaults() -> None:
    """Explicit zeros are written; absent fields and the enum number 0 are read as canal's defaults."""
    column = entries.Column(
        index=0, sqlType=4, name="id", isKey=True, updated=False, isNull=False, value="1", mysqlType="int(11)"
    )
    assert column.SerializeToString().hex() == "080010041a0269642001280030004201315207696e7428313129"
    column = entries.Column(index=1, sqlType=4, name="n", isKey=False, updated=True, isNull=True, mysqlType="int(11)")
    assert column.SerializeToString().hex() == "080110041a016e2000280130015207696e7428313129"
    empty = entries.Entry()
    assert (empty.entryType, empty.header.version) == (entries.ROWDATA, 1)
    assert (empty.header.sourceType, empty.header.eventType) == (entries.MYSQL, entries.UPDATE)
    assert entries.Header.FromString(bytes.fromhex("5800")).eventType == entries.UPDATE


def test_transaction_begin_has_canals_bytes() -> None:
    """The entry of docs/protocol.md#entry-schema has canal's bytes."""
    begin = entries.Entry(
        header=entries.Header(
            version=1,
            logfileName="b.1",
            logfileOffset=4,
            serverId=1,
            serverenCode="UTF-8",
            executeTime=1000,
            sourceType=entries.MYSQL,
            schemaName="",
            tableName="",
            eventLength=5,
        ),
        entryType=entries.TRANSACTIONBEGIN,
        storeValue=entries.TransactionBegin(threadId=7).SerializeToString(),
    )
    expected = "0a1d08011203622e31180420012a055554462d3830e807380242004a00500510011a022007"
    assert begin.SerializeToString().hex() == expected
