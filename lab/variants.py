"""The recorded files and settings, and the comparison of our entries with canal's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from canal_ha.config.model import DecodeOptions
from canal_ha.model.segment import Segment
from canal_ha.sink import Sink
from lab import golden

DEFAULT = DecodeOptions()
GTIDS = DecodeOptions(gtid_on=True)
FILTERED = (r"golden\.t_.*,golden\.tx1", r".*\.t_json,golden\.t_geo")
WITHOUT_HISTORY = DecodeOptions(table_history=False)


@dataclass(frozen=True)
class Variant:
    """One recorded file with one set of settings.

    name: the name of canal's recorded entries; before: the number of our entries before canal's start.
    """

    name: str
    options: DecodeOptions = DEFAULT
    tables: tuple[str, str] = golden.ALL_TABLES
    gtid_set: str = ""
    before: int = 0

    @property
    def tag(self) -> str:
        """Return the tag of the binlog file."""
        return next(tag for tag in TAGS if self.name == tag or self.name.startswith(f"{tag}."))


TAGS = ("mysql9_gtid", "mariadb10.11_gtid", "mysql9", "mariadb10.11")

VARIANTS = (
    Variant("mysql9"),
    Variant("mysql9.notsdb", WITHOUT_HISTORY),
    Variant("mysql9.filter", tables=FILTERED),
    Variant("mysql9.txoff", DecodeOptions(filter_transaction_entry=True)),
    Variant("mariadb10.11"),
    # both GTID files begin with a statement before the start position
    Variant("mysql9_gtid", GTIDS, gtid_set=golden.MYSQL_GTIDS, before=1),
    Variant(
        "mysql9_gtid.gtidnotsdb",
        DecodeOptions(gtid_on=True, table_history=False),
        gtid_set=golden.MYSQL_GTIDS,
        before=1,
    ),
    Variant("mariadb10.11_gtid", GTIDS, gtid_set=golden.MARIADB_GTIDS, before=1),
)

NO_QUERIES = DecodeOptions(filter_query_ddl=True, filter_query_dcl=True, filter_query_dml=True)
BLACK_FIELDS = DecodeOptions(field_black_filter="golden.t_str:v300/tx,golden.m1:v")

COUNTED = (
    (Variant("mysql9", NO_QUERIES), 614),
    (Variant("mariadb10.11", NO_QUERIES), 410),
    (Variant("mysql9", BLACK_FIELDS), 741),
    (Variant("mariadb10.11", BLACK_FIELDS), 725),
    (Variant("mariadb10.11", tables=FILTERED), 433),
    (Variant("mariadb10.11", DecodeOptions(filter_transaction_entry=True)), 534),
    (Variant("mariadb10.11", DecodeOptions(filter_dml_insert=True, filter_dml_update=True)), 392),
    (Variant("mariadb10.11", GTIDS), 725),
    (Variant("mysql9", GTIDS), 741),
)
"""Settings with only a recorded number of entries, and that number."""


@dataclass(frozen=True)
class Score:
    """The result of a comparison. deliberate: intended differences from canal; first: the first difference."""

    equal: int
    total: int
    made: int
    deliberate: int
    first: str = ""

    @property
    def perfect(self) -> bool:
        """Return whether no entry is missing, different or additional."""
        return self.equal == self.total == self.made


def made(variant: Variant) -> list[tuple[int, bytes]]:
    """Return (offset, entry) for all entries that reach clients, in order."""
    passed: list[Segment] = []
    sink = Sink(passed.append, variant.options)
    for segment in golden.segments(variant.tag, variant.options, variant.tables, variant.gtid_set):
        sink.accept(segment)
    return list(_entries(passed))[variant.before :]


def score(variant: Variant) -> Score:
    """Replay and compare in order: an entry counts as equal only at the same index."""
    ours = made(variant)
    recorded = golden.entries(variant.name)
    theirs = golden.expected(variant.name)
    equal = [mine == (one.offset, one.entry) for mine, one in zip(ours, theirs, strict=False)]
    first = ""
    if not all(equal):
        at = equal.index(False)
        first = f"{theirs[at].case}, offset {theirs[at].offset}: {theirs[at].entry!r} made {ours[at]!r}"
    changed = sum(one.entry != two.entry for one, two in zip(recorded, theirs, strict=True))
    return Score(sum(equal), len(theirs), len(ours), changed, first)


def _entries(segments: list[Segment]) -> Iterator[tuple[int, bytes]]:
    for segment in segments:
        yield from zip(segment.offsets, segment.entries(), strict=True)
