r"""canal's lists of regular expressions, matched in bounded time (docs/protocol.md#filter-language).

RE2 matches a client's list, in time that depends on the length of the name only. What RE2 cannot express is refused.
The server's own lists fall back to the `regex` module, with a time limit: an expression that exceeds it stops the
stream, and never counts as an answer.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import TypeVar

import re2
import regex

from canal_ha.decode.re2_syntax import Foreign, NoExpression, NotExpressible, TooLarge, translate
from canal_ha.errors import FilterInvalid
from canal_ha.model.excerpt import excerpt

CLIENT_FILTER_BYTES = 4096
PROGRAM_BYTES = 8 * 1024 * 1024  # of one list compiled by RE2: 150 items with \w+, which take some 0.1 s to compile
CLASSES_MOST = 400  # Unicode classes in one list, two for each \w: RE2 needs 0.15 ms for each, whatever its memory
REST = 9  # pause after a compilation, as a multiple of its time, so that other threads get the interpreter
RESTS_FROM_S = 0.005  # shortest compilation that a pause follows
SYNTAX_BYTES = 64 * 1024  # enough to find a mistake in one item without compiling it
COMPILED_LISTS = 8  # kept: a list is compiled when a client subscribes and again when its stream opens
TABLES_KEPT = 65536  # decisions of each list; a binlog names few tables, unless somebody invents names
MATCH_LIMIT_S = 1.0  # for one name and one of the server's lists that RE2 cannot express

_CLOSING = {"}": "{", "]": "[", ")": "("}
_FUZZY = re.compile(r"(?<!\\)\{[^0-9,}]")  # `regex` reads a{e} as `a with errors`; Python reads four characters
_NEWER_END = re.compile(r"(?<!\\)(?:\\\\)*\\z")  # Python knows it since 3.14; all nodes must read a list alike
_TOO_LARGE = ("too large", "invalid repetition size", "nest")  # parts of RE2's messages
_EVERY_TABLE = ("*", "*.*", r"*\.*")  # as in a shell
_FLAGS_ON = re.compile(r"\(\?[is]+\)")  # flags that are always on
_SURROGATE = re.compile("[\ud800-\udfff]")
_COMPILING = Lock()  # RE2 compiles under the interpreter's lock: the reactor must not wait for all queued threads

Match = Callable[[str], bool]
T = TypeVar("T")


def by_table(decide: Callable[[str], T]) -> Callable[[str, str], T]:
    """Return what decides for a schema and a table, and keeps its decisions.

    decide: for `schema.table` in lower case.
    """

    @lru_cache(TABLES_KEPT)
    def decided(schema: str, table: str) -> T:
        return decide(f"{schema}.{table}".lower())

    return decided


def split_items(text: str) -> list[str]:
    """Split a list at its commas, except inside brackets and after a backslash; drop empty items, keep blanks."""
    items: list[str] = []
    start = index = 0
    depth = dict.fromkeys("{[(", 0)  # counted separately and never below zero, as in canal
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 1
        elif char in depth:
            depth[char] += 1
        elif char in _CLOSING:
            depth[_CLOSING[char]] = max(depth[_CLOSING[char]] - 1, 0)
        elif char == "," and not any(depth.values()):
            items.append(text[start:index])
            start = index + 1
        index += 1
    items.append(text[start:])
    return [item for item in items if item]


def join_items(text: str) -> str:
    """Return the expression that canal makes of a list: longest item first, each wrapped as `^item$`."""
    return "|".join(map(_anchored, sorted(split_items(text), key=len, reverse=True)))


def _anchored(item: str) -> str:
    """Return `^item$` without leading flags that are always on, because Python allows none after `^`."""
    return f"^{_FLAGS_ON.sub('', item, count=1) if _FLAGS_ON.match(item) else item}$"


def match_of_client(text: str) -> Match | None:
    """Return the match of a client's list against whole names; None if the list is empty.

    Raises FilterInvalid for more than CLIENT_FILTER_BYTES, and for syntax that RE2 cannot express.
    """
    check_size_of_client(text)
    try:
        return _linear(text)
    except _Refused as refused:
        raise FilterInvalid(f"table filter {excerpt(refused.item)!r} {_explained(refused)}") from refused


def check_size_of_client(text: str) -> None:
    """Raise FilterInvalid for a client's list of more than CLIENT_FILTER_BYTES."""
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > CLIENT_FILTER_BYTES:
        raise FilterInvalid(
            f"table filter of {size_bytes} bytes: a client's filter has at most {CLIENT_FILTER_BYTES} bytes;"
            " subscribe with a shorter one, or put the list into the server's canal.instance.filter.regex"
        )


def match_of_server(text: str) -> Match | None:
    """Return the match of a list in the server's configuration, by RE2 if possible, else by the `regex` module.

    Raises FilterInvalid, naming the item at fault, for an invalid expression. The match itself raises it when it takes
    longer than MATCH_LIMIT_S.
    """
    try:
        return _linear(text)
    except _Refused:
        return _limited(text)


class _Refused(Exception):
    """RE2 cannot express an item. reason: why."""

    def __init__(self, item: str, reason: NotExpressible) -> None:
        super().__init__(str(reason))
        self.item = item
        self.reason = reason


def _explained(refused: _Refused) -> str:
    """Return what is wrong with the item and what to do, for the client's message."""
    reason = refused.reason
    if isinstance(reason, NoExpression):
        every = r". To match every table write .*\..*" if refused.item in _EVERY_TABLE else ""
        return f"is not a regular expression: {reason}{every}"
    if isinstance(reason, Foreign):
        return f"is not a regular expression that canal-ha supports: {reason}; write it without that"
    if isinstance(reason, TooLarge):
        return (
            "cannot be used: the list is too large once its repeats are written out:"
            r" use fewer or smaller repeats such as \w{m,n}"
        )
    return (
        f"cannot be used: clients' filters may not use {reason}. Subscribe with another one, or put this one into"
        " canal.instance.filter.regex or canal.instance.filter.black.regex of the server's own instance.properties"
    )


@lru_cache(COMPILED_LISTS)
def _linear(text: str) -> Match | None:
    translated: list[str] = []
    for item in sorted(split_items(text), key=len, reverse=True):
        try:
            translated.append(translate(_anchored(item)))
        except NotExpressible as reason:
            raise _Refused(item, reason) from reason
    if not translated:
        return None
    joined = "|".join(translated)
    classes = joined.count(r"\p{") + joined.count(r"\P{")
    if classes > CLASSES_MOST:
        raise _Refused(text, NotExpressible(rf"{classes} Unicode classes, two for each \w; {CLASSES_MOST} are allowed"))
    try:
        expression = _compiled(joined)
    except re2.error as error:
        raise _at_fault(text, error) from error
    return lambda name: expression.fullmatch(_utf8(name)) is not None


def _at_fault(text: str, error: Exception) -> _Refused:
    """Return the item that RE2 cannot read; the whole list if its items are valid but too many."""
    for item in split_items(text):
        try:
            _compiled(translate(_anchored(item)), SYNTAX_BYTES)
        except re2.error as reason:
            words = _reason(reason)
            if not _says_too_large(words):
                return _Refused(item, NoExpression(words))
    words = _reason(error)
    return _Refused(text, TooLarge(words) if _says_too_large(words) else NoExpression(words))


def _says_too_large(words: str) -> bool:
    return any(each in words for each in _TOO_LARGE)


def _reason(error: Exception) -> str:
    """Return RE2's message, without the expression at fault if that is long or not the client's own text."""
    said = error.args[0] if error.args else b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    words, _, fragment = text.strip().partition(": ")
    return words if len(fragment) > 20 or "\\z" in fragment or "(" in fragment else text.strip()


def _compiled(expression: str, size_bytes: int = PROGRAM_BYTES) -> re2._Regexp:
    options = re2.Options()
    options.case_sensitive = False
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = size_bytes
    with _COMPILING:
        began = time.thread_time()
        try:
            return re2.compile(expression, options)
        finally:
            re2.purge()  # RE2 would cache the last 128
            took_s = time.thread_time() - began
            if took_s > RESTS_FROM_S:
                time.sleep(REST * took_s)


def _utf8(name: str) -> bytes:
    """Encode a name for RE2. A lone surrogate, which UTF-8 cannot hold, becomes a character that is no letter."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", name).encode()


# ---- what RE2 cannot express, in the server's own files


def _limited(text: str) -> Match:
    """Return a match by backtracking. Python's `re` decides validity, because `regex` accepts more."""
    items = split_items(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about nested sets, which keep their old meaning here
        for item in items:
            if _FUZZY.search(item):
                raise FilterInvalid(rf"table filter {item!r}: write \{{ for a literal brace")
            if _NEWER_END.search(item):
                raise FilterInvalid(rf"table filter {item!r}: write \Z, not \z, for the very end of the name")
            _checked(item, _anchored(item))
        joined = join_items(text)
        _checked(text, joined)  # a group name that two items use is not the fault of one item
    alone = {item: _backtracking(_anchored(item)) for item in items}
    expression = _backtracking(joined)

    def match(name: str) -> bool:
        try:
            return _fullmatch(expression, name)
        except TimeoutError:
            slow = next((item for item in items if _times_out(alone[item], name)), text)
            raise FilterInvalid(
                f"table filter {excerpt(slow)!r} takes longer than {MATCH_LIMIT_S:g} s to match {excerpt(name)!r}:"
                " write it without nested repeats, or without syntax that RE2 lacks, in canal.instance.filter.regex or"
                " canal.instance.filter.black.regex"
            ) from None

    return match


def _checked(item: str, expression: str) -> None:
    """Raise FilterInvalid for an expression that is invalid in Python's `re`."""
    try:
        re.compile(expression, re.IGNORECASE | re.DOTALL)
        _backtracking(expression)
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        raise FilterInvalid(f"table filter {excerpt(item)!r} is not a regular expression: {error}") from error


def _backtracking(expression: str) -> regex.Pattern[str]:
    return regex.compile(expression, regex.IGNORECASE | regex.DOTALL | regex.VERSION0)


def _fullmatch(expression: regex.Pattern[str], name: str) -> bool:
    return expression.fullmatch(name, timeout=MATCH_LIMIT_S, concurrent=True) is not None


def _times_out(expression: regex.Pattern[str], name: str) -> bool:
    try:
        _fullmatch(expression, name)
    except TimeoutError:
        return True
    return False
