"""docs/how-to/migrate-from-canal.md says what a node does with canal's settings."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from canal_ha.config.absent import PARTS, WITHOUT_EFFECT
from canal_ha.config.keys import BY_NAME
from canal_ha.config.listeners import check_listeners
from canal_ha.config.load import load
from canal_ha.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/migrate-from-canal.md").read_text()
STOCK = ROOT / "tests/config/stock"

REFUSED = {
    "canal.serverMode = rocketMQ": "expected tcp or kafka. For RocketMQ, RabbitMQ and Pulsar, set tcp and run a",
    "canal.zkServers = zk1:2181": "expected classpath:spring/default-instance.xml, because canal.zkServers is set",
    "canal.instance.tsdb.url = jdbc:postgresql://db/canal": (
        "expected jdbc:mysql://host:port/database, jdbc:h2:... or nothing"
    ),
    "canal.instance.filter.black.field = users": "expected schema.table:column/column,",
}


def section(title: str) -> str:
    """Return the text of one section of the page."""
    return PAGE.partition(f"## {title}")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("setting", "told"), REFUSED.items())
def test_what_the_page_calls_refused_is_refused(tmp_path: Path, setting: str, told: str) -> None:
    """canal's stock configuration with this setting is refused, and the page quotes the error."""
    shutil.copytree(STOCK, tmp_path / "conf")
    with (tmp_path / "conf/canal.properties").open("a") as file:
        file.write(f"\n{setting}\n")
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(tmp_path / "conf", [], {})
    assert told in section("Settings that are refused")


def test_a_stock_node_is_told_the_line_to_add(tmp_path: Path) -> None:
    """canal's stock configuration has no account and listens everywhere; with the line of the error it is accepted."""
    shutil.copytree(STOCK, tmp_path / "conf")
    with pytest.raises(ConfigError, match="opens a port to other machines without accounts") as caught:
        check_listeners(load(tmp_path / "conf", [], {}))
    line = "canal.insecure = true"
    assert f"add this line: {line}" in str(caught.value)
    assert f"add this line: {line}" in section("Settings that are refused")
    with (tmp_path / "conf/canal.properties").open("a") as file:
        file.write(f"\n{line}\n")
    assert "everybody there can read every row" in check_listeners(load(tmp_path / "conf", [], {}))


def test_every_part_of_canal_that_is_missing_is_on_the_page() -> None:
    """Each kind of setting that causes a warning has a line, and each key of such a line causes one."""
    text = section("Settings that are ignored")
    keys = [
        key.replace("*", "x") for key in re.findall(r"`((?:canal|kafka|rocketmq|rabbitmq|pulsarmq)\.[\w.*]+)", text)
    ]
    keys += ["canal.instance.master.trustCertificateKeyStorePassword", "canal.instance.master.tlsVersions"]
    advice = {"canal.serverMode", "canal.auto.scan"}
    patterns = [re.compile(part.pattern) for part in PARTS]
    assert [key for key in keys if key not in advice and not any(each.fullmatch(key) for each in patterns)] == []
    assert [each.pattern for each in patterns if not any(map(each.fullmatch, keys))] == []


def test_every_setting_that_carries_over_is_read() -> None:
    """Each key of the page's first table is in the table of keys, or abbreviates some of them."""
    rows = section("Settings that carry over").partition("Keys that tune")
    names = [name.rstrip("*").rstrip(".") for name in re.findall(r"`(canal\.[\w.*<>]+)`", rows[0])]
    assert len(names) > 15
    for name in set(names) - {"canal.properties"}:
        known = [key for key in BY_NAME if key == name or key.startswith(name + ".")]
        assert known or name == "canal.instance.<destination>.spring.xml", name
    ignored = [name.replace("*", "Threads") for name in re.findall(r"`(canal\.[\w.*]+)`", rows[2].partition("\n\n")[0])]
    assert len(ignored) > 3
    assert [name for name in ignored if not WITHOUT_EFFECT.fullmatch(name)] == []
