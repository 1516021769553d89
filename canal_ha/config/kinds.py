"""Kinds of values: the syntax of a value and the Python value that it becomes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from canal_ha.config.model import NOBODY

T = TypeVar("T", covariant=True)
E = TypeVar("E", bound=Enum)

DESTINATION_BYTES = 128  # longest name of a destination

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^\s:\[\]/@,]+))(?::(?P<port>\d{1,5}))?")
_TEMPLATE = re.compile(r"(?:.*[/:])?(memory|file|default|local|group)-instance\.xml")
_PASSWORD_HASH = re.compile(r"\*?([0-9A-Fa-f]{40})")


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """A kind of value.

    expected: what a valid value looks like, for messages.
    read: converts a trimmed text or raises ValueError; gets a blank text only as a default.
    """

    expected: str
    read: Callable[[str], T]


def text() -> ValueKind[str]:
    """Accept any text, also an empty one."""
    return ValueKind("a text", str)


def path() -> ValueKind[str]:
    """Accept the path of a file, or nothing; refuse the lines of a file, which `${file:PATH}` would give."""

    def read(value: str) -> str:
        if any(character < " " for character in value):
            raise ValueError(value)
        return value

    return ValueKind("the path of a file", read)


def whole(low: int, high: int) -> ValueKind[int]:
    """Accept a whole number from `low` to `high`."""

    def read(value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", value) or not low <= int(value) <= high:
            raise ValueError(value)
        return int(value)

    return ValueKind(f"a whole number from {low} to {high}", read)


def decimal(low: float) -> ValueKind[float]:
    """Accept a number of at least `low`, with or without fraction."""

    def read(value: str) -> float:
        if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", value) or float(value) < low:
            raise ValueError(value)
        return float(value)

    return ValueKind(f"a number of at least {low:g}", read)


def switch() -> ValueKind[bool]:
    """Accept true or false in any case, and Spring's synonyms of them."""
    words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}

    def read(value: str) -> bool:
        try:
            return words[value.lower()]
        except KeyError:
            raise ValueError(value) from None

    return ValueKind("true or false", read)


def word(*choices: str) -> ValueKind[str]:
    """Accept one of the words in any case; return it as listed."""
    listed = {choice.lower(): choice for choice in choices}

    def read(value: str) -> str:
        if value.lower() not in listed:
            raise ValueError(value)
        return listed[value.lower()]

    return ValueKind(" or ".join(choices), read)


def server_mode() -> ValueKind[str]:
    """Accept tcp and kafka; say what to use instead of canal's other modes."""
    known = word("tcp", "kafka")
    return ValueKind(
        "tcp or kafka. For RocketMQ, RabbitMQ and Pulsar, set tcp and run a pipeline that sends rows over HTTP, or set"
        " kafka and connect the queue to Kafka (docs/how-to/migrate-from-canal.md)",
        known.read,
    )


def pipeline_name() -> ValueKind[str]:
    """Accept a name of letters, digits and the characters `.`, `_` and `-`."""

    def read(value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", value):
            raise ValueError(value)
        return value

    return ValueKind("a name of letters, digits, `.`, `_` and `-`, at most 100", read)


def words(*choices: str) -> ValueKind[tuple[str, ...]]:
    """Accept a comma-separated list of the words."""
    one = word(*choices)

    def read(value: str) -> tuple[str, ...]:
        found = tuple(one.read(item.strip()) for item in value.split(",") if item.strip())
        if not found:
            raise ValueError(value)
        return found

    return ValueKind(f"a comma-separated list of {', '.join(choices)}", read)


def member(enum: type[E]) -> ValueKind[E]:
    """Accept the value of an enumeration's member, in any case."""
    one = word(*(str(choice.value) for choice in enum))
    return ValueKind(one.expected, lambda value: enum(one.read(value)))


def address() -> ValueKind[tuple[str, int] | None]:
    """Accept host:port or [IPv6 address]:port, with default port 3306; an empty text is None."""

    def read(value: str) -> tuple[str, int] | None:
        if not value:
            return None
        match = _ADDRESS.fullmatch(value)
        if not match or not 0 < int(match["port"] or 3306) < 65536:
            raise ValueError(value)
        return match["v6"] or match["name"], int(match["port"] or 3306)

    return ValueKind("host:port or [IPv6 address]:port", read)


def zookeepers() -> ValueKind[str]:
    """Accept host:port,host:port with an optional /chroot, or nothing; canal's `;` between groups becomes a comma."""

    def read(value: str) -> str:
        hosts, slash, root = value.partition("/")
        items = [item.strip() for item in re.split("[,;]", hosts) if item.strip()]
        for item in items:
            match = _ADDRESS.fullmatch(item)
            if not match or not 0 < int(match["port"] or 2181) < 65536:
                raise ValueError(value)
        if value and not items:
            raise ValueError(value)
        return ",".join(items) + slash + root.strip()

    return ValueKind("host:port,host:port with an optional /chroot after the last", read)


def template() -> ValueKind[str]:
    """Accept canal's file name of an instance template; return memory, file, default, local or group."""

    def read(value: str) -> str:
        match = _TEMPLATE.fullmatch(value)
        if not match:
            raise ValueError(value)
        return match[1]

    return ValueKind(
        "classpath:spring/default-instance.xml, file-instance.xml, memory-instance.xml, local-instance.xml or"
        " group-instance.xml",
        read,
    )


_CODECS = {  # names that Python lacks or understands differently from Java
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf-16": "utf-16-be",
    "utf-32": "utf-32-be",
    "windows-31j": "cp932",
    "windows-949": "cp949",
    "x-windows-949": "cp949",
    "x-windows-950": "cp950",
    "x-windows-874": "cp874",
    "x-macroman": "mac_roman",
    "x-maccentraleurope": "mac_latin2",
}


def charset() -> ValueKind[str]:
    """Accept Java's, MySQL's or Python's name of a character set; return the name of a Python codec."""

    def read(value: str) -> str:
        name = _CODECS.get(value.lower(), value)
        try:
            "".encode(name)  # raises for unknown codecs and for codecs that do not encode text
        except LookupError:
            raise ValueError(value) from None
        return codecs.lookup(name).name

    return ValueKind("a character set such as UTF-8", read)


def password_hash() -> ValueKind[str]:
    """Accept the output of MySQL's old PASSWORD(); return it without the star. An empty text disables the check."""

    def read(value: str) -> str:
        match = _PASSWORD_HASH.fullmatch(value)
        if value and not match:
            raise ValueError(value)
        return match[1].lower() if match else ""

    return ValueKind("40 hexadecimal digits, SHA1(SHA1(password)), not the password itself", read)


def column_list() -> ValueKind[str]:
    """Accept schema.table:column/column,... canal ignores an invalid item, which would expose a hidden column."""
    item = re.compile(r"[^:,]+\.[^:,]+:[^:,/]+(/[^:,/]+)*")

    def read(value: str) -> str:
        if not all(item.fullmatch(part.strip()) for part in value.split(",") if part.strip()):
            raise ValueError(value)
        return value

    return ValueKind("schema.table:column/column,schema.table:column", read)


def column_rules() -> ValueKind[str]:
    r"""Accept schema\.table:column/column,... with a regular expression for the table, which has no comma."""
    item = re.compile(r"[^,]*\.[^,]*:[^:,/]+(/[^:,/]+)*")

    def read(value: str) -> str:
        if not all(item.fullmatch(part.strip()) for part in value.split(",") if part.strip()):
            raise ValueError(value)
        return value

    return ValueKind(r"schema\.table:column/column,schema\.table:column", read)


def secret(least: int) -> ValueKind[str]:
    """Accept a text of so many characters at least, or nothing."""

    def read(value: str) -> str:
        if value and len(value) < least:
            raise ValueError(value)
        return value

    return ValueKind(f"at least {least} characters", read)


def credentials() -> ValueKind[str]:
    """Accept user:password, neither of them empty, or nothing."""

    def read(value: str) -> str:
        user, _, password = value.partition(":")
        if value and not (user and password):
            raise ValueError(value)
        return value

    return ValueKind("user:password", read)


def earlier_credentials() -> ValueKind[str]:
    """Accept what `credentials` does, or `nobody`."""

    def read(value: str) -> str:
        return value if value == NOBODY else credentials().read(value)

    return ValueKind(f"user:password, or {NOBODY}", read)


def names() -> ValueKind[tuple[str, ...]]:
    """Accept comma-separated destination names, each valid as a directory and as a znode."""

    def read(value: str) -> tuple[str, ...]:
        items = [item.strip() for item in value.split(",") if item.strip()]
        return tuple(dict.fromkeys(destination(item) for item in items))

    expected = f"comma-separated names without blanks and slashes, of at most {DESTINATION_BYTES} bytes each"
    return ValueKind(expected, read)


def labels() -> ValueKind[tuple[str, ...]]:
    """Accept comma-separated name=value pairs, each name once, or nothing."""

    def read(value: str) -> tuple[str, ...]:
        items = [item.strip() for item in value.split(",") if item.strip()]
        names = {item.partition("=")[0] for item in items if re.fullmatch(r"[^\s=,]+=[^\s=,]+", item)}
        if len(names) != len(items):
            raise ValueError(value)
        return tuple(items)

    return ValueKind("comma-separated labels as zone=a, each name once", read)


def numbered_names() -> ValueKind[tuple[str, ...]]:
    """Accept prefix{1-32}, which becomes prefix1 ... prefix32, or nothing."""

    def read(value: str) -> tuple[str, ...]:
        if not value:
            return ()
        match = re.fullmatch(r"([^{}\s/]+)\{([0-9]+)-([0-9]+)\}", value)
        if not match or int(match[2]) > int(match[3]) or int(match[3]) - int(match[2]) >= 10_000:
            raise ValueError(value)
        return tuple(destination(f"{match[1]}{number}") for number in range(int(match[2]), int(match[3]) + 1))

    return ValueKind("prefix{1-32}", read)


def destination(name: str) -> str:
    """Return the name if it is valid as a directory and as a znode. Raises ValueError if not."""
    plain = re.fullmatch(r"[^\s/\\\x00-\x1f\x7f\ud800-\udfff]+", name) and name not in (".", "..")
    if not plain or len(name.encode()) > DESTINATION_BYTES:
        raise ValueError(name)
    return name
