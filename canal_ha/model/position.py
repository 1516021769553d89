"""LogPosition: one place in one source's binlog, and canal's JSON for it (docs/protocol.md#cursor)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

from canal_ha.model.immutable import immutable
from canal_ha.model.surrogates import check_json

MOST_CHARACTERS = 1 << 20  # of a position's text: a znode holds a megabyte by default

TYPE_NAME = "com.alibaba.otter.canal.protocol.position.LogPosition"


@immutable
class BinlogServer:
    """The server whose binlog a position is in.

    address: host as configured.
    port: port as configured.
    server_id: the server's own id.
    identity: server_uuid or, on MariaDB, the server id; see LogPosition.server.
    """

    address: str
    port: int
    server_id: int
    identity: str


@immutable
class LogPosition:
    """A place in the binlog of one source.

    Equality ignores server, trail, origins, mark and snapshot.

    journal: file name.
    offset: start of the event in that file, bytes.
    timestamp_ms: time of the event, ms since 1970; 0 when unknown.
    server_id: the server that first wrote the event; it may differ from the server that is read.
    gtid: the executed GTID set, this transaction included; "" outside GTID mode, None when unknown.
    address: host of the MySQL server as configured (canal: identity).
    port: port of the MySQL server as configured.
    consumed: the event at `offset` is an acknowledged transaction end or DDL, so reading resumes after it.
    sub_index: entry within a compressed payload, whose entries share one offset.
    server: identity of the server that wrote this binlog: server_uuid, or server_id on MariaDB; "" when unknown.
    trail: fingerprints of the last delivered transactions, to find the place again in another server's binlog.
    origins: for each server, the fingerprint of the last transaction that it wrote first and that was read from it,
        and whether a replica that does not keep the order is read.
    mark: text that the client sent with its acknowledgement of this position; "" if none.
    snapshot: progress of the client's snapshot, a JSON object's text; "" if it never had one.
    part: number of the source, from 1, in a merged stream; 0 if there is one source.
    others: positions of the other sources at that moment, by number; () if there is one source.
    """

    journal: str
    offset: int
    timestamp_ms: int = 0
    server_id: int | None = None
    gtid: str | None = ""
    address: str = ""
    port: int = 3306
    consumed: bool = False
    sub_index: int = 0
    server: str = field(default="", compare=False)
    trail: str = field(default="", compare=False)
    origins: str = field(default="", compare=False)
    mark: str = field(default="", compare=False)
    snapshot: str = field(default="", compare=False)
    part: int = 0
    others: tuple[LogPosition, ...] = ()

    @classmethod
    def on(cls, server: BinlogServer, journal: str, offset: int, timestamp_ms: int = 0, gtid: str = "") -> LogPosition:
        """Return a position in the binlog of this server. The other arguments are the fields."""
        return cls(
            journal=journal,
            offset=offset,
            timestamp_ms=timestamp_ms,
            server_id=server.server_id,
            gtid=gtid,
            address=server.address,
            port=server.port,
            server=server.identity,
        )

    @property
    def order(self) -> tuple[str, int, int, bool, int]:
        """Sort key among positions of one source: journal name and number, offset, consumed, sub-index.

        A consumed event sorts behind each of its entries. The JSON form keeps `consumed` but not the sub-index.
        """
        base, number = split_journal(self.journal)
        return (base, number, self.offset, self.consumed, self.sub_index)

    @property
    def parts(self) -> tuple[LogPosition, ...]:
        """One position for each source, by number; only this one if there is one source."""
        if not self.others:
            return (self,)
        return tuple(sorted((replace(self, others=(), mark="", snapshot=""), *self.others), key=lambda each: each.part))

    @property
    def public(self) -> LogPosition:
        """The places as everybody may see them who may see the status.

        A trail and origins have hashes of rows without a key, so values can be guessed; a snapshot has keys of rows; a
        mark is the client's own text.
        """
        others = tuple(each.public for each in self.others)
        return replace(self, trail="", origins="", mark="", snapshot="", others=others)

    def of(self, part: int) -> LogPosition | None:
        """Return the position of the source with this number alone; None if it is not included."""
        return next((each for each in self.parts if each.part == part), None)

    def beside(self, others: Iterable[LogPosition]) -> LogPosition:
        """Return this position together with those of other sources; a position of the same source is left out."""
        kept = tuple(sorted((each for each in others if each.part != self.part), key=lambda each: each.part))
        return replace(self, others=kept)

    def covers(self, other: LogPosition) -> bool:
        """Return whether this position has reached `other` in every source that both include."""
        mine = {each.part: each.order for each in self.parts}
        return all(mine[each.part] >= each.order for each in other.parts if each.part in mine)

    def to_json(self, *, with_type: bool) -> str:
        """Return canal's exact text: no blanks, keys in alphabetical order, `@type` first in ZooKeeper, none in files.

        `consumed`, `mark` and `source` repeat the offset. They count only while the offsets agree, so an edit by hand
        invalidates them. canal ignores `part` and `others`: editing what canal reads moves this one source.
        """
        return json.dumps(self.to_dict(with_type=with_type), separators=(",", ":"), ensure_ascii=False)

    def to_dict(self, *, with_type: bool) -> dict[str, Any]:
        """Return the JSON object of `to_json`, for embedding in meta.dat."""
        entry: dict[str, Any] = {}
        if self.consumed:
            entry["consumed"] = self.offset
        if self.gtid is not None:
            entry["gtid"] = self.gtid
        entry |= {"included": False, "journalName": self.journal}
        if self.mark:
            entry["mark"] = {"at": self.offset, "journal": self.journal, "text": self.mark}
        entry["position"] = self.offset
        if self.server_id is not None:
            entry["serverId"] = self.server_id
        if self.snapshot:
            entry["snapshot"] = json.loads(self.snapshot)
        if self.server or self.trail:
            origins = {"origins": self.origins} if self.origins else {}
            entry["source"] = {"at": self.offset, **origins, "server": self.server, "trail": self.trail}
        entry["timestamp"] = self.timestamp_ms
        address = {"address": self.address, "port": self.port}
        body: dict[str, Any] = {"@type": TYPE_NAME} if with_type else {}
        body["identity"] = {"slaveId": -1, "sourceAddress": address}
        if self.others:
            body["others"] = [each.to_dict(with_type=False) for each in self.others]
        if self.part:
            body["part"] = self.part
        body["postion"] = entry
        return body

    @classmethod
    def from_json(cls, text: str) -> LogPosition:
        """Read a position that canal, an operator or canal-ha wrote.

        Accepts any key order, blanks, `4L` integers and missing fields. Raises ValueError that names the bad field, and
        for a text above MOST_CHARACTERS. The time grows with the length alone.
        """
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"a position of {len(text)} characters; at most {MOST_CHARACTERS} are read")
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, body: Any) -> LogPosition:
        """Read a position from parsed JSON, like `from_json`. Raises ValueError."""
        return cls._from_dict(body, others=True)

    @classmethod
    def _from_dict(cls, body: Any, *, others: bool) -> LogPosition:
        """Read a position. others: whether it may hold those of other sources, which hold none themselves."""
        entry = _object(_object(body, "a position").get("postion"), "`postion` of a position")
        identity = _object(body.get("identity") or {}, "`identity` of a position")
        source = _object(identity.get("sourceAddress") or {}, "`sourceAddress` of a position")
        offset = _integer(entry, "position", 0)
        journal = _text(entry, "journalName")
        marked = entry.get("mark")
        if not isinstance(marked, dict) or (marked.get("at"), marked.get("journal")) != (offset, journal):
            marked = {}
        known = entry.get("source")
        if not isinstance(known, dict) or known.get("at") != offset:
            known = {}
        return cls(
            journal=journal,
            offset=offset,
            timestamp_ms=_integer(entry, "timestamp", 0),
            server_id=None if entry.get("serverId") is None else _integer(entry, "serverId", 0),
            gtid=None if entry.get("gtid") is None else _text(entry, "gtid"),
            address=_text(source, "address"),
            port=_integer(source, "port", 3306),
            consumed="consumed" in entry and entry["consumed"] == offset,
            server=_text(known, "server"),
            trail=_text(known, "trail"),
            origins=_text(known, "origins"),
            mark=_text(marked, "text"),
            snapshot=_object_text(entry, "snapshot"),
            part=_integer(body, "part", 0),
            others=tuple(cls._from_dict(each, others=False) for each in _list(body, "others", allowed=others)),
        )

    def __str__(self) -> str:
        if self.part:
            return ", ".join(f"{each.part}/{each.journal}:{each.offset}" for each in self.parts)
        return f"{self.journal}:{self.offset}"


def split_journal(journal: str) -> tuple[str, int]:
    """Split `mysql-bin.000012` into (`mysql-bin`, 12); a name without a number gives 0."""
    return _kept_split(journal) if len(journal) <= _KEPT_CHARACTERS else _split(journal)


def _split(journal: str) -> tuple[str, int]:
    base, _, number = journal.rpartition(".")
    return (base, int(number)) if re.fullmatch("[0-9]{1,18}", number) else (journal, 0)


_kept_split = lru_cache(64)(_split)  # positions are compared with each ACK
_KEPT_CHARACTERS = 255  # of a name that is kept


def read_json(text: str) -> Any:
    """Parse JSON in which integers may carry Java's suffix (`4L`), as some fastjson versions write them.

    Raises ValueError, also for JSON that is nested too deeply, and for a text that could not be written again. The time
    grows with the length alone.
    """
    try:
        try:
            value = json.loads(text)
        except ValueError:
            value = json.loads(_STRING_OR_NUMBER.sub(r"\1\2", text))
        if "\\u" in text:
            check_json(value)
        return value
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


# Strings come first, so their text is unchanged. Whatever begins like a string or a number is consumed, also if it is
# cut off, so that no character is read twice.
_STRING_OR_NUMBER = re.compile(r'("(?:[^"\\]|\\.)*+"?)|(-?[0-9]++)(?:L\b)?', re.DOTALL)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a JSON object, not {_shown(value)}")
    return value


def _list(holder: dict[str, Any], key: str, *, allowed: bool) -> list[Any]:
    value = holder.get(key) or []
    if not isinstance(value, list) or (value and not allowed):
        expected = "a JSON list" if allowed else "absent in a position that is one of others"
        raise ValueError(f"`{key}` of a position must be {expected}, not {_shown(value)}")
    return value


def _text(holder: dict[str, Any], key: str) -> str:
    """Return a text that can be written again; "" if there is none."""
    value = holder.get(key)
    if value is None or value is False:
        return ""
    if not isinstance(value, str) or _LONE_SURROGATE.search(value):
        raise ValueError(f"`{key}` of a position must be a text, not {_shown(value)}")
    return value


def _object_text(holder: dict[str, Any], key: str) -> str:
    """Return a JSON object as text; "" if there is none."""
    value = holder.get(key)
    if value is None:
        return ""
    text = json.dumps(_object(value, f"`{key}` of a position"), separators=(",", ":"), ensure_ascii=False)
    if _LONE_SURROGATE.search(text):
        raise ValueError(f"`{key}` of a position must be UTF-8")
    return text


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can write one, UTF-8 cannot


def _integer(holder: dict[str, Any], key: str, default: int) -> int:
    value = holder.get(key)
    if value is None:
        return default
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
        return value
    raise ValueError(f"`{key}` of a position must be an integer of 64 bits, not {_shown(value)}")


def _shown(value: Any) -> str:
    """Return a short description of a value from outside, which may be large or deeply nested."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return ascii(value) if len(ascii(value)) <= 50 else f"{ascii(value)[:49]}…"
