"""Which conditions a snapshot takes: those that look at the columns of one row alone."""

from __future__ import annotations

import pytest

from canal_ha.errors import SnapshotRefused
from canal_ha.model.condition import names_in
from canal_ha.model.snapshot import SnapshotAction, SnapshotRequest, changed


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("created > '2026-01-01'", {"created"}),
        ("id % 4 = 0 OR (`a``b` IN (1, 2.5e3, 0x41) AND NOT id<=>NULL)", {"id", "a`b", "or", "in", "and", "not"}),
        ("v = 'it''s' AND v <> \"a \\\" ( -- b\" AND v LIKE '%/* ;#%'", {"v", "and", "like"}),
        ("DATE(created) >= DATE_SUB(NOW(), INTERVAL 3 DAY)", {"date", "created", "now", "interval", "day"}),
        ("shop.orders.größe = 1 AND doc->>'$.a' = _utf8mb4'x'", {"shop", "orders", "größe", "doc"}),
        ("select_me = 1 AND sleep = 2", {"select_me", "sleep"}),
    ],
)
def test_a_condition_on_columns_is_read(condition: str, names: set[str]) -> None:
    """Its words and quoted names come back in lower case."""
    assert names <= names_in(condition)
    assert "it" not in names_in(condition)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("1 = 1) UNION SELECT user, 1 FROM mysql.user WHERE (1 = 1", "a bracket closes that none has opened"),
        ("id = (SELECT MAX(id) FROM hr.salaries)", "the word SELECT"),
        ("EXISTS(sElEcT 1 FROM hr.salaries)", "the word sElEcT"),
        ("id IN (TABLE hr.ids)", "the word TABLE"),
        ("id = (WITH a AS (SELECT 1) SELECT 1)", "the word WITH"),
        ("NEXT VALUE FOR shop.s > 0", "the word FOR"),
        ("SLEEP(1000) = 0", "SLEEP is none of the functions"),
        ("`sleep` (1000) = 0", "sleep is none of the functions"),
        ("`in`(1)", "in is none of the functions"),
        ("LOAD_FILE('/etc/passwd') LIKE 'a%'", "LOAD_FILE is none"),
        ("hr.now() > 0", "now is none of the functions"),
        ("hr . `abs` (1)", "abs is none of the functions"),
        ("id = 1--(\nSELECT 1)", "a comment, --"),
        ("id = 1 /*! OR (SELECT 1) */", "a comment, /*"),
        ("id = 1 # x", "a comment, #"),
        ("id = 1;DELETE", "cannot be read from ;DELETE"),
        ("@a := id", "cannot be read from @a"),
        ("v = 'open", "cannot be read from 'open"),
        ("v = 'a\\' OR (SELECT 1)", "cannot be read from '"),
        ("(id = 1", "a bracket opens that none closes"),
        ("id = 1 --\x01' \n (SELECT 1) '", "control characters"),
        ("id\xa0= (SELECT 1)", "the word SELECT"),
    ],
)
def test_a_condition_that_reads_more_than_its_row_is_refused(condition: str, why: str) -> None:
    """It would run with the rights of the destination's account, which reads tables that nobody asked for."""
    request = SnapshotRequest(SnapshotAction.START, ("shop.orders",), {"shop.orders": condition})
    with pytest.raises(SnapshotRefused) as refused:
        changed("", request, "id1", 5)
    assert why in str(refused.value)
    assert str(refused.value).isprintable()
