"""Several sources in one destination: canal's group-instance template and its numbered keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.config.load import load
from canal_ha.config.model import CanalConfig, CursorPlace
from canal_ha.errors import ConfigError

TEMPLATE = "canal.instance.both.spring.xml = classpath:spring/group-instance.xml\n"


def loaded(tmp_path: Path, text: str, *, main: str = TEMPLATE) -> CanalConfig:
    """Load a configuration with the destination `both`."""
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "instance.properties").write_text(text)
    (tmp_path / "canal.properties").write_text("canal.destinations = both\n" + main)
    return load(tmp_path, (), {})


def test_canals_keys(tmp_path: Path) -> None:
    """Each source has its own address, start, standby and table history. Cursors are kept as by default-instance."""
    config = loaded(
        tmp_path,
        "canal.instance.master1.address = one\n"
        "canal.instance.master1.journal.name = bin.000003\n"
        "canal.instance.master1.position = 77\n"
        "canal.instance.master2.address = two:3307\n"
        "canal.instance.standby2.address = three\n"
        "canal.instance.master2.timestamp = 5\n"
        "canal.instance.group.wait = 2.5\n",
    )
    assert config.warnings == ()
    (both,) = config.destinations
    assert both.source_name == "one:3306, two:3307"
    assert (both.cursor_place, both.group_wait_s) == (CursorPlace.FILE, 2.5)
    first, second = both.members
    assert (first.destination, first.master.journal, first.master.position, first.standby) == (
        "both/1",
        "bin.000003",
        77,
        None,
    )
    assert (second.destination, second.master.port, second.master.timestamp_ms) == ("both/2", 3307, 5)
    assert second.standby
    assert second.standby.host == "three"
    assert Path(second.tsdb_dir) == Path(both.tsdb_dir) / "2"
    assert first.group == ()


@pytest.mark.parametrize("addresses", ["", "canal.instance.master1.address = a", "canal.instance.master3.address = a"])
def test_a_source_is_missing(tmp_path: Path, addresses: str) -> None:
    """At least two sources are needed, numbered without gaps. The error names the first one that is missing."""
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, addresses)
    assert error.value.key == (
        "canal.instance.master2.address" if "1" in addresses else "canal.instance.master1.address"
    )


def test_keys_without_the_template(tmp_path: Path) -> None:
    """Numbered sources cause a warning under another template. A misspelt one is unknown."""
    text = "canal.instance.master.address = a\ncanal.instance.master1.address = b\ncanal.instance.master1.adress = c\n"
    warnings = loaded(tmp_path, text, main="").warnings
    assert len(warnings) == 2
    assert "unknown key canal.instance.master1.adress" in warnings[0]
    assert "canal.instance.master1.address has no effect" in warnings[1]
