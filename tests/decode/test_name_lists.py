# ruff: noqa: RUF001  # letters that look alike are what is tested
"""Lists of names in RE2: a list decides as it does in Python's `re`, or it is refused."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from canal_ha.decode import name_lists
from canal_ha.decode.name_lists import CLIENT_FILTER_BYTES, Match, join_items, match_of_client, match_of_server
from canal_ha.decode.re2_syntax import translate
from canal_ha.errors import FilterInvalid

LETTERS = "aikszAIKSZßéÉışİſωΩςσ测٣_09 .-\n"  # some fold in Python and not in RE2, or the other way round
NAMES = st.text(alphabet=LETTERS.lower() + "xµ", max_size=6)
LITERALS = st.sampled_from(LETTERS).map(re.escape)
MEMBERS = st.sampled_from(["a", "i", "I", "ı", "é", "_", r"\.", r"\d", r"\w", r"\s", r"\S", r"\D", "a-z", "A-Z", "α-ω",
                           r"\x41-\x49", "0-9", "-", "[", "&&", "||", r"\n", r"\101", r"\u0131"])  # fmt: skip
SETS = st.tuples(st.sampled_from(["[", "[^"]), st.lists(MEMBERS, min_size=1, max_size=3).map("".join)).map(
    lambda parts: f"{parts[0]}{parts[1]}]"
)
ATOMS = (
    LITERALS
    | SETS
    | st.sampled_from(
        [".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\A", r"\Z", "^", "$", r"\.", r"\x61", r"\u00e9"]
    )
    | st.sampled_from([r"\n", r"\t", r"\07", r"\101", "{", "}", "{}", "{a}", "a{1", "]", "(?#note)", r"\-", r"\é"])
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{1,}", "{,}", "{0}"])


def _grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.tuples(st.sampled_from(["(", "(?:", "(?i:", "(?s:"]), inner).map(lambda parts: f"{parts[0]}{parts[1]})")
    return (
        st.lists(st.tuples(ATOMS | groups, REPEATS).map("".join), min_size=1, max_size=4).map("".join)
        | st.lists(inner, min_size=2, max_size=3).map("|".join)
        | groups
    )


ITEMS = st.recursive(st.tuples(ATOMS, REPEATS).map("".join), _grouped, max_leaves=8)
LISTS = st.lists(ITEMS, min_size=1, max_size=3).map(",".join)


def formerly(text: str, name: str) -> bool:
    """Return what `re` decides. Raises re.error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(join_items(text), re.IGNORECASE | re.DOTALL).fullmatch(name) is not None


@given(LISTS, st.lists(NAMES, min_size=1, max_size=8))
@example("a$.", ["a\n", "a"])
@example(r"\w+", ["测试", "ſ", "µ", "٣"])
@example("[a-z]", ["ſ", "ı", "µ"])
@example("[^i]", ["ı", "i", "x"])
@example("kayit", ["kayıt"])
@example("a{,2},b", ["", "a", "aa", "aaa", "a{,2}"])
@example(r"a\,", ["a,", "a$", "a"])
@example("a\\", ["a$", "a"])
@example("(a$|b)x*", ["a", "a\n", "b"])
@example("(?:.$)*", ["x\n"])
@example("a*(?#note)??", ["a"])
def test_re2_decides_as_re_did(text: str, names: list[str]) -> None:
    """A list that RE2 takes accepts the same names as in `re`; RE2 takes no list that `re` refuses."""
    try:
        matches = match_of_client(text)
    except FilterInvalid:
        return
    assume(matches is not None)
    assert matches
    assert [matches(name) for name in names] == [formerly(text, name) for name in names]


def test_single_characters_match_as_in_re() -> None:
    r"""Classes, ranges and letters match the same characters as in `re`, for all that MySQL allows in a name."""
    characters = [chr(code).lower() for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    newer = {"\u0345"}  # RE2 counts it among the letters
    for text in (
        r"\w",
        r"\W",
        r"\d",
        r"\D",
        r"\s",
        r"\S",
        r"[\w.]",
        r"[^\s]",
        ".",
        "[a-z]",
        "[^A-Z]",
        "[α-ω]",
        "i",
        "k",
    ):
        matches = match_of_server(text)
        assert matches
        former = re.compile(text, re.IGNORECASE | re.DOTALL).fullmatch
        wrong = {each for each in characters if matches(each) is not (former(each) is not None)}
        assert wrong <= newer, (text, sorted(map(ascii, wrong)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"(?=a).*", r"look-ahead (?=…)"),
        (r"(?!mysql)\w+\..*", r"look-ahead (?!…)"),
        (r".*(?<=a)", "look-behind (?<=…)"),
        (r".*(?<!a)", "look-behind (?<!…)"),
        (r"(a)\.\1", r"the back reference \1"),
        (r"(?P<n>a)(?P=n)", "the back reference (?P=…)"),
        (r"a++", "the possessive quantifier ++"),
        (r"a{2}+", "the possessive quantifier }+"),
        (r"(?>a)b", "the atomic group"),
        (r"(a)?(?(1)b|c)", "the condition"),
        (r"\bshop\b\..*", r"the word boundary \b"),
        (r"[\Wa]", r"\W inside [ ]"),
        (r"a$b", "$ with something after it"),
        (r"(?-i:A)", "the flags (?-i:…)"),
        (r"[[:graph:]]", "the class [:graph:]"),
        (r"\ud800", "a lone surrogate"),
    ],
)
def test_what_re2_cannot_express_is_refused_to_clients(text: str, reason: str) -> None:
    """The error names the item and the syntax, and the keys of the server's files where it is allowed."""
    with pytest.raises(FilterInvalid) as refused:
        match_of_client(f"good,{text}")
    assert str(refused.value).startswith(f"table filter {text!r} cannot be used: clients' filters may not use {reason}")
    assert "black.regex of the server's own instance.properties" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("*.*", r"nothing before the first * to repeat. To match every table write .*\..*"),
        ("*", r"nothing before the first * to repeat. To match every table write .*\..*"),
        ("*.orders", "nothing before the first * to repeat"),
        ("a*|*", "nothing before one * to repeat"),
        ("a**", "a repetition of the repetition *"),
        ("a{3,1}", "{3,1} counts from more to fewer"),
        ("(", "missing )"),
        ("a)", "unexpected )"),
        ("[", "a [ without a ]"),
        ("[z-a]", "a range in [ ] whose ends are not single characters in order"),
        (r"\u12", r"\u12 is incomplete: write \u and 4 hexadecimal digits"),
        (r"\U00110000", r"\U00110000 is not a character"),
    ],
)
def test_a_mistake_is_not_sent_to_the_servers_files(text: str, reason: str) -> None:
    """The error for a malformed expression names its reason, but not the server's files, which refuse it too."""
    with pytest.raises(FilterInvalid) as refused:
        match_of_client(text)
    assert str(refused.value) == f"table filter {text!r} is not a regular expression: {reason}"
    with pytest.raises(FilterInvalid):
        match_of_server(text)


@pytest.mark.parametrize("text", [r"\pL", r"\Qa.b\E", r"\h", "(?<n>a)", "a(?i)b", "(?m)a"])
def test_syntax_of_other_dialects_is_not_sent_to_the_servers_files(text: str) -> None:
    """The error for syntax of other dialects does not name the server's files, which refuse it too."""
    with pytest.raises(FilterInvalid, match="has no meaning here; write it without"):
        match_of_client(text)
    with pytest.raises(FilterInvalid):
        match_of_server(text)


@pytest.mark.parametrize("text", [r"\w{900}", "x{1001}", "(?:x{500}){3}", "a{" + "9" * 4_000 + "}", "a{100000000}"])
def test_a_list_that_is_too_large_is_told_so(text: str) -> None:
    """The error for a list that is too large says that repeats make it large."""
    with pytest.raises(FilterInvalid) as refused:
        match_of_client(text)
    assert r"the list is too large once its repeats are written out: use fewer or smaller repeats" in str(refused.value)
    assert "instance.properties" not in str(refused.value)


@pytest.mark.parametrize("match_of", [match_of_client, match_of_server])
@pytest.mark.parametrize("text", [r"other,(?i)Shop\.T", r"(?is)shop\.t", r"(?i)shop\.(?:t|T)"])
def test_flags_that_hold_anyway_may_begin_an_item(match_of: Callable[[str], Match | None], text: str) -> None:
    """An item may begin with the flags i and s, which always apply."""
    matches = match_of(text)
    assert matches
    assert matches("shop.t")
    assert not matches("shop.tt")


def test_flags_that_hold_anyway_may_stand_beside_what_re2_lacks() -> None:
    """A server's list may have such flags in one item and syntax that RE2 lacks in another."""
    matches = match_of_server(r"(?i)SHOP\.a,(?!shop)\w+\.b")
    assert matches
    assert [matches(name) for name in ("shop.a", "crm.b", "shop.b")] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (r"(?!mysql)\w+\..*", "shop.t", "mysql.t"),
        (r"(a)\.\1", "a.a", "a.b"),
        (r"a++\.b", "aa.b", "a.a"),
        (r"\bshop\b\..*", "shop.t", "shop2.t"),
        (r"a$\n", "a\n", "a"),
        (r"[[:alpha:]]\.x", "é.x", "1.x"),
        (r"\w{900}|x{1001}", "x" * 1001, "x"),
    ],
)
def test_the_servers_own_lists_may_say_more(text: str, yes: str, no: str) -> None:
    """A server's list may use syntax that RE2 lacks: it is matched by backtracking."""
    matches = match_of_server(text)
    assert matches
    assert matches(yes)
    assert not matches(no)


def test_a_list_of_the_server_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A match that takes too long raises FilterInvalid with the item; other threads run meanwhile."""
    monkeypatch.setattr(name_lists, "MATCH_LIMIT_S", 0.3)
    matches = match_of_server(r"(?=a)(?:a|aa)+z,fine")
    assert matches
    assert matches("fine")
    done, turns = threading.Event(), 0

    def counted() -> None:
        nonlocal turns
        while not done.wait(0.001):
            turns += 1

    other = threading.Thread(target=counted)
    other.start()
    began = time.monotonic()
    try:
        with pytest.raises(FilterInvalid, match=r"aa\)\+z.*longer than 0\.3 s"):
            matches("a" * 60 + ".c")
    finally:
        done.set()
        other.join()
    assert time.monotonic() - began < 10  # most of it is the pause after a compilation
    assert turns > 20


def test_client_filters_have_a_limit() -> None:
    """The limit for a client's filter counts bytes, not characters; a longer one is refused at once."""
    assert match_of_client("测" * (CLIENT_FILTER_BYTES // 3))
    for text in ("测" * (CLIENT_FILTER_BYTES // 3 + 1), "(" * 1_200_000):
        began = time.monotonic()
        with pytest.raises(FilterInvalid, match="4096 bytes"):
            match_of_client(text)
        assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(
    "text",
    [".*" * 20 + "z", "(x+x+)+y", "(a|a)*b", "(?:a?){500}" * 300, "(" * 900 + "a" + ")" * 900, ".*" * 2000 + "z"],
)
def test_hostile_filters_answer_in_time(text: str) -> None:
    """A hostile filter is compiled and answers within five seconds."""
    began = time.monotonic()
    matches = match_of_client(text)
    assert matches
    assert not matches("a" * 64 + "." + "x" * 64)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("text", ["$" * 4_000, "(a$|" * 999 + "b" + ")" * 999])
def test_many_line_ends_are_read_in_time(text: str) -> None:
    """The time to translate a filter grows with the number of its line ends, not with the square."""
    began = time.process_time()
    translate(text)
    assert time.process_time() - began < 0.2


def test_half_a_surrogate_pair_in_a_name() -> None:
    """Half a surrogate pair matches like any character that is not a letter."""
    matches = match_of_client(r"a.\.b")
    assert matches
    assert matches("a\ud800.b")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """A syntax error prints nothing on standard error, as RE2 would by default."""
    with pytest.raises(FilterInvalid):
        match_of_client("(")
    assert capfd.readouterr().err == ""


def test_a_comment_may_hold_an_escaped_bracket() -> None:
    """As in Python, an escaped bracket does not end a comment."""
    matches = match_of_client(r"test\.(?#\)(b)c")
    assert matches is not None
    assert matches("test.c")
    assert not matches("test.bc")


def test_a_list_of_many_classes_is_refused_before_it_is_compiled() -> None:
    r"""A list with 1,360 times \w is refused, because RE2 would compile it for long under the interpreter's lock."""
    began = time.thread_time()
    with pytest.raises(FilterInvalid, match="2720 Unicode classes"):
        match_of_client(r"\w*" * 1360)
    assert time.thread_time() - began < 0.2
    assert match_of_client(",".join(rf"s{number}\.\w+" for number in range(150)))


def test_compilations_leave_the_interpreter_to_others() -> None:
    """A client that sends list after list uses less than a fifth of a processor, because compilations pause."""
    lists = [r"shop\.\w{1,60}" + "x" * number for number in range(4)]
    used, began = time.thread_time(), time.monotonic()
    for text in lists:
        match_of_client(text)
    used = time.thread_time() - used
    assert used > 4 * 0.005
    assert used < 0.2 * (time.monotonic() - began)
