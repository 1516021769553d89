"""The log files of a node, asked for as logs of destinations."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.accounts.account import Accounts
from canal_ha.accounts.parse import parse
from lab.desk import Desk
from lab.gate import ACCOUNTS, PASSWORD


@pytest.mark.parametrize("name", ["audit", "canal"])
def test_the_admin_of_some_destinations_reads_no_log_of_the_node(tmp_path: Path, name: str) -> None:
    """Not even one whose destinations have the names of the node's own log files."""
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.log").write_text("a line about others\n")
    desk = Desk(log_dir=tmp_path)
    *others, admin = parse(ACCOUNTS, "accounts.toml")
    login = b64encode(f"{admin.name}:{PASSWORD}".encode()).decode()
    path = f"/api/v1/destinations/{name}/log"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n"
    assert "a line about others" in desk.ask(request).text
    desk.accounts = Accounts((*others, replace(admin, destinations=(name,))))
    answer = desk.ask(request)
    assert answer.code == 403, answer.text
    assert "name of a log file of the node" in answer.text
