"""EmbeddedServer: a node inside this program, whose calls block."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from canal_ha.client.message import Message, message_of
from canal_ha.embedded.requests import AT_ONCE_MS, Requests, Settings
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.snapshot import named_tables
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE


class EmbeddedServer:
    """A node inside this program; `with` starts and stops it. It listens on no port.

    conf_dir: directory of canal.properties and <destination>/instance.properties. No file must exist if the settings
        have what the node needs. Cursors in files are there too, unless canal.file.data.dir says otherwise.
    settings: keys of canal.properties with their values; override the environment and the files. Keys of
        instance.properties here are for all destinations.
    exact: values are in the exact form (docs/protocol.md#exact), as with a connector.

    The server runs the destinations in canal.destinations and those that `start_destination` starts. It does not scan
    the directory. With canal.zkServers it takes part in the race for its destinations; requests for a destination that
    another node runs raise NotRunningHere. Nobody can connect to its address in ZooKeeper.

    One server runs at a time in a process, with any number of destinations and clients. Calls may come from any thread.
    The node runs in a thread of its own, on Twisted's reactor; a program that runs this reactor itself starts it before
    the server. The server installs no signal handler and writes no log files: its lines go to the loggers below
    `canal_ha`. When the program's main thread ends without `stop`, the server stops all the same, unless a signal kills
    the program. Calls in a process that was forked from this one raise LocalProtocolError.
    """

    def __init__(
        self, conf_dir: str | os.PathLike[str] = "conf", settings: Settings | None = None, *, exact: bool = True
    ) -> None:
        """Create a server; see the class."""
        self._requests = Requests(conf_dir, settings or {}, exact=exact)

    # ---- the server and its destinations

    def start(self) -> None:
        """Start the node and its destinations.

        Raises ConfigError for invalid settings, and LocalProtocolError if a server runs in this process already.
        """
        self._requests.start().wait()

    def stop(self) -> None:
        """Make acknowledged cursors durable, and stop all destinations. Waiting calls raise NotRunningHere.

        Does nothing if the server does not run. It can be started again.
        """
        stopping = self._requests.stop()
        if stopping:
            stopping.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_destination(self, destination: str, settings: Mapping[str, object] | None = None) -> None:
        """Start a destination. One that runs is stopped and begins again with these settings.

        With ZooKeeper, return when this node has joined the race for it; see `destinations`.

        settings: keys of instance.properties with their values; override all other sources of them.
        Raises ConfigError.
        """
        self._requests.start_destination(destination, settings).wait()

    def stop_destination(self, destination: str) -> None:
        """Make the cursors of a destination durable, and stop it. Unknown destinations are no error."""
        self._requests.stop_destination(destination).wait()

    @property
    def destinations(self) -> tuple[str, ...]:
        """The destinations that run here now."""
        return self._requests.destinations().wait()

    @property
    def alarms(self) -> tuple[str, ...]:
        """What needs a person: what happened, where, and what to do."""
        return self._requests.alarms().wait()

    # ---- clients

    def subscribe(self, identity: ClientIdentity, *, snapshot: Sequence[str] = ()) -> None:
        """Subscribe a client; durable on return. A new client begins at the end of the binlog.

        identity: destination, client id and table filter; "" keeps the filter that is stored.
        snapshot: tables, as `schema.table`, whose existing rows come first if the client is new.
        Raises FilterInvalid, NotRunningHere, QuotaReached, SourceUnavailable and SourceRefused, and LocalProtocolError
        for a client id that no client can have.
        """
        self._requests.subscribe(identity, named_tables(snapshot)).wait()

    def unsubscribe(self, identity: ClientIdentity) -> None:
        """Delete a client and its cursor; durable on return."""
        self._requests.unsubscribe(identity).wait()

    def get(
        self, identity: ClientIdentity, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS
    ) -> Message:
        """Get a batch and acknowledge it at once. A crash before it is processed loses it."""
        message = self.get_without_ack(identity, batch_size, timeout_ms)
        self.ack(identity, message.id)
        return message

    def get_without_ack(
        self,
        identity: ClientIdentity,
        batch_size: int = DEFAULT_FETCH_SIZE,
        timeout_ms: int = AT_ONCE_MS,
        *,
        eager: bool = False,
    ) -> Message:
        """Get the next batch after the last delivered one; empty if none came in time.

        identity: destination and client id.
        batch_size: entries or KiB, as canal.instance.memory.batch.mode counts.
        timeout_ms: longest wait for a full batch; -1: do not wait, 0: no limit.
        eager: end the wait as soon as there is an entry.
        Raises NotSubscribed, NotRunningHere, QuotaReached, FormsMixed, and the error that stopped the client's stream.
        """
        return message_of(self._requests.get(identity, batch_size, timeout_ms, eager=eager).wait())

    def ack(self, identity: ClientIdentity, batch_id: int) -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored.

        The cursor is durable after canal.file.flush.period or canal.zookeeper.flush.period, and when the destination
        or the server stops.
        Raises BatchNotFirst, BatchUnknown, NotSubscribed and NotRunningHere.
        """
        self._requests.ack(identity, batch_id).wait()

    def rollback(self, identity: ClientIdentity, batch_id: int = 0) -> None:
        """Deliver batches in flight again. batch_id: 0 for all, else the oldest, which includes all later ones."""
        self._requests.rollback(identity, batch_id).wait()

    def list_batch_ids(self, identity: ClientIdentity) -> tuple[int, ...]:
        """Return the ids of the client's batches in flight, oldest first."""
        return self._requests.list_batch_ids(identity).wait()
