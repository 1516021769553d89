"""LogPosition: one place in one source's binlog, and canal's JSON for it (specification 4.3)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

TYPE_NAME = "com.alibaba.otter.canal.protocol.position.LogPosition"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in the binlog of one source.

    journal: file name; offset: start of the event, bytes; timestamp_ms: event time, 0 when unknown;
    gtid: executed set including this transaction, "" outside GTID mode, None when unknown;
    address, port: the MySQL address as configured (what canal calls identity);
    consumed: the event at `offset` itself is done with (an acknowledged transaction end or DDL), so reading goes on
    behind it; sub_index: entry within a compressed payload, whose entries share one offset.
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

    @property
    def order(self) -> tuple[str, int, int, int, bool]:
        """Sort key among positions of one source: journals by name, then number, then offset, then sub-index."""
        base, number = split_journal(self.journal)
        return (base, number, self.offset, self.sub_index, self.consumed)

    def to_json(self, *, with_type: bool) -> str:
        """canal's exact text: no blanks, keys in alphabetical order, `@type` first in ZooKeeper, none in files.

        `consumed` repeats the offset and counts only while both agree, so that an edit by hand voids it.
        """
        return json.dumps(self.to_dict(with_type=with_type), separators=(",", ":"), ensure_ascii=False)

    def to_dict(self, *, with_type: bool) -> dict[str, Any]:
        """The JSON object of `to_json`, for embedding in meta.dat."""
        entry: dict[str, Any] = {}
        if self.consumed:
            entry["consumed"] = self.offset
        if self.gtid is not None:
            entry["gtid"] = self.gtid
        entry |= {"included": False, "journalName": self.journal, "position": self.offset}
        if self.server_id is not None:
            entry["serverId"] = self.server_id
        entry["timestamp"] = self.timestamp_ms
        address = {"address": self.address, "port": self.port}
        head = {"@type": TYPE_NAME} if with_type else {}
        return {**head, "identity": {"slaveId": -1, "sourceAddress": address}, "postion": entry}

    @classmethod
    def from_json(cls, text: str) -> LogPosition:
        """Read what canal, an operator or we wrote: any key order, blanks, `4L` integers, missing fields.

        Raises ValueError naming what is missing.
        """
        body = json.loads(re.sub(r"(:\s*-?\d+)L(?=\s*[,}\]])", r"\1", text))
        if not isinstance(body, dict):
            raise ValueError(f"a position is a JSON object, not {text!r}")
        return cls.from_dict(body)

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> LogPosition:
        """`from_json` for an object already parsed."""
        entry = body.get("postion")
        if not isinstance(entry, dict):
            raise ValueError("a position needs an object under the key `postion`")
        source = (body.get("identity") or {}).get("sourceAddress") or {}
        offset = int(entry.get("position") or 0)
        server_id = entry.get("serverId")
        return cls(
            journal=str(entry.get("journalName") or ""),
            offset=offset,
            timestamp_ms=int(entry.get("timestamp") or 0),
            server_id=None if server_id is None else int(server_id),
            gtid=entry.get("gtid"),
            address=str(source.get("address") or ""),
            port=int(source.get("port") or 3306),
            consumed=entry.get("consumed") == offset and "consumed" in entry,
        )

    def __str__(self) -> str:
        return f"{self.journal}:{self.offset}"


def split_journal(journal: str) -> tuple[str, int]:
    """`mysql-bin.000012` -> (`mysql-bin`, 12); a name without a number sorts as 0."""
    base, _, number = journal.rpartition(".")
    return (base, int(number)) if number.isdigit() else (journal, 0)
