"""All exceptions of canal-ha, in one tree.

Each class says who is at fault and whether a retry can help (`retryable`). `code` is what a peer on canal's port
receives in Ack.error_code. Messages name the destination, the position and the next useful action. Texts that clients
search for are canal's own.
"""

from __future__ import annotations

from collections.abc import Mapping


class CanalError(Exception):
    """The base class of all our errors. refusal: the reason in canal_port_refusals; "" if it does not count there."""

    retryable = False
    code = 400
    refusal = ""


# ---- the protocol between us and a peer


class LocalProtocolError(CanalError):
    """A local call would violate the protocol; nothing was sent."""


class RemoteProtocolError(CanalError):
    """The peer violated the protocol; its connection is closed."""


class ServerRefused(CanalError):
    """A server answered with an error packet (client side). `code` is taken from that packet."""

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class ConnectionLost(CanalError):
    """The connection closed or timed out during an exchange."""

    retryable = True


class ConnectorStopped(CanalError):
    """The connector was stopped during or before this call (client side)."""


class WaitedTooLong(CanalError):
    """Another process with this client id stayed active, or no node was reachable, until the timeout (client side)."""

    retryable = True


class LoginRefused(CanalError):
    """A name, a password or a certificate is not that of an account."""


class NotAllowed(CanalError):
    """The account has no right to this request. The text names the right."""

    code = 403


class Busy(CanalError):
    """The node has reached one of its limits for connections, logins or bytes; try again later."""

    retryable = True
    code = 429


# ---- what a client asked of a destination


class NotRunningHere(CanalError):
    """The destination runs on another node or on none; ZooKeeper names the current owner."""

    retryable = True

    def __init__(self, destination: str) -> None:
        super().__init__(f"destination:{destination} should start first")


class NotSubscribed(CanalError):
    """A client sent GET or ACK before SUBSCRIBE."""

    def __init__(self, destination: str, client_id: int) -> None:
        super().__init__(
            f"ClientIdentity:ClientIdentity[destination={destination},clientId={client_id},filter=<null>]"
            " should subscribe first"
        )


class ClientConnected(CanalError):
    """An operator deletes a client id that a process uses. who: its address."""

    def __init__(self, destination: str, client_id: int, who: str) -> None:
        super().__init__(f"client {client_id} of {destination} is in use by {who}: stop that process first")


class CursorReplaced(CanalError):
    """The stream began again after this connection subscribed, mostly at another cursor; the client must reconnect."""

    retryable = True

    def __init__(self, destination: str, client_id: int) -> None:
        super().__init__(
            f"destination:{destination} client {client_id}: the cursor was moved after this connection subscribed:"
            " subscribe on a new connection"
        )


class FormsMixed(CanalError):
    """One client id asks for values in canal's form and in the exact form at the same time."""

    def __init__(self, destination: str, client_id: int) -> None:
        super().__init__(
            f"destination:{destination} client {client_id}: batches in the other form of values are in flight:"
            " acknowledge them or roll them back first, and use a separate client id for each form"
        )


class BatchNotFirst(CanalError):
    """An ACK or ROLLBACK names a batch that is not the oldest in flight."""

    def __init__(self, batch_id: int, first: int) -> None:
        super().__init__(f"batchId:{batch_id} is not the firstly:{first}")


class BatchUnknown(CanalError):
    """An ACK or ROLLBACK names a batch that is not in flight. verb: `ack` or `rollback`."""

    def __init__(self, verb: str, client_id: int, batch_id: int) -> None:
        comma = " ," if verb == "ack" else ","  # canal's two texts differ by this blank
        super().__init__(f"{verb} error{comma} clientId:{client_id} batchId:{batch_id} is not exist , please check")


class FilterInvalid(CanalError):
    """A table filter is not a regular expression, is too long, or takes too long to match."""

    refusal = "filter"


class QuotaReached(CanalError):
    """This destination has no room for one more stream, private read or client id. refusal: which limit it is."""

    retryable = True
    code = 429

    def __init__(self, destination: str, most: int, things: str, key: str, refusal: str, account: str = "") -> None:
        """Name the limit.

        most: of the things.
        things: what is counted, in words.
        key: of the configuration.
        refusal: reason for the metrics.
        account: whose things they are; "" counts those of all.
        """
        whose = f" of account {account}" if account else ""
        super().__init__(
            f"destination:{destination} has {most} {things}{whose} already ({key});"
            " unsubscribe a client id, end a read, or raise the limit"
        )
        self.refusal = refusal


class NoThread(CanalError):
    """The system gives the node no thread for a stream."""

    retryable = True

    def __init__(self, destination: str, error: str) -> None:
        super().__init__(
            f"destination:{destination} cannot read its source: {error};"
            " raise the limit of threads (ulimit -u, pids.max)"
        )


class EndOfRange(CanalError):
    """A private read reached its end position."""


# ---- the source


class SourceUnavailable(CanalError):
    """MySQL cannot be reached, or it closed the connection."""

    retryable = True


class Superseded(SourceUnavailable):
    """Another dump with this identity has begun, usually one of the node that has taken the destination over."""


class SourceRefused(CanalError):
    """MySQL refuses us because of account, grants or binlog settings. The text names the statement to run."""

    retryable = True


class StandbyBehind(CanalError):
    """The standby lacks what the other server had; the destination does not switch to it by itself."""

    retryable = True


class PositionLost(CanalError):
    """The journal to start from is purged; an operator must decide. The text names the oldest journal that exists."""


class PreparedLost(CanalError):
    """The binlog has no rows for an XA COMMIT: a journal is purged, or they came before. An operator must decide."""


class MalformedEvent(CanalError):
    """The binlog contains bytes that cannot be decoded. The stream stops; no part of the event is delivered."""

    def __init__(self, journal: str, offset: int, reason: str) -> None:
        super().__init__(f"malformed event at {journal}:{offset}: {reason}")
        self.journal = journal
        self.offset = offset
        self.reason = reason


class TableUnknown(CanalError):
    """The columns of a table at this position are not known for certain; the stream stops instead of guessing."""


class RolledBackLate(CanalError):
    """A transaction rolled back rows after a part of them was delivered. The stream stops; an operator must decide."""


class ColumnExposed(CanalError):
    """A statement renames a protected column so that no rule protects it. The stream stops; an operator must decide."""


class HistoryUnavailable(CanalError):
    """The store of a table history cannot be read or written; the history stays in memory and the write is retried."""

    retryable = True


class HistoryFenced(HistoryUnavailable):
    """This node does not own the destination any more, so it writes no table history."""


# ---- store and meta


class StoreFull(CanalError):
    """The ring has no room for a segment; nothing was stored."""

    retryable = True


class RingClosed(CanalError):
    """The stream ended while its source was storing a segment; nothing was stored."""

    retryable = True


class AckUnmatched(CanalError):
    """The batch to acknowledge is no longer in the ring. position: the batch's end, in canal's text form."""

    def __init__(self, position: str) -> None:
        super().__init__(f"no match ack position{position}")


class MetaUnreadable(CanalError):
    """Stored cursors cannot be parsed; they are left untouched. The text names the file or znode to repair."""


class MetaWriteFailed(CanalError):
    """A cursor or subscription could not be made durable; it stays in memory and the write is retried."""

    retryable = True


class ClientsRefused(MetaWriteFailed):
    """The store denies the right to write what some clients need; the changes of all others are durable.

    clients: why, by client id.
    """

    def __init__(self, clients: Mapping[int, str]) -> None:
        first, *others = clients.values()
        super().__init__(f"{first}, and {len(others)} clients more" if others else first)
        self.clients = clients


class Fenced(CanalError):
    """This node's write was refused, because it does not own the destination any more or its lease is over."""

    retryable = True


# ---- ZooKeeper


class ZooKeeperUnavailable(CanalError):
    """ZooKeeper did not answer: not connected, connection lost or session expired. A write may have succeeded."""

    retryable = True


class ZnodeDenied(ZooKeeperUnavailable):
    """ZooKeeper denies the account of this session the right to read or create a znode."""


class TransactionRefused(CanalError):
    """ZooKeeper refused a transaction; no operation of it took effect.

    index: number of the operation that failed, from 0.
    reason: `exists`, `missing`, `version`, `not empty`, `no rights` or ZooKeeper's own name for it.
    path: the znode of that operation.
    """

    retryable = True

    def __init__(self, index: int, reason: str, path: str) -> None:
        super().__init__(f"refused at {path}: {reason}")
        self.index = index
        self.reason = reason
        self.path = path


# ---- pipelines on Spark


class OptionInvalid(CanalError):
    """An option of the Spark source or a line of a pipeline file is missing or wrong. The text names it."""


class SpoolUnusable(CanalError):
    """The spool cannot be written or read: read-only, damaged or of a later version. The text names the file."""


class NoRoom(SpoolUnusable):
    """The disk or the quota of the spool is full; nothing was written."""

    retryable = True


class SpoolFenced(CanalError):
    """Another driver now writes this spool; the changes that this driver tried to add were not acknowledged."""


class DataLoss(CanalError):
    """A checkpoint needs segments that the spool no longer holds; `failOnDataLoss=false` continues after the gap."""


class ClientIdTaken(CanalError):
    """Two processes use one client id: another one runs, or has moved the server's cursor."""


class SchemaChanged(CanalError):
    """A table has a column that is not in the query's schema, fixed at its start. The text holds the statement."""


class SinkRefused(CanalError):
    """A target cannot take a change: no key, columns missing from the binlog, or a type that does not fit."""


class TargetUnavailable(CanalError):
    """A target does not answer, or refuses for now. The same commit may succeed later."""


class PipelineFailed(CanalError):
    """The query of a pipeline has ended with an error. The text is the reason."""


class SparkMissing(CanalError):
    """The extra `spark` is not installed."""


# ---- the command line


class NodeUnreachable(CanalError):
    """No node has answered with a status. The text says what to check next."""


class SwitchRefused(CanalError):
    """A node has refused to switch a source; nothing has changed."""


class PlacementRefused(CanalError):
    """A destination cannot be moved, paused or resumed like this. The text says why, and what to do."""


class SnapshotRefused(CanalError):
    """A snapshot cannot be started, changed or read like this. The text says why, and what to do."""


class TableMissing(SnapshotRefused):
    """The source shows no such table, so there is nothing to read. Programs recognise it by the code."""

    code = 404


class SnapshotUnreadable(SnapshotRefused):
    """A private read cannot read the existing rows of a table, and another one could not either."""

    code = 422


class FileBroken(CanalError):
    """A binlog file cannot be decoded from an offset on; everything complete before it was written."""


# ---- start-up


class ConfigError(CanalError):
    """A configuration value is invalid.

    file: the file, `--set`, or the name of the environment variable.
    key: the key, or `(file)` or `(line)` if no key could be read.
    value: as written, with placeholders resolved; `***` for a secret.
    expected: the accepted values.
    line: line number in the file, from 1; 0 if there is none.
    """

    def __init__(self, file: str, key: str, value: str, expected: str, line: int = 0) -> None:
        where = f"{file}:{line}" if line else file
        super().__init__(f"{where}: {key} = {value!r}: expected {expected}")
        self.file = file
        self.line = line
        self.key = key
        self.value = value
        self.expected = expected
        self.reason = f"expected {expected}"


class FileUnusable(ConfigError):
    """A configuration file, or one line of it, cannot be read.

    file: its path.
    reason: what is wrong and what to do.
    line: line number from 1; 0 for the whole file.
    key: the key that is missing; "" for none.
    """

    def __init__(self, file: str, reason: str, line: int = 0, key: str = "") -> None:
        super().__init__(file, key or ("(line)" if line else "(file)"), "", "a properties file", line)
        self.args = (f"{file}:{line}: {reason}" if line else f"{file} {reason}",)
        self.reason = reason


class FileMissing(FileUnusable):
    """A destination has no file, and canal.properties does not have what it needs.

    file: the path where the file is expected.
    key: the key that is missing.
    expected: its accepted values.
    """

    def __init__(self, file: str, key: str, expected: str) -> None:
        super().__init__(file, f"does not exist; {key} = '': expected {expected}", key=key)


class FilesMissing(CanalError):
    """A node has no destination to run, because their files are missing. They can come back by themselves."""

    retryable = True


class DestinationUnknown(CanalError):
    """A command names a destination that the configuration does not have."""
