"""Table and field filters: canal's syntax, and the expressions that are refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.config.model import FilterMode
from canal_ha.decode.filters import FieldFilter, TableFilter, effective
from canal_ha.decode.name_lists import join_items, split_items
from canal_ha.errors import FilterInvalid


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        (",,a,,", ["a"]),
        (r"test\..*,test2.user", [r"test\..*", "test2.user"]),
        (r"a\.t\d{1,2},b\.[x,y],c\.(p,q)", [r"a\.t\d{1,2}", r"b\.[x,y]", r"c\.(p,q)"]),
        (r"a\{1,b", [r"a\{1", "b"]),
        ("a}),b", ["a})", "b"]),
        (r" a , b", [" a ", " b"]),
        ("[(],a],b", ["[(],a],b"]),
    ],
)
def test_lists_split_at_outer_commas(text: str, items: list[str]) -> None:
    """Commas in brackets or after a backslash do not split; items are not trimmed, and empty ones are dropped."""
    assert split_items(text) == items


def test_items_join_longest_first() -> None:
    """The joined expression is canal's: items are anchored and sorted longest first, items of one length in order."""
    assert join_items("a,ccc,bb,dd") == "^ccc$|^bb$|^dd$|^a$"


@pytest.mark.parametrize(
    ("include", "schema", "table", "accepted"),
    [
        (r".*\..*", "any", "thing", True),
        (r"test\..*", "test", "user", True),
        (r"test\..*", "test2", "user", False),
        (r"TEST\.User", "Test", "USER", True),
        (r"test.user", "testx", "user", False),
        (r"test\.user", "test", "user2", False),
        (r"test\.user.*", "test", "user\n2", True),
        (r"test\.a|test\.b", "test", "b", True),
        (r"a|test\.b", "xtest", "b", False),
        (r"test\.t\d{1,2}", "test", "t12", True),
        (r"test\.t\d{1,2}", "test", "t123", False),
        (r"foo,fo.*\.t", "fooo", "t", True),
        ("", "a", "b", True),
        (r"test\.[[:alpha:]]", "test", "x", True),
        (r"test\.[[:alpha:]]", "test", "7", False),
        (r"测试\..*", "测试", "表", True),
        (r"test\.a++", "test", "aaa", True),
    ],
)
def test_names_match_as_a_whole(include: str, schema: str, table: str, accepted: bool) -> None:
    """An expression must match the whole of schema.table, in any letter case; an empty list accepts every table."""
    assert TableFilter(include, "").accepts(schema, table) is accepted


def test_exclude_wins() -> None:
    """A table that the exclude list names is rejected, even if the include list accepts it."""
    tables = TableFilter(r"test\..*", r"test\.secret,mysql\.slave_.*")
    assert tables.accepts("test", "open")
    assert not tables.accepts("test", "SECRET")
    assert not TableFilter("", r"mysql\.slave_.*").accepts("mysql", "slave_master_info")


@pytest.mark.parametrize(
    "bad",
    [
        "test.(",
        "*",
        r"a\.b,[",
        r"\pL\.x",
        r"\Qa.b\E",
        r"(?<n>a)\.b",
        r"(?R)",
        r"(?=x)(?P<n>a),(?P<n>b)x",
        r"(?=a)a{e}",
        r"a\.\z",
    ],
)
def test_what_is_no_regular_expression_here_is_refused(bad: str) -> None:
    """Syntax errors and Perl-only syntax raise FilterInvalid in either list."""
    with pytest.raises(FilterInvalid, match="filter"):
        TableFilter(bad, "")
    with pytest.raises(FilterInvalid):
        TableFilter("", bad)


def test_client_filter_replaces_or_narrows() -> None:
    """REPLACE uses the client's list alone, AND requires both; the server's exclude list applies in either case."""
    server, black = r"a\..*", r"a\.secret"
    replaced = effective(server, black, r"b\..*,a\.secret", FilterMode.REPLACE)
    assert replaced.accepts("b", "x")
    assert not replaced.accepts("a", "x")
    assert not replaced.accepts("a", "secret")
    both = effective(server, black, r".*\.x", FilterMode.AND)
    assert both.accepts("a", "x")
    assert not both.accepts("b", "x")
    assert not both.accepts("a", "y")
    assert effective(server, black, "", FilterMode.AND).accepts("a", "y")
    with pytest.raises(FilterInvalid):
        effective(server, black, "(", FilterMode.REPLACE)


@given(st.text(alphabet="aAbB.\n%", max_size=8), st.text(alphabet="aAbB.\n%", max_size=8))
def test_decisions_are_those_of_the_joined_expressions(schema: str, table: str) -> None:
    """The first answer and the cached one equal a full match of the joined lists with the lower-case name."""
    include, exclude = r"a.*\..*,.*\.a", r".*\..*b.*"
    name = f"{schema}.{table}".lower()

    def matches(text: str) -> bool:
        return re.fullmatch(join_items(text), name, re.IGNORECASE | re.DOTALL) is not None

    tables = TableFilter(include, exclude)
    expected = matches(include) and not matches(exclude)
    assert tables.accepts(schema, table) is expected
    assert tables.accepts(schema, table) is expected


def test_field_lists() -> None:
    """The include list decides for the tables it names, the exclude list for others; letter case does not matter."""
    fields = FieldFilter("s.t:id/Name", "s.t:id,s.u:secret/x, s.v : a ,odd,a:b:c,s.w:")
    assert fields.keeps("S", "T", "ID")
    assert fields.keeps("s", "t", "name")
    assert not fields.keeps("s", "t", "other")
    assert not fields.keeps("s", "u", "SECRET")
    assert fields.keeps("s", "u", "id")
    assert not fields.keeps("s", "v", "a")
    assert fields.touches("s", "T")
    assert fields.touches("s", "u")
    assert not fields.touches("s", "w")
    assert not fields.touches("odd", "")
    assert not FieldFilter("", "").touches("s", "t")
