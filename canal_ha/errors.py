"""Every exception of canal-ha, one tree.

Each class says whose fault it is and whether trying again can help (`retryable`). `code` is what a peer on canal's
port sees in Ack.error_code. Messages carry destination, position and the next useful action; the texts that clients
search for are canal's own.
"""

from __future__ import annotations


class CanalError(Exception):
    """Root of the tree."""

    retryable = False
    code = 400


# ---- the protocol between us and a peer


class LocalProtocolError(CanalError):
    """We were asked to do something the protocol forbids; nothing was sent."""


class RemoteProtocolError(CanalError):
    """The peer sent what the protocol forbids; its connection is closed."""


class ServerRefused(CanalError):
    """A server answered with an error packet (client side). `code` is the packet's own."""

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class ConnectionLost(CanalError):
    """The connection ended or timed out in mid-conversation."""

    retryable = True


class ConnectorStopped(CanalError):
    """A call was waiting when its own connector was told to stop, or came after that (client side)."""


class WaitedTooLong(CanalError):
    """For as long as the call was to wait, another process of this client id was active, or no node could be reached
    (client side).
    """

    retryable = True


# ---- what a client asked of a destination


class NotRunningHere(CanalError):
    """The destination runs on another node, or nowhere: ask ZooKeeper who runs it."""

    retryable = True

    def __init__(self, destination: str) -> None:
        super().__init__(f"destination:{destination} should start first")


class NotSubscribed(CanalError):
    """GET or ACK before SUBSCRIBE."""

    def __init__(self, destination: str, client_id: int) -> None:
        super().__init__(
            f"ClientIdentity:ClientIdentity[destination={destination},clientId={client_id},filter=<null>]"
            " should subscribe first"
        )


class CursorReplaced(CanalError):
    """GET or ACK of a connection that was told another cursor: it must connect and be told again."""

    retryable = True

    def __init__(self, destination: str, client_id: int) -> None:
        super().__init__(
            f"destination:{destination} client {client_id}: the cursor was put elsewhere after this connection was told"
            " it: subscribe on a new connection"
        )


class BatchNotFirst(CanalError):
    """ACK or ROLLBACK names a batch that is not the oldest in flight."""

    def __init__(self, batch_id: int, first: int) -> None:
        super().__init__(f"batchId:{batch_id} is not the firstly:{first}")


class BatchUnknown(CanalError):
    """ACK or ROLLBACK names a batch that is not in flight. verb: `ack` or `rollback`."""

    def __init__(self, verb: str, client_id: int, batch_id: int) -> None:
        comma = " ," if verb == "ack" else ","  # canal's two texts differ by that blank
        super().__init__(f"{verb} error{comma} clientId:{client_id} batchId:{batch_id} is not exist , please check")


class FilterInvalid(CanalError):
    """A table filter is not a regular expression, is too long, or takes too long to match."""


class TooManyStreams(CanalError):
    """canal.instance.stream.max open streams exist already for this destination."""

    retryable = True


class EndOfRange(CanalError):
    """A private read reached the position it was asked to end at."""


# ---- the source


class SourceUnavailable(CanalError):
    """MySQL cannot be reached, or ended the connection."""

    retryable = True


class SourceRefused(CanalError):
    """MySQL is there but does not serve us: account, grants, binlog settings. The text names the statement to run."""

    retryable = True


class PositionLost(CanalError):
    """The journal to start from is purged: needs a person. The text says the oldest journal that exists."""


class MalformedEvent(CanalError):
    """Bytes of the binlog that make no sense. One stream stops; nothing of the event is delivered."""

    def __init__(self, journal: str, offset: int, reason: str) -> None:
        super().__init__(f"malformed event at {journal}:{offset}: {reason}")
        self.journal = journal
        self.offset = offset
        self.reason = reason


class TableUnknown(CanalError):
    """The columns of a table at this position cannot be told for certain; the stream stops rather than guess."""


class HistoryUnavailable(CanalError):
    """The place of a table history cannot be read or written; what is known stays in memory and is tried again."""

    retryable = True


# ---- store and meta


class StoreFull(CanalError):
    """The ring has no room for a segment; nothing was stored."""

    retryable = True


class RingClosed(CanalError):
    """The stream ended while its source had something to put; nothing was stored."""

    retryable = True


class AckUnmatched(CanalError):
    """A batch to acknowledge is not in the ring any more. position: its end, in canal's text form."""

    def __init__(self, position: str) -> None:
        super().__init__(f"no match ack position{position}")


class MetaUnreadable(CanalError):
    """Stored cursors that cannot be understood: left untouched, needs a person. The text names file or node."""


class MetaWriteFailed(CanalError):
    """A cursor or subscription could not be made durable; it stays in memory and is tried again."""

    retryable = True


class Fenced(CanalError):
    """Another node owns the destination by now; whatever this node wanted to write was refused."""

    retryable = True


# ---- ZooKeeper


class ZooKeeperUnavailable(CanalError):
    """No answer: not connected, connection lost, session expired. A write may have landed or not."""

    retryable = True


class TransactionRefused(CanalError):
    """ZooKeeper refused a transaction; nothing of it was done. index: the operation that did not fit;
    reason: `exists`, `missing`, `version`, `not empty`, `no rights` or ZooKeeper's own name for it.
    """

    retryable = True

    def __init__(self, index: int, reason: str, path: str) -> None:
        super().__init__(f"refused at {path}: {reason}")
        self.index = index
        self.reason = reason
        self.path = path


# ---- pipelines on Spark


class OptionInvalid(CanalError):
    """An option of the Spark source, or a line of a pipeline file, that is missing or wrong. The text names it."""


class SpoolUnusable(CanalError):
    """The spool cannot be written or read: read-only, damaged, or made by a later version. The text names the file."""


class SpoolFenced(CanalError):
    """Another driver writes this spool by now; whatever this one wanted to add was not acknowledged."""


class DataLoss(CanalError):
    """A checkpoint needs what the spool does not hold any more; `failOnDataLoss=false` goes on behind the gap."""


class ClientIdTaken(CanalError):
    """The server's cursor was moved by another spool: two queries read with one client id."""


class SchemaChanged(CanalError):
    """A table has a column that the query's schema, fixed at its start, lacks. The text holds the statement."""


class SinkRefused(CanalError):
    """Changes that a target cannot take: no key, columns left out of the binlog, a type that does not fit."""


# ---- start-up


class ConfigError(CanalError):
    """A configuration value that cannot be used.

    file: the file, or `--set`, or the environment's name.
    key: the key, or `(file)` and `(line)` where none could be read.
    value: as written, with placeholders resolved; `***` for a secret.
    expected: what would be accepted.
    line: in that file, from 1; 0 where there is none.
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
    """A configuration file, or one line of it, of which nothing can be used.

    file: its path.
    reason: what is wrong, and what to do.
    line: from 1; 0 for the whole file.
    key: a setting that is missed; "" for none.
    """

    def __init__(self, file: str, reason: str, line: int = 0, key: str = "") -> None:
        super().__init__(file, key or ("(line)" if line else "(file)"), "", "a properties file", line)
        self.args = (f"{file}:{line}: {reason}" if line else f"{file} {reason}",)
        self.reason = reason
