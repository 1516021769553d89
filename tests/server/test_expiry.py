"""The alarms before a certificate expires."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from canal_ha.alarms.notice import RUNBOOKS
from canal_ha.config.model import PortTls
from canal_ha.server.certificates import Certificates
from canal_ha.server.expiry import BEFORE_S, KnownCertificate, expiry_alarms, of_ports
from lab.certificates import Authority

ENDS = datetime(2026, 12, 31, 12, tzinfo=UTC).timestamp()
DAY_S = 86400.0


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (30.1, []),
        (30, ["expiring"]),
        (7.1, ["expiring"]),
        (7, ["expiring", "expiring_soon"]),
        (-400, ["expiring", "expiring_soon"]),
    ],
)
def test_the_alarms_begin_30_and_7_days_before_the_end_and_last(days: float, expected: list[str]) -> None:
    """A certificate that has ended keeps both. Each says when it began, and has a runbook."""
    alarms = expiry_alarms([of_ports("node.pem", ENDS)], ENDS - days * DAY_S)
    assert [alarm.alarm for alarm in alarms] == expected
    assert [alarm.since for alarm in alarms] == [ENDS - BEFORE_S[name] for name in expected]
    assert all(RUNBOOKS[f"node.{alarm.alarm}"] == "certificate-expired" for alarm in alarms)


def test_the_text_says_which_file_and_what_to_do() -> None:
    """Before the end it says when; afterwards, that clients refuse it."""
    before, after = (expiry_alarms([of_ports("node.pem", ENDS)], ENDS + days * DAY_S)[-1].text for days in (-1, 1))
    assert before == (
        "node.pem: the certificate of this node expires at 2026-12-31 12:00 UTC; put a new one in its place, then send"
        " the node SIGHUP"
    )
    assert "expired at 2026-12-31 12:00 UTC, and clients refuse it; put" in after


def test_one_alarm_is_about_all_certificates_that_end() -> None:
    """A second alarm of the same name would not be told."""
    client = KnownCertificate("zk.pem", ENDS + DAY_S, "the client certificate for ZooKeeper", "the server refuses")
    certificates = [of_ports("node.pem", ENDS), client, of_ports("other.pem", ENDS + 90 * DAY_S)]
    first, urgent = expiry_alarms(certificates, ENDS - 6.5 * DAY_S)
    assert (first.alarm, first.since) == ("expiring", ENDS - 30 * DAY_S)
    assert first.text.endswith(
        "send the node SIGHUP; zk.pem: the client certificate for ZooKeeper expires at 2027-01-01 12:00 UTC; put a new"
        " one in its place"
    )
    assert "zk.pem" not in urgent.text


def test_a_new_file_counts_when_the_node_has_read_it(tmp_path: Path) -> None:
    """The certificate in use tells the time, not the file: without SIGHUP clients still get the old one."""
    authority = Authority(tmp_path)
    now = datetime.now(UTC).timestamp()
    file = str(authority.sign("node", days=5))
    certificates = Certificates(PortTls(file, file))
    authority.sign("node", days=90)
    assert certificates.expires == pytest.approx(now + 5 * DAY_S, abs=60)
    assert certificates.reload() is None
    assert certificates.expires == pytest.approx(now + 90 * DAY_S, abs=60)
