"""How a connect string and the JSON of `running` are read and written."""

from __future__ import annotations

import pytest

from canal_ha.zookeeper.connect_string import connect_string
from canal_ha.zookeeper.tree import RunningData


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:2181", ("a:2181", True)),
        ("a:2181, b:2181/canal/x", ("a:2181,b:2181/canal/x", True)),
        ("a:2181,b:2181;c:2181", ("a:2181,b:2181,c:2181", False)),
        ("a:2181/x;c:2181/x;", ("a:2181,c:2181/x", False)),
    ],
)
def test_connect_strings(servers: str, expected: tuple[str, bool]) -> None:
    """Servers keep their order, and a chroot counts for all."""
    assert connect_string(servers) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"active":true,"address":"10.0.0.1:11111"}', RunningData("10.0.0.1:11111")),
        (b'{ "address": "h:1", "cid": 1 }', RunningData("h:1")),
        (b'{"active":false,"address":"h:1","clientId":7}', RunningData("h:1", False, 7)),
        (b"", RunningData("")),
        (b"[1]", RunningData("")),
    ],
)
def test_running_is_read_whoever_wrote_it(data: bytes, expected: RunningData) -> None:
    """Older peers wrote `cid`, a missing `active` means true, and other data has no address."""
    assert RunningData.from_bytes(data) == expected


def test_running_is_written_as_canal_does() -> None:
    """`running` is written byte for byte as canal writes it."""
    assert RunningData("127.0.0.1:11111").to_bytes() == b'{"active":true,"address":"127.0.0.1:11111"}'
    assert RunningData("h:1", client_id=1001).to_bytes() == b'{"active":true,"address":"h:1","clientId":1001}'
