"""Ports that other machines reach: canal's admin port with the password that canal ships."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from canal_ha.config.listeners import HASH_OF_ADMIN, admin_port_refusal, check_listeners
from canal_ha.config.load import load
from canal_ha.config.model import CanalConfig
from canal_ha.wire.scramble import secret_of

STOCK = Path(__file__).parent / "stock"
ACCOUNT = ("canal.user = canal", f"canal.passwd = {secret_of('long and random').hex()}")
LAYOUTS = ("canal.properties", "canal_local.properties")


def stock(directory: Path, layout: str, *lines: str) -> CanalConfig:
    """Load canal's stock files with the lines for canal-admin in this layout, and with further lines."""
    conf = directory / "conf"
    shutil.copytree(STOCK, conf)
    with (conf / "canal.properties").open("a") as file:
        file.write("\n".join(("", (STOCK / "admin" / layout).read_text(), *lines, "")))
    return load(conf, [], {})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_password_that_canal_ships_opens_no_port_for_other_machines(tmp_path: Path, layout: str) -> None:
    """The node has accounts and starts; the refusal names file, line and key, and the ways out."""
    config = stock(tmp_path, layout, *ACCOUNT)
    assert check_listeners(config) == ""
    refusal = admin_port_refusal(config)
    assert refusal is not None
    lines = config.main_file.read_text().splitlines()
    assert lines[refusal.line - 1].startswith("canal.admin.passwd = 4ACF")
    assert (refusal.file, refusal.key) == (str(config.main_file), "canal.admin.passwd")
    for way in ("the hash of another password", "canal.ip = 127.0.0.1", "canal.admin.port = 0"):
        assert way in str(refusal)
    assert secret_of("admin").hex() == HASH_OF_ADMIN


def test_a_node_without_a_data_port_is_no_exception(tmp_path: Path) -> None:
    """Its admin port alone is open to other machines, and needs no other account."""
    lines = ("canal.withoutNetty = true", "canal.metrics.pull.port = 0")
    assert admin_port_refusal(stock(tmp_path, LAYOUTS[0], *lines)) is not None


@pytest.mark.parametrize(
    "line",
    [
        f"canal.admin.passwd = {secret_of('another').hex()}",
        "canal.admin.passwd =",
        "canal.admin.port = 0",
        "canal.ip = 127.0.0.1",
        "canal.insecure = true",
    ],
)
def test_each_way_out_is_one(tmp_path: Path, line: str) -> None:
    """Only canal.insecure opens the port as it is, and warns."""
    config = stock(tmp_path, LAYOUTS[0], *ACCOUNT, line)
    assert admin_port_refusal(config) is None
    warning = check_listeners(config)
    assert ("everybody who reaches the admin port can stop this node" in warning) is config.insecure


def test_a_star_in_front_of_the_hash_does_not_hide_it(tmp_path: Path) -> None:
    """MySQL prints one."""
    line = f"canal.admin.passwd = *{HASH_OF_ADMIN.upper()}"
    assert admin_port_refusal(stock(tmp_path, LAYOUTS[0], *ACCOUNT, line)) is not None
