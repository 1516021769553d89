"""The first look of a node at its configuration directory."""

from __future__ import annotations

from pathlib import Path

from canal_ha.config.live import renewed
from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig


def loaded(conf: Path) -> CanalConfig:
    """Return the configuration of a node with one destination."""
    (conf / "canal.properties").write_text("canal.destinations = a\ncanal.ip = 127.0.0.1\ncanal.port = 1\n")
    (conf / "a").mkdir()
    (conf / "a" / "instance.properties").write_text("canal.instance.master.address = db:3306\n")
    return load_usable(conf, (), {})


def test_the_first_look_does_not_read_the_files_of_all_destinations_again(tmp_path: Path) -> None:
    """With thousands of them it would take seconds of processor time, at the moment at which they start."""
    config = loaded(tmp_path)
    found, layers = renewed(config, config, ["a"], {}, None)
    assert found is config
    assert layers is config.layers


def test_the_first_look_reads_a_file_that_changed_after_the_start(tmp_path: Path) -> None:
    """Also if canal.properties changed between the load and that look."""
    config = loaded(tmp_path)
    (tmp_path / "canal.properties").write_text("canal.destinations = a\ncanal.ip = 127.0.0.1\ncanal.port = 2\n")
    _, layers = renewed(config, config, ["a"], {}, None)
    port = layers.find("canal.port")
    assert port is not None
    assert port.text == "2"
