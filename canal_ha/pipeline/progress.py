"""Progress: how far a target has a destination's changes. A target stores it in the commit that has the rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from canal_ha.model.position import LogPosition
from canal_ha.pipeline.given_key import NO_KEY_NAMES, KeyNames
from canal_ha.pipeline.progress_owner import ProgressOwner


@dataclass(frozen=True, slots=True)
class Progress:
    """The last commit of one destination into one target.

    run: random name that the target got with its first commit. A mark in the server's cursor names it, so that a
        second target with the same client id is noticed.
    seq: number of the commit, from 1.
    last: position of the last entry.
    newest_ms: newest time of any entry of the run so far, ms since 1970; see Flow for a server that is unknown.
    whole: whether the last entry ends a transaction.
    given_up: mark of the cursor up to which missing changes were given up when the run began; "" if none were.
    spooled: mark of the last segment that the target has (spark/cursor.py); "" without Spark.
    owner: the pipeline that writes it; None in a progress of an earlier version.
    key_names: names that statements have given to key columns of the pipeline's file.
    sources: the servers from which a merged stream came, as the flow's connection began; "" of one source.
    """

    run: str
    seq: int
    last: LogPosition
    newest_ms: int
    whole: bool = True
    given_up: str = ""
    spooled: str = ""
    owner: ProgressOwner | None = None
    key_names: KeyNames = field(default_factory=dict, hash=False)
    sources: str = ""

    @property
    def mark(self) -> str:
        """The text that an acknowledgement stores with the server's cursor."""
        return f"pipeline {self.run} commit {self.seq}"

    def after(
        self,
        last: LogPosition,
        newest_ms: int,
        *,
        whole: bool = True,
        spooled: str = "",
        key_names: KeyNames = NO_KEY_NAMES,
        sources: str = "",
    ) -> Progress:
        """Return the progress of the next commit. newest_ms: of its entries; key_names: behind its statements."""
        return replace(
            self,
            seq=self.seq + 1,
            last=last,
            newest_ms=max(self.newest_ms, newest_ms),
            whole=whole,
            spooled=spooled,
            key_names=key_names,
            sources=sources,
        )

    def to_json(self) -> str:
        """Return it as a target stores it, without blanks."""
        body = {
            "run": self.run,
            "seq": self.seq,
            "last": self.last.to_dict(with_type=False),
            "sub": self.last.sub_index,
            "newestMs": self.newest_ms,
            "whole": self.whole,
            **({"givenUp": self.given_up} if self.given_up else {}),
            **({"spooled": self.spooled} if self.spooled else {}),
            **({"owner": self.owner.to_dict()} if self.owner else {}),
            **({"keyNames": dict(self.key_names)} if self.key_names else {}),
            **({"sources": self.sources} if self.sources else {}),
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """Read the text of `to_json`. Raises ValueError."""
        body: Any = json.loads(text)
        try:
            last = replace(LogPosition.from_dict(body["last"]), sub_index=int(body["sub"]))
            run, seq, newest_ms = str(body["run"]), int(body["seq"]), int(body["newestMs"])
            given_up, spooled = str(body.get("givenUp", "")), str(body.get("spooled", ""))
            owner = ProgressOwner.from_dict(body["owner"]) if "owner" in body else None
            key_names = {table: _texts(moved) for table, moved in body.get("keyNames", {}).items()}
            whole, sources = bool(body["whole"]), str(body.get("sources", ""))
            return cls(run, seq, last, newest_ms, whole, given_up, spooled, owner, key_names, sources)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the progress of a pipeline: {text[:200]!r}") from error


def _texts(body: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in body.items()}
