"""The command that kills pipelines, nodes and target servers: its verdict, and a short run on real parts."""

from __future__ import annotations

import json
import time
from random import Random
from urllib.request import Request, urlopen

import pymysql
import pytest

from lab.exactly_once.__main__ import main
from lab.exactly_once.changes import Change, judged, written
from lab.exactly_once.receiver import RowReceiver
from lab.mysql import MySQL

WANTED = [Change("insert", 1, 1), Change("insert", 2, 2), Change("update", 1, 3), Change("delete", 1, 3)]


def test_changes_in_the_order_of_their_keys_are_well() -> None:
    """Keys may overtake each other, as in the partitions of Kafka."""
    verdict = judged("kafka", "node", 1, WANTED, [WANTED[1], WANTED[0], *WANTED[2:]])
    assert verdict.well
    assert verdict.rows == 4


@pytest.mark.parametrize(
    ("found", "numbers"),
    [
        (WANTED[:3], (1, 0, 0)),
        ([*WANTED, WANTED[3]], (0, 1, 0)),
        ([WANTED[0], WANTED[1], Change("update", 1, 4), WANTED[3]], (1, 1, 0)),
        ([WANTED[0], WANTED[1], WANTED[3], WANTED[2]], (0, 0, 1)),
    ],
    ids=["lost", "doubled", "another value", "another order"],
)
def test_other_changes_are_not(found: list[Change], numbers: tuple[int, int, int]) -> None:
    """The verdict counts them."""
    verdict = judged("kafka", "node", 1, WANTED, found)
    assert (verdict.lost, verdict.doubled, verdict.disordered) == numbers
    assert not verdict.well


def test_a_target_without_an_order_is_judged_without_it() -> None:
    """The verdict says that nothing was judged."""
    verdict = judged("delta", "node", 1, WANTED, WANTED[::-1], ordered=False)
    assert verdict.disordered is None
    assert verdict.well


@pytest.mark.real
def test_a_writer_that_ends_early_fails_the_run(mysql: MySQL, database: str) -> None:
    """Else few changes would be judged, and all of them be there."""
    with pytest.raises(pymysql.MySQLError, match="Unknown database"), written(mysql, f"{database}.missing", Random(1)):
        time.sleep(1)


@pytest.mark.real
@pytest.mark.nightly("the tests of each target in tests/pipeline, which kill pipelines and servers")
def test_every_target_has_each_change_once_after_kills(capsys: pytest.CaptureFixture[str]) -> None:
    """One of each victim, at random moments; databases, Kafka and the HTTP server are killed, too."""
    code = main(["--kills", "1"])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert len(printed.splitlines()) == 1 + 3 * 2 + 5 * 3


def test_a_row_with_a_line_separator_of_unicode_was_cut() -> None:
    """JSON has U+2028 and U+0085 as they are; only a line feed ends a row."""
    rows = [{"text": "a\u2028b\u2029c\x85d"}, {"text": "e"}]
    body = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    with RowReceiver() as receiver:
        request = Request(receiver.url, body.encode(), {"idempotency-key": "run.0.1"})
        with urlopen(request, timeout=10) as answer:
            assert answer.status == 200
        assert list(receiver.rows()) == rows
