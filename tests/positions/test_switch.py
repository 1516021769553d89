"""The source changes under a destination: crash, switch, another server under its address. What a client gets of it."""

from __future__ import annotations

import pytest

from tests.positions.pair import NOTHING, SWITCHING, Compared, Getting, Writer, paired
from tests.real import MariaDB, MySQL, SqlServer

SKEW_S = 90


@pytest.mark.real
@pytest.mark.parametrize(
    ("make", "gtid", "skew_s"),
    [(MySQL, False, -SKEW_S), (MariaDB, False, SKEW_S), (MySQL, True, SKEW_S), (MariaDB, True, -SKEW_S)],
)
def test_master_killed_under_writes(make: type[SqlServer], gtid: bool, skew_s: int) -> None:
    """The standby takes over by itself; every row that it has arrives once, in order, whatever its clock says."""
    with paired(make, gtid=gtid) as pair, pair.node(SWITCHING).start() as node:
        with Getting(node) as got:
            with Writer(pair.master, 1) as before:
                got.upto(200)
                pair.master.kill()
            pair.promote()
            replicated = pair.ids()
            after = Writer(pair.standby, len(before.written) + 100, skew_s)
            after.write(50)
            got.upto(after.written[-1])
        assert Compared.of(got.ids, [*replicated, *after.written]) == NOTHING, node.log_file("example")
        node.restart()
        with Getting(node) as again:
            after.write(10)
            again.upto(after.written[-1])
        assert again.ids == after.written[-10:], node.log_file("example")
