"""The GTID set that a binlog file begins with."""

from __future__ import annotations

from struct import pack
from uuid import UUID

import pytest

from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.executed_before import executed_before
from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION, GTID_LIST, PREVIOUS_GTIDS, QUERY
from lab import MariaDB, MySQL

SOURCE = UUID("cc9eb805-e57b-11f1-8162-02fc00000001")


def file_of(*events: tuple[int, bytes]) -> bytes:
    heads = (pack("<IBIIIH", 0, kind, 1, 19 + len(body), 0, 0) + body for kind, body in events)
    return MAGIC + b"".join(heads)


def test_a_list_of_mariadb_gives_the_last_gtid_of_each_domain() -> None:
    """The list has each server of a domain, the one that wrote last at the end; flags are no part of its length."""
    gtids = [(0, 1, 9), (0, 2, 8), (5, 1, 7)]
    body = pack("<I", 3 | 1 << 28) + b"".join(pack("<IIQ", *gtid) for gtid in gtids)
    assert executed_before(file_of((FORMAT_DESCRIPTION, bytes(80)), (GTID_LIST, body))) == ("0-2-8,5-1-7", 0)


def test_a_set_of_mysql_with_and_without_tags() -> None:
    """Intervals end before their second number; in the format with tags each source has one, perhaps empty."""
    intervals = pack("<QQQQQ", 2, 1, 6, 8, 9)
    head = (FORMAT_DESCRIPTION, bytes(80))
    plain = pack("<Q", 1) + SOURCE.bytes + intervals
    assert executed_before(file_of(head, (PREVIOUS_GTIDS, plain))) == (f"{SOURCE}:1-5:8-8", 0)
    one, two = (SOURCE.bytes + bytes([len(tag) << 1]) + tag + intervals for tag in (b"", b"red"))
    tagged = pack("<Q", 1 << 56 | 2 << 8 | 1) + one + two
    wanted = f"{SOURCE}:1-5:8-8,{SOURCE}:red:1-5:8-8"
    assert executed_before(file_of(head, (PREVIOUS_GTIDS, tagged))) == (wanted, 0)


def test_files_that_do_not_say() -> None:
    """A file whose first events have no set gives None; a file that is cut gives the number of missing bytes."""
    assert executed_before(file_of((FORMAT_DESCRIPTION, bytes(80)), (QUERY, b""))) == (None, 0)
    assert executed_before(b"not a binlog") == (None, 0)
    whole = file_of((FORMAT_DESCRIPTION, bytes(80)), (GTID_LIST, pack("<I", 0)))
    assert executed_before(whole) == ("", 0)
    for size in range(4, len(whole)):
        found, missing = executed_before(whole[:size])
        assert found is None
        assert 0 < missing <= len(whole) - size
    for body in (b"", pack("<Q", 1), pack("<Q", 1) + SOURCE.bytes + pack("<Q", 1 << 40), pack("<Q", 1 << 56 | 256)):
        with pytest.raises(ValueError, match="inside its GTID set"):
            executed_before(file_of((PREVIOUS_GTIDS, body)))


@pytest.mark.real
def test_files_of_real_servers() -> None:
    """The set of a new journal is what the server had executed: on MySQL with a tag, on MariaDB of two domains."""
    with MySQL() as mysql:
        mysql.execute("CREATE DATABASE shop", "SET gtid_next='AUTOMATIC:red'", "CREATE TABLE shop.t (id int)")
        mysql.execute("FLUSH BINARY LOGS")
        found, _ = executed_before((mysql.data / mysql.journals()[-1]).read_bytes())
        assert found is not None
        same = "GTID_SUBSET(%s, @@GLOBAL.gtid_executed) AND GTID_SUBSET(@@GLOBAL.gtid_executed, %s)"
        assert ":red:" in found
        assert mysql.query(f"SELECT {same} AS same", found, found)[0]["same"] == 1
    with MariaDB() as mariadb:
        mariadb.execute("CREATE DATABASE shop", "SET gtid_domain_id=7", "CREATE TABLE shop.t (id int)")
        mariadb.execute("FLUSH BINARY LOGS")
        found, _ = executed_before((mariadb.data / mariadb.journals()[-1]).read_bytes())
        assert found is not None
        assert sorted(found.split(",")) == sorted(mariadb.gtid_set().split(","))
