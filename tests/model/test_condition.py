"""Which conditions a snapshot takes: those that look at the columns of one row alone."""

from __future__ import annotations

import pytest

from canal_ha.errors import SnapshotRefused
from canal_ha.model.condition import check_asked, check_names, names_in
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


@pytest.mark.parametrize("inner", ["CONCAT_WS('', v, v)", "1 + (hex (v))", "IF(1, CONCAT(v, v), v)"])
def test_no_condition_makes_texts_that_keep_the_server_busy_for_ever(inner: str) -> None:
    """Servers notice no KILL within a function, so the SELECTs stayed when the snapshot was cancelled."""
    for outer in ("CONCAT(v, {})", "HEX({}) = '00'", "concat_ws(',', LOWER(({})), v)"):
        with pytest.raises(SnapshotRefused, match=r"within (CONCAT|HEX|CONCAT_WS), and texts could grow without end"):
            names_in(f"LENGTH({outer.format(inner)}) > 1")
    assert names_in(f"CONCAT(LOWER(v), 'a') = 'c' AND {inner} = 'd' AND CONCAT({inner.lower().count('v')}, v)")


@pytest.mark.parametrize(
    "padded", ["CAST(id AS BINARY(16000000))", "CONVERT(id, BINARY (16000000))", "REPLACE(v, 'a', 'b')"]
)
def test_a_condition_that_pads_or_replaces_texts_is_refused(padded: str) -> None:
    """REPLACE of 800,000 padded bytes took MariaDB two minutes, for one row."""
    with pytest.raises(SnapshotRefused, match="is none of the functions that it may call"):
        names_in(f"{padded} = 'x'")
    assert names_in("CAST(id AS BINARY) = 'x' AND BINARY v = 'a'")


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
        ("v = 'M\udcfcller'", "half a surrogate pair"),
        ("m\ud800 = 1", "half a surrogate pair"),
    ],
)
def test_a_condition_that_reads_more_than_its_row_is_refused(condition: str, why: str) -> None:
    """It would run with the rights of the destination's account, which reads tables that nobody asked for."""
    request = SnapshotRequest(SnapshotAction.START, ("shop.orders",), {"shop.orders": condition})
    with pytest.raises(SnapshotRefused) as refused:
        changed("", request, "id1", 5)
    assert why in str(refused.value)
    assert str(refused.value).isprintable()


HIDING = ("id", "id2", "email", "created", "größe", "Émile", "date")


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("emaİl LIKE 'a%'", "email"),
        ("`emaİl` LIKE 'a%'", "email"),
        ("émail LIKE 'a%'", "email"),
        ("users.`e\u0301mail` = 'a'", "email"),
        ("_rowid BETWEEN 1000 AND 2000", "_rowid"),
        ("shop.users._ROWID < 5", "_rowid"),
        ("row_end > NOW()", "row_end"),
        ("`_rowid` < 5 OR created > 0", "_rowid"),
        ("GRÖSSE > 5", "gr\\xd6sse"),
        ("hr.salaries.salary > 5", "hr, salaries, salary"),
    ],
)
def test_a_condition_asks_for_a_hidden_column_under_no_other_name(condition: str, named: str) -> None:
    """Servers know a column under more names than its own, and the rows that come would tell its values."""
    with pytest.raises(SnapshotRefused) as refused:
        check_names(condition, "shop.users", HIDING, ["id", "email"])
    assert f" {named}, " in str(refused.value)


@pytest.mark.parametrize(
    "condition",
    [
        "Created >= DATE_SUB(NOW(), INTERVAL '1:2' HOUR_MINUTE) AND `created` IS NOT NULL",
        "größe IN (1, 2.5e3, 1e+5, 0x41, x'41', b'01', TRUE) AND gRößE > 0 AND Émile = N'x'",
        "shop.users.created = 1 AND Users.created <> 2 AND TRIM(LEADING 'x' FROM created) = 'y'",
        "created = _utf8mb4'x' COLLATE utf8mb4_0900_ai_ci OR CONVERT(created USING latin1) = 'email'",
        "CAST(created AS SIGNED INTEGER) % 4 = 0 AND date > DATE '2026-01-01'",
        "id2 > 1.e5 AND id2 < 1.E+5 AND id2 < .5e3 AND id2 < 1.5e-3 AND id2 > 1.e-2",
        "TIMESTAMPDIFF(SQL_TSI_DAY, created, NOW()) < 3 AND created > NOW() - INTERVAL 1 SQL_TSI_Quarter",
        "CAST(created AS CHAR(9) UNICODE) = 'a' OR CAST(created AS CHAR BYTE) = 'b' OR CAST(date AS CHAR ASCII) = 'c'",
        " OR ".join(
            f"created = _{charset}'x' COLLATE {collation}"
            for charset, collation in (
                ("armscii8", "armscii8_general_ci"),
                ("cp932", "cp932_japanese_ci"),
                ("dec8", "dec8_swedish_ci"),
                ("eucjpms", "eucjpms_japanese_ci"),
                ("geostd8", "geostd8_general_ci"),
                ("hp8", "hp8_english_ci"),
                ("keybcs2", "keybcs2_general_ci"),
                ("macce", "macce_general_ci"),
                ("macroman", "macroman_general_ci"),
                ("swe7", "swe7_swedish_ci"),
            )
        ),
    ],
)
def test_a_condition_on_a_table_with_hidden_columns_has_all_other_columns(condition: str) -> None:
    """Also those with other letters than ASCII's, and the words of SQL."""
    check_names(condition, "shop.users", HIDING, ["id", "email"])


def test_a_condition_may_have_every_name_if_nothing_is_hidden() -> None:
    """The server says which it does not know."""
    check_names("_rowid > 5 AND émail = 'a'", "shop.users", HIDING, [])


@pytest.mark.parametrize(
    "condition",
    [
        "Email < 'm'",
        "shop.users.`EMAIL` < 'm'",
        "`email ` < 'm'",
        "emaİl < 'm'",
        "ema\u0131l < 'm'",
        "émail < 'm'",
        "grosse > 5 AND grose > 5",
        "größe > 5",
        "_rowid < 5",
        "`_row\u0131d` < 5",
        "姓名 = 'x'",
    ],
)
def test_an_account_asks_for_a_column_hidden_from_it_under_no_name(condition: str) -> None:
    """Only the names in its rules are known, and a server finds a column under others too."""
    with pytest.raises(SnapshotRefused, match="may be a column that the account that asks does not see"):
        check_asked(condition, "shop.users", ["email", "größe", "姓名"])


@pytest.mark.parametrize("condition", ["id > 5 AND name = 'email'", "编号 = 5 AND straße = 'x'", "émails < 5", ""])
def test_an_account_names_the_columns_that_it_sees(condition: str) -> None:
    """Also those of other scripts, and the hidden ones in texts."""
    check_asked(condition, "shop.users", ["email", "größe", "姓名"])
    check_asked("_rowid < 5 AND email = 'x'", "shop.users", [])
