"""Whether a refused dump has lost its position: only if the journal or its transactions are gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import CanalError, PositionLost, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import BinaryLog
from canal_ha.source.connection.session import Where
from canal_ha.source.positions.lost import ended, existing, gtids_refused, reach

CONFIG = InstanceConfig("example", SourceConfig("db1"))
AT = LogPosition("bin.000007", 700)


@dataclass
class Server:
    """A session with a server that has these journals."""

    logs: dict[str, int] = field(default_factory=lambda: {"bin.000007": 5000})
    where: Where = field(default_factory=lambda: Where(CONFIG, CONFIG.master))

    def query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Answer SHOW BINARY LOGS."""
        assert sql == "SHOW BINARY LOGS"
        return [{"Log_name": name, "File_size": size} for name, size in self.logs.items()]


def error_of(text: str, **logs: int) -> CanalError:
    return ended(Server({f"bin.{name[1:]}": size for name, size in logs.items()}), CONFIG, AT, text)  # type: ignore[arg-type]  # only `query` and `where` are used


@pytest.mark.parametrize(
    "text",
    [
        "Could not open log file",
        "binlog truncated in the middle of event; consider out of disk space on source; the first event 'bin.000007'",
        "memory allocation failed",
        "event read from binlog did not pass crc check; the first event 'bin.000007' at 700",
        "bogus data in log event; the first event 'bin.000007' at 700",
        "could not find next log; the first event 'bin.000007' at 700",
    ],
)
def test_a_transient_error_1236_loses_no_position(text: str) -> None:
    """An error that says nothing of a purge is retried, and its message has the server's text."""
    error = error_of(text, b000007=5000)
    assert isinstance(error, SourceUnavailable)
    assert error.retryable
    assert str(error).startswith(f"db1:3306: the server cannot send its binlog from {AT}: {text}; ")


def test_a_journal_that_the_server_cannot_open_is_not_lost() -> None:
    """SHOW BINARY LOGS shows 0 bytes for a journal whose file the server cannot open."""
    assert isinstance(error_of("Could not open log file", b000007=0, b000008=900), SourceUnavailable)
    session = Server({"bin.000007": 0, "bin.000008": 900})
    assert existing(session, AT) == AT  # type: ignore[arg-type]  # only `query` and `where` are used
    assert reach([BinaryLog("bin.000007", 0), BinaryLog("bin.000008", 900)], AT) == (
        "its journal exists, but the server cannot open its file (SHOW BINARY LOGS shows 0 bytes)"
    )


def test_a_purged_journal_and_a_reset_binlog_are_lost() -> None:
    """A journal that is not in the list is purged; one that is shorter than the position was begun anew."""
    purged = error_of("Could not find first log file name in binary log index file", b000008=900)
    assert isinstance(purged, PositionLost)
    assert "journal bin.000007 (wanted: bin.000007:700) is purged; the oldest journal is bin.000008" in str(purged)
    reset = error_of("Client requested source to start replication from position > file size", b000007=500)
    assert isinstance(reset, PositionLost)
    assert "bin.000007:700 lies beyond the end of its journal (500 bytes)" in str(reset)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("Cannot replicate because the source purged required binary logs. Replicate the missing transactions", True),
        ("The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has purged", True),
        ("Slave has more GTIDs than the master has, using the master's SERVER_UUID", True),
        ("Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old", True),
        ("Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog", True),
        ("The binlog on the master is missing the GTID 0-1-9 requested by the slave (even though a subsequent", True),
        ("Could not open log file", False),
        ("memory allocation failed", False),
    ],
)
def test_a_dump_by_gtid_set_is_lost_only_if_the_server_lacks_transactions(text: str, lost: bool) -> None:
    """Only a text about missing transactions means that the position is lost; any other error is retried."""
    error = gtids_refused(Server().where, CONFIG, "0-1-9", text)
    assert isinstance(error, PositionLost if lost else SourceUnavailable)
    assert error.retryable != lost
    assert text in str(error)
