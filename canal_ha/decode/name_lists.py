r"""canal's lists of regular expressions, matched in bounded time (docs/protocol.md#filter-language).

A client's list is matched by RE2, whose time grows with the length of a name and with nothing else. What RE2 cannot
express is refused. The server's own lists fall back to the `regex` module, with a limit in time: an expression that
takes too long stops the stream, and is never taken for an answer.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from threading import Lock

import re2
import regex

from canal_ha.decode.re2_syntax import Foreign, NoExpression, NotExpressible, TooLarge, translate
from canal_ha.errors import FilterInvalid
from canal_ha.model.excerpt import excerpt

CLIENT_FILTER_BYTES = 4096
PROGRAM_BYTES = 8 * 1024 * 1024  # of one compiled list in RE2: 150 items with \w+; it takes some 0.1 s to compile
CLASSES_MOST = 400  # of Unicode in one list, two for each \w: RE2 needs 0.15 ms for each, whatever its memory
REST = 9  # times as long as a compilation took: nobody else compiles, so that other threads have the interpreter
RESTS_FROM_S = 0.005  # of a compilation
SYNTAX_BYTES = 64 * 1024  # enough to find a mistake in one item, without compiling it
COMPILED_LISTS = 8  # kept: a list is compiled when a client subscribes and again when its stream opens
MATCH_LIMIT_S = 1.0  # for one name and one of the server's lists that RE2 cannot express

_CLOSING = {"}": "{", "]": "[", ")": "("}
_FUZZY = re.compile(r"(?<!\\)\{[^0-9,}]")  # the regex module reads a{e} as `a with errors`; Python as four characters
_TOO_LARGE = ("too large", "invalid repetition size", "nest")  # in RE2's words
_EVERY_TABLE = ("*", "*.*", r"*\.*")  # as in a shell
_FLAGS_ON = re.compile(r"\(\?[is]+\)")  # flags that hold anyway
_SURROGATE = re.compile("[\ud800-\udfff]")
_COMPILING = Lock()  # RE2 compiles under the interpreter's lock: the reactor shall not wait for all who queue for it

Match = Callable[[str], bool]


def split_items(text: str) -> list[str]:
    """Cut a list at its commas, except inside brackets and after a backslash; empty items vanish, blanks stay."""
    items: list[str] = []
    start = index = 0
    depth = dict.fromkeys("{[(", 0)  # counted apart and never below zero, as canal does
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
    """The one expression canal makes of a list: longest item first, each wrapped as `^item$`."""
    return "|".join(map(_anchored, sorted(split_items(text), key=len, reverse=True)))


def _anchored(item: str) -> str:
    """`^item$`, without flags at its beginning that hold anyway: Python takes none behind `^`."""
    return f"^{_FLAGS_ON.sub('', item, count=1) if _FLAGS_ON.match(item) else item}$"


def match_of_client(text: str) -> Match | None:
    """What tells whether a client's list matches a whole name, None when the list is empty.

    Raises FilterInvalid for more than CLIENT_FILTER_BYTES, and for what RE2 cannot express.
    """
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > CLIENT_FILTER_BYTES:
        raise FilterInvalid(
            f"table filter of {size_bytes} bytes: a client's filter has at most {CLIENT_FILTER_BYTES} bytes;"
            " subscribe with a shorter one, or put the list into the server's canal.instance.filter.regex"
        )
    try:
        return _linear(text)
    except _Refused as refused:
        raise FilterInvalid(f"table filter {excerpt(refused.item)!r} {_told(refused)}") from refused


def match_of_server(text: str) -> Match | None:
    """The same for a list of the server's configuration: RE2 if it can express the list, else the `regex` module.

    Raises FilterInvalid, naming the item at fault, for what is no regular expression; the match raises it when it takes
    longer than MATCH_LIMIT_S.
    """
    try:
        return _linear(text)
    except _Refused:
        return _limited(text)


class _Refused(Exception):
    """RE2 cannot take an item, for a reason."""

    def __init__(self, item: str, reason: NotExpressible) -> None:
        super().__init__(str(reason))
        self.item = item
        self.reason = reason


def _told(refused: _Refused) -> str:
    """What a client is told behind the item: what is wrong, and what to do."""
    reason = refused.reason
    if isinstance(reason, NoExpression):
        every = r". To match every table write .*\..*" if refused.item in _EVERY_TABLE else ""
        return f"is no regular expression: {reason}{every}"
    if isinstance(reason, Foreign):
        return f"is no regular expression that canal-ha knows: {reason}; write it without"
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
    """The item that RE2 cannot read; the whole list when its items are good one by one, and only too many."""
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
    """RE2's words; without the expression at fault where that is long, or ours and not what the client wrote."""
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
            re2.purge()  # it would keep the last 128
            took_s = time.thread_time() - began
            if took_s > RESTS_FROM_S:
                time.sleep(REST * took_s)


def _utf8(name: str) -> bytes:
    """A name for RE2. Half a surrogate pair, which UTF-8 cannot hold, counts as any character that is no letter."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", name).encode()


# ---- what RE2 cannot express, from the server's own files


def _limited(text: str) -> Match:
    """A match by backtracking. Python's `re` judges whether it is an expression; the `regex` module knows more."""
    items = split_items(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of sets in sets, which mean here what they always did
        for item in items:
            if _FUZZY.search(item):
                raise FilterInvalid(rf"table filter {item!r}: write \{{ for a brace that stands for itself")
            _checked(item, _anchored(item))
        joined = join_items(text)
        _checked(text, joined)  # a group name used twice is no fault of one item
    alone = {item: _backtracking(_anchored(item)) for item in items}
    expression = _backtracking(joined)

    def match(name: str) -> bool:
        try:
            return _fullmatch(expression, name)
        except TimeoutError:
            slow = next((item for item in items if _times_out(alone[item], name)), text)
            raise FilterInvalid(
                f"table filter {excerpt(slow)!r} takes longer than {MATCH_LIMIT_S:g} s to match {excerpt(name)!r}:"
                " write it without nested repeats, or without what RE2 lacks, in canal.instance.filter.regex or"
                " canal.instance.filter.black.regex"
            ) from None

    return match


def _checked(item: str, expression: str) -> None:
    """Raises FilterInvalid for what is no expression in Python's `re`."""
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
