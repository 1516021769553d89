"""ClientSnapshot: starts, pauses and shows the snapshot of a client id, over HTTP at the node that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_answer import SNAPSHOT
from canal_ha.client.node_http import DEFAULT_URL, NO_LOGIN, fetch, post
from canal_ha.errors import SnapshotRefused
from canal_ha.model.snapshot import named_tables

TIMEOUT_S = 30.0


class ClientSnapshot:
    """The snapshot of one client id.

    The methods return its state, a dict: `id`, `phase` (running, paused, done, failed, cancelled), `rows` that the
    client has acknowledged, `total` rows as the server estimates them, `table` (how many of `tables` are read),
    `left_out` (tables that were taken out, so the snapshot is not complete), `error` and more. They raise
    SnapshotRefused with the reason, and NodeUnreachable.
    """

    def __init__(
        self, destination: str, client_id: int = 1001, *, url: str = DEFAULT_URL, access: HttpAccess = NO_LOGIN
    ) -> None:
        """Create it; nothing is asked.

        destination: its name.
        client_id: whose stream gets the rows.
        url: status endpoint of the node that runs the destination, canal.admin.http.port.
        access: login of an account of the role admin.
        """
        self.destination = destination
        self.client_id = client_id
        self._url = url if "://" in url else f"http://{url}"
        self._access = access

    def start(
        self,
        tables: Sequence[str],
        where: Mapping[str, str] | None = None,
        *,
        without_key: bool = False,
        connections: int = 0,
        rows_per_second: int = 0,
    ) -> dict[str, Any]:
        """Begin a snapshot. The client id must be subscribed.

        tables: `schema.table` each.
        where: a condition in SQL for some of the tables.
        without_key: also read tables without a key, each in one go.
        connections: that read side by side; 0: as the destination is configured.
        rows_per_second: at most, on average; 0: as the destination is configured.
        """
        return self._read("start", tables, where, without_key, connections, rows_per_second)

    def add(
        self,
        tables: Sequence[str],
        where: Mapping[str, str] | None = None,
        *,
        without_key: bool = False,
        connections: int = 0,
        rows_per_second: int = 0,
    ) -> dict[str, Any]:
        """Read tables behind those of a running snapshot, or begin one; a table that it has read is read again.

        The arguments are those of `start`. A snapshot that runs keeps its connections and its rows a second.
        """
        return self._read("add", tables, where, without_key, connections, rows_per_second)

    def pause(self) -> dict[str, Any]:
        """Stop reading rows; changes keep flowing."""
        return self._ask("pause")

    def resume(self, *, without_key: bool = False, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        """Continue behind the last acknowledged chunk, also a snapshot that failed.

        without_key: as in `start`.
        leave_out: tables that are not to be read, `schema.table` each. Their rows that the client has got stay.
        """
        if not leave_out:
            return self._ask("resume", without_key=without_key)
        names = named_tables(leave_out)
        state = self._ask("resume", without_key=without_key, leave_out=list(names))
        if "left_out" not in state:
            raise SnapshotRefused(
                f"the node of {self.destination} has resumed the snapshot with {', '.join(names)}: its version"
                " cannot leave tables out, so update it"
            )
        return state

    def cancel(self) -> dict[str, Any]:
        """End the snapshot. The rows that the client has got stay."""
        return self._ask("cancel")

    def state(self) -> dict[str, Any]:
        """Return the state. Raises SnapshotRefused if the client never had a snapshot on this node."""
        here = self._here()
        for stream in here["streams"] if here else ():
            if stream["client_id"] == self.client_id and stream.get("snapshot"):
                state: dict[str, Any] = stream["snapshot"]
                return state
        if here:
            raise SnapshotRefused(
                f"client id {self.client_id} of {self.destination} never had a snapshot: start one with"
                " `canal-ha snapshot start`"
            )
        raise SnapshotRefused(
            f"{self.destination} has no snapshot of client id {self.client_id} on this node;"
            " `canal-ha status --zk` shows which node runs it"
        )

    def has_reader(self) -> bool:
        """Return whether a connected client has asked for rows of this client id. Else the rows wait for one."""
        here = self._here() or {}
        return any(each["client_id"] == self.client_id and not each["private"] for each in here.get("readers", ()))

    def _here(self) -> dict[str, Any] | None:
        """Return the node's status of the destination; None if another node runs it."""
        found = fetch(self._url, self._access)["destinations"]
        return next((each for each in found if each["destination"] == self.destination), None)

    def _read(
        self,
        action: str,
        tables: Sequence[str],
        where: Mapping[str, str] | None,
        without_key: bool,
        connections: int,
        rows_per_second: int,
    ) -> dict[str, Any]:
        """Ask for tables to be read. action: start or add."""
        return self._ask(
            action,
            tables=list(named_tables(tables)),
            where=dict(where or {}),
            without_key=without_key,
            connections=connections,
            rows_per_s_most=rows_per_second,
        )

    def _ask(self, action: str, **more: Any) -> dict[str, Any]:
        body = {"client_id": self.client_id, "action": action, **more}
        shape = {"snapshot": SNAPSHOT}
        answer = post(self._url, self._access, self.destination, "snapshot", body, shape, SnapshotRefused, TIMEOUT_S)
        state: dict[str, Any] = answer["snapshot"]
        return state
