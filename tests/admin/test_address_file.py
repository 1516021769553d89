"""The file that tells commands where a node's status endpoint listens."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from canal_ha.admin.address_file import AddressFile, read_address, url_of
from canal_ha.errors import NodeUnreachable


def test_the_address_of_a_node_that_lives_is_read(tmp_path: Path) -> None:
    """The file is for the node's user alone, and goes when the node stops."""
    path = tmp_path / "canal" / "status.address"
    file = AddressFile(path)
    file.write("http://127.0.0.1:8089")
    assert read_address(path) == "http://127.0.0.1:8089"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    file.remove()
    with pytest.raises(NodeUnreachable, match="--url"):
        read_address(path)


def test_the_file_of_a_killed_node_is_not_believed(tmp_path: Path) -> None:
    """Another program may have its port by now. The next node replaces the file."""
    path = tmp_path / "status.address"
    killed = AddressFile(path)
    killed.write("http://127.0.0.1:8089")
    os.close(killed._descriptor)
    with pytest.raises(NodeUnreachable, match="does not run any more"):
        read_address(path)
    AddressFile(path).write("http://127.0.0.1:8090")
    with pytest.raises(NodeUnreachable):
        read_address(tmp_path / "elsewhere")


def test_the_end_of_one_node_does_not_remove_the_file_of_another(tmp_path: Path) -> None:
    """Two nodes with one log directory: the file is of the one that started last."""
    path = tmp_path / "status.address"
    first, second = AddressFile(path), AddressFile(path)
    first.write("http://127.0.0.1:1")
    second.write("http://127.0.0.1:2")
    first.remove()
    assert read_address(path) == "http://127.0.0.1:2"
    second.remove()
    assert not path.exists()


@pytest.mark.parametrize(("bind", "tls", "url"), [
    ("127.0.0.1", False, "http://127.0.0.1:8089"), ("10.0.0.1", False, "http://10.0.0.1:8089"),
    ("0.0.0.0", True, "https://127.0.0.1:8089"), ("::", False, "http://[::1]:8089"),
    ("2001:db8::1", True, "https://[2001:db8::1]:8089"),
])  # fmt: skip
def test_addresses_as_their_own_machine_calls_them(bind: str, tls: bool, url: str) -> None:
    """Every address of the machine includes loopback."""
    assert url_of(bind, 8089, tls=tls) == url
