"""The first look of a node at its configuration directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.config.live import as_started, renewed
from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig
from canal_ha.errors import ConfigError


def loaded(conf: Path, more: str = "") -> CanalConfig:
    """Return the configuration of a node with one destination. more: lines of canal.properties."""
    (conf / "canal.properties").write_text("canal.destinations = a\ncanal.ip = 127.0.0.1\ncanal.port = 1\n" + more)
    (conf / "a").mkdir()
    (conf / "a" / "instance.properties").write_text("canal.instance.master.address = db:3306\n")
    return load_usable(conf, (), {})


def test_the_first_look_does_not_read_the_files_of_all_destinations_again(tmp_path: Path) -> None:
    """With thousands of them it would take seconds of processor time, at the moment at which they start."""
    config = loaded(tmp_path)
    assert as_started(config, ["a"])
    assert not as_started(config, ["a", "new"])


def test_the_first_look_reads_a_file_that_changed_after_the_start(tmp_path: Path) -> None:
    """Also if canal.properties changed between the load and that look."""
    config = loaded(tmp_path)
    (tmp_path / "canal.properties").write_text("canal.destinations = a\ncanal.ip = 127.0.0.1\ncanal.port = 2\n")
    assert not as_started(config, ["a"])
    (tmp_path / "canal.properties").unlink()
    assert not as_started(config, ["a"])


def test_a_secret_that_has_vanished_is_missed_at_a_later_look(tmp_path: Path) -> None:
    """The text of canal.properties may be the same: what its placeholders stand for has changed."""
    secret = tmp_path / "user"
    secret.write_text("canal")
    config = loaded(tmp_path, f"canal.instance.dbUsername = ${{file:{secret}}}\n")
    secret.unlink()
    with pytest.raises(ConfigError, match=r"dbUsername"):
        renewed(config, config, ["a"], {}, None)
