"""GTID sets of MySQL as bytes."""

from __future__ import annotations

from struct import pack, unpack_from
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.executed_before import executed_before
from canal_ha.decode.kernel.gtid import Gtids
from canal_ha.decode.kernel.kinds import PREVIOUS_GTIDS
from canal_ha.source.connection.encoded_gtids import dump_command, encoded
from lab import MySQL, SqlServer

ONE, OTHER = UUID("cc9eb805-e57b-11f1-8162-02fc00000001"), UUID("0c9eb805-e57b-11f1-8162-02fc00000002")
HEADER = 19

_numbers = st.lists(st.integers(1, 1 << 62), min_size=1, max_size=4)
_tags = st.one_of(st.just(""), st.from_regex(r"[a-z_][a-z0-9_]{0,31}", fullmatch=True))


def decoded(body: bytes) -> str:
    """Return the set that a binlog file with these bytes begins with."""
    found, missing = executed_before(MAGIC + pack("<IBIIIH", 0, PREVIOUS_GTIDS, 1, HEADER + len(body), 0, 0) + body)
    assert found is not None
    assert missing == 0
    return found


@given(st.dictionaries(st.tuples(st.uuids(), _tags), _numbers, min_size=1, max_size=5))
def test_what_is_encoded_can_be_read_again(sets: dict[tuple[UUID, str], list[int]]) -> None:
    """Sources, tags and numbers stay, whatever their order."""
    items = (":".join(filter(None, (str(uuid), tag, *map(str, numbers)))) for (uuid, tag), numbers in sets.items())
    text = ",".join(items)
    found = decoded(encoded(text))
    assert len(found.split(",")) == len(sets)
    assert sorted(Gtids(found).text.split(",")) == sorted(Gtids(",".join(sorted(text.split(",")))).text.split(","))


def test_the_format_of_tags_is_used_only_with_tags() -> None:
    """Servers before MySQL 8.3 know the other one alone."""
    numbers = pack("<QQQQQ", 2, 1, 6, 8, 9)
    assert encoded(f"{str(ONE).upper()}:8:1-3:4-5") == pack("<Q", 1) + ONE.bytes + numbers
    tagged = pack("<Q", 1 << 56 | 3 << 8 | 1)
    tagged += OTHER.bytes + b"\x06red" + pack("<QQQ", 1, 7, 8)
    tagged += ONE.bytes + b"\0" + numbers + ONE.bytes + b"\x06red" + pack("<QQQ", 1, 2, 4)
    assert encoded(f"{ONE}:1-5:8:Red:2-3,\n{OTHER}:red:7") == tagged
    assert encoded("") == bytes(8)


@pytest.mark.parametrize(
    "text",
    [
        "0-1-5",
        "abc:1",
        f"{ONE}",
        f"{ONE}:red",
        f"{ONE}:0",
        f"{ONE}:5-3",
        f"{ONE}:{1 << 63}",
        f"{ONE}:1-x",
        f"{ONE}:{'a' * 33}:1",
    ],
)
def test_what_is_no_set_of_mysql_is_refused(text: str) -> None:
    """It is never sent."""
    with pytest.raises(ValueError, match=r"set|numbers|hexadecimal|invalid literal"):
        encoded(text)


def test_the_command_has_flags_server_journal_and_offset_before_the_set() -> None:
    """The flag of GTIDs joins those given; the journal has no name, and its offset is the first one."""
    command = dump_command(1, 17, b"the set")
    assert unpack_from("<BHIIQI", command) == (0x1E, 5, 17, 0, 4, 7)
    assert command[23:] == b"the set"


@pytest.mark.real
def test_a_server_writes_the_same_bytes_into_a_journal() -> None:
    """MySQL's event of the executed set has the bytes of our encoding, with tags and without."""
    with MySQL(gtid=True) as server:
        server.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id int)", f"SET gtid_next='{ONE}:7'", "BEGIN", "COMMIT"
        )
        assert previous(server) == encoded(server.gtid_set())
        for number, tag in enumerate(("red", "a", "red", "z" * 32)):
            server.execute(f"SET gtid_next='AUTOMATIC:{tag}'", f"INSERT INTO shop.t VALUES ({number})")
            assert previous(server) == encoded(server.gtid_set())
        server.execute(f"SET gtid_next='{OTHER}:red:9'", "BEGIN", "COMMIT")
        assert previous(server) == encoded(server.gtid_set())


def previous(server: SqlServer) -> bytes:
    """Begin a journal; return the bytes of the set that it begins with."""
    server.execute("FLUSH BINARY LOGS")
    data = (server.data / server.journals()[-1]).read_bytes()
    at = len(MAGIC)
    while data[at + 4] != PREVIOUS_GTIDS:
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    size = int.from_bytes(data[at + 9 : at + 13], "little")
    return data[at + HEADER : at + size - 4]
