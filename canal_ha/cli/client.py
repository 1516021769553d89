"""`canal-ha client`: prints the changes of a destination and acknowledges each batch after printing it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType

import click

from canal_ha import logs
from canal_ha.cli.access import first_line
from canal_ha.cli.client_snapshot import SnapshotWatch
from canal_ha.cli.data_login import ClientLogin, not_sent
from canal_ha.cli.profiles import profile_option, zk_option
from canal_ha.cli.refused import explained
from canal_ha.cli.zookeeper_options import zookeeper_options
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.client.message import Message
from canal_ha.client.pretty import pretty
from canal_ha.client.refusals import NOT_THERE
from canal_ha.client.rows import rows_of
from canal_ha.client.tls import client_tls
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.config.outside import filled, has_placeholder
from canal_ha.errors import ConnectionLost, ConnectorStopped, NodeUnreachable, ServerRefused
from canal_ha.model.place import END_FORMS, FORMS, Place, end_of_read
from canal_ha.wire.client_session import END_OF_RANGE
from canal_ha.zookeeper.reading import BlockingZnodes

DEFAULT_PORT = 11111
DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
LOOK_MS = 5000  # for each answer about the snapshot: it delays the stream


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read.

    filter: table filter; "" leaves the server's in force.
    batch_size: entries or KiB in a batch.
    timeout_ms: how long a GET waits for a full batch; 0: until it is full.
    as_json: print JSON lines instead of readable text.
    max_rows: stop after this many rows; None: no limit.
    idle_exit_s: stop after this many seconds without a row; None: never.
    ack: acknowledge each batch after printing it.
    start: position of a private read; "": read with the client's cursor.
    until: end position of a private read; "": none.
    snapshot: tables whose existing rows a private read delivers before it ends.
    """

    filter: str
    batch_size: int
    timeout_ms: int
    as_json: bool
    max_rows: int | None
    idle_exit_s: float | None
    ack: bool
    start: str = ""
    until: str = ""
    snapshot: tuple[str, ...] = ()


Connector = SimpleConnector | ClusterConnector


class Follower:
    """Prints one destination's changes until a signal, a limit or an error stops it."""

    def __init__(
        self,
        connector: Connector,
        reading: ReadOptions,
        write: Callable[[str], None],
        snapshot: SnapshotWatch | None = None,
    ) -> None:
        """Connect to nothing yet.

        connector: of the client.
        reading: what to print, and when to end.
        write: takes the texts.
        snapshot: looks at the snapshot with which the client begins; None without one.
        """
        self.stopping = threading.Event()
        self._snapshot = snapshot
        self._connector = connector
        self._reading = reading
        self._write = write
        self._rows = 0
        self._last_row_at = time.monotonic()

    def stop(self) -> None:
        """Stop after the current batch is acknowledged, or at once without a connection. For signal handlers."""
        self.stopping.set()
        if not self._connector.connected:
            raise click.exceptions.Exit(1 if self._snapshot and self._snapshot.failed else 0)
        self._connector.interrupt()

    def follow(self) -> None:
        """Connect and print until `stop` is called. Raises the connector's errors."""
        try:
            with self._connector as connector:
                self._begin(connector)
                while not self.stopping.is_set() and not self._idle_for_too_long():
                    message = connector.get_without_ack(self._reading.batch_size, self._wait_ms())
                    if message and self._print(message) and self._reading.ack:
                        connector.ack(message.id)
                    if self._snapshot:
                        self._snapshot.look()
                if not self._reading.ack:
                    connector.rollback()
        except (ConnectionLost, ConnectorStopped):
            if not self.stopping.is_set():
                raise
        except ServerRefused as error:
            if END_OF_RANGE in str(error):
                return
            raise explained(error, self._connector) if isinstance(self._connector, SimpleConnector) else error from None
        if self._snapshot:
            self._snapshot.look(last=True)

    def _begin(self, connector: Connector) -> None:
        if self._reading.start:
            reading = self._reading
            connector.read_from(reading.start, reading.until, reading.filter, reading.snapshot)
        else:
            connector.subscribe(self._reading.filter)
        if self._snapshot:
            self._snapshot.begin()

    def _print(self, message: Message) -> bool:
        """Print a batch; return whether all of it was printed."""
        if not message:
            return True
        reading = self._reading
        left = None if reading.max_rows is None else reading.max_rows - self._rows
        rows = list(rows_of(message))
        if reading.as_json:
            shown = list(islice(rows, left))
            self._write("".join(f"{row.to_json()}\n" for row in shown))
        else:
            shown = rows
            self._write(pretty(message, time.time_ns() // 1_000_000) + "\n")
        self._rows += len(shown)
        if shown:
            self._last_row_at = time.monotonic()
        if reading.max_rows is not None and self._rows >= reading.max_rows:
            self.stopping.set()
        return len(shown) == len(rows)

    def _idle_for_too_long(self) -> bool:
        return self._reading.idle_exit_s is not None and self._idle_left_s() <= 0

    def _idle_left_s(self) -> float:
        return self._last_row_at + (self._reading.idle_exit_s or 0.0) - time.monotonic()

    def _wait_ms(self) -> int:
        if self._reading.idle_exit_s is None:
            return self._reading.timeout_ms
        left_ms = max(1, int(self._idle_left_s() * 1000))
        return min(self._reading.timeout_ms or left_ms, left_ms)


@click.command()
@profile_option
@click.option(
    "--server",
    metavar="HOST:PORT[,...]",
    help=f"One server, or several for fail-over.  [default: {DEFAULT_SERVER}]",
)
@zk_option(
    "Find the node through ZooKeeper and follow it; only one process per client id is active. Excludes --server."
)
@zookeeper_options
@click.option("--destination", required=True, help="Name of the destination.")
@click.option("--client-id", type=click.IntRange(-(2**15), 2**15 - 1), default=1001, show_default=True)
@click.option(
    "--filter",
    "filter_text",
    default="",
    help=r"Tables as regular expressions, e.g. shop\..* ; the server's filter if omitted.",
)
@click.option(
    "--snapshot",
    multiple=True,
    metavar="SCHEMA.TABLE",
    help="If the client id is new, the existing rows of this table come first. May be repeated; * alone stands for all"
    " tables that the filter keeps. With --from latest, print these rows and the changes meanwhile, keep no cursor, and"
    " end.",
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=1000, show_default=True, help="Largest batch, in KiB or in entries."
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Milliseconds to wait for a full batch; 0: no limit.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["pretty", "json"]),
    default="pretty",
    show_default=True,
    help='json: one object per row; binary values are {"$bytes": BASE64}, decimals are strings.',
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    help="Stop after this many rows. With json a batch that is cut is not acknowledged.",
)
@click.option("--idle-exit", "idle_exit_s", type=float, metavar="SECONDS", help="Stop after this time without a row.")
@click.option("--no-ack", is_flag=True, help="Do not acknowledge; the next client gets the same rows.")
@click.option(
    "--from",
    "start",
    default="",
    metavar="POSITION",
    help=f"Start a private read, without a cursor, at this position: {FORMS}.",
)
@click.option("--until", default="", metavar="POSITION", help=f"End a --from read at this position: {END_FORMS}.")
@click.option(
    "--retry", is_flag=True, help="Reconnect after a lost connection; always on with --zk or several servers."
)
@click.option("--user", default="", help="User name, if the server requires one.")
@click.option(
    "--password",
    default="",
    help="Password, ${file:PATH} or ${env:NAME}; `ps` shows a password that is written here. --password-file is safer.",
)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the password in its first line.",
)
@click.option("--tls", is_flag=True, help="Connect with TLS; on with each of the next options.")
@click.option("--tls-ca", default="", metavar="FILE", help="PEM file of the authorities; the system's if omitted.")
@click.option("--tls-cert", default="", metavar="FILE", help="PEM file of a certificate, which can name the account.")
@click.option("--tls-key", default="", metavar="FILE", help="PEM file of its key; the certificate's file if omitted.")
@click.option("--tls-name", default="", metavar="NAME", help="Name in the node's certificate; its host if omitted.")
def command(
    server: str | None,
    zk: str | None,
    zk_access: ZooKeeperAccess,
    destination: str,
    client_id: int,
    filter_text: str,
    snapshot: tuple[str, ...],
    batch_size: int,
    timeout_ms: int,
    form: str,
    max_rows: int | None,
    idle_exit_s: float | None,
    no_ack: bool,
    start: str,
    until: str,
    retry: bool,
    user: str,
    password: str,
    password_file: Path | None,
    tls: bool,
    tls_ca: str,
    tls_cert: str,
    tls_key: str,
    tls_name: str,
) -> None:
    """Print the changes of a destination and acknowledge each batch after printing it."""
    if server and zk:
        raise click.UsageError("--server and --zk exclude each other")
    check_range(start, until)
    password = first_line(password_file) if password_file else secret(password)
    servers = [address(part) for part in (server or DEFAULT_SERVER).split(",") if part.strip()]
    if not servers:
        raise click.BadParameter(f"{server!r} names no server", param_hint="--server")
    connector: Connector
    secured = client_tls(on=tls, ca_file=tls_ca, cert_file=tls_cert, key_file=tls_key, server_name=tls_name)
    if zk:
        _check_named(zk, zk_access, destination, ClientLogin(user, password, secured))
    exact = form == "json"  # `pretty` shows what canal's example client shows
    if zk or len(servers) > 1 or (retry and start):
        logs.to_stderr()
        connector = ClusterConnector(
            zk or [f"{host}:{port}" for host, port in servers],
            destination,
            client_id,
            user,
            password,
            call_timeout_s=idle_exit_s,
            rollback_on_disconnect=no_ack,
            zk_auth=zk_access,
            private=bool(start),
            snapshot=snapshot,
            exact=exact,
            tls=secured,
        )
    else:
        connector = SimpleConnector(
            *servers[0],
            destination,
            client_id,
            user,
            password,
            rollback_on_connect=not start,
            snapshot=snapshot,
            exact=exact,
            tls=secured,
        )
    reading = ReadOptions(
        filter_text, batch_size, timeout_ms, form == "json", max_rows, idle_exit_s, not no_ack, start, until, snapshot
    )
    watch = None
    if snapshot and not start:
        node = servers[0] if isinstance(connector, SimpleConnector) else None

        def beside() -> SimpleConnector | None:
            nonlocal node  # the last one, when the connection has ended
            if isinstance(connector, ClusterConnector) and connector.node is not None:
                node = split_address(connector.node)
            return node and SimpleConnector(
                *node, destination, client_id, user, password, LOOK_MS, rollback_on_connect=False, tls=secured
            )

        watch = SnapshotWatch(beside, destination, client_id, snapshot)
    follower = Follower(connector, reading, write, watch)
    with stopped_by_signals(follower.stop):
        if retry and isinstance(connector, SimpleConnector):
            follow_with_retries(follower)
        else:
            follower.follow()
    if watch and watch.failed:
        raise SystemExit(1)


def check_range(start: str, until: str) -> None:
    """Check --from and --until. Raises click.UsageError and click.BadParameter."""
    if until and not start:
        raise click.UsageError("--until needs --from")
    for name, text, parse in (("--from", start, Place.parse), ("--until", until, end_of_read)):
        try:
            if text:
                parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint=name) from error


def follow_with_retries(follower: Follower) -> None:
    """Call `follow` again after a lost connection and while this server does not run the destination."""
    pause_s = FIRST_PAUSE_S
    while not follower.stopping.is_set():
        began = time.monotonic()
        try:
            follower.follow()
            return
        except (ConnectionLost, ServerRefused) as error:
            if isinstance(error, ServerRefused) and NOT_THERE not in str(error):
                raise
            click.echo(f"canal-ha: {error}; retrying", err=True)
        pause_s = FIRST_PAUSE_S if time.monotonic() - began > LONGEST_PAUSE_S else min(pause_s * 2, LONGEST_PAUSE_S)
        time.sleep(pause_s)


def _check_named(zk: str, access: ZooKeeperAccess, destination: str, login: ClientLogin) -> None:
    """Raise NodeUnreachable if a stranger could name the nodes that get the login.

    zk: ZooKeeper servers.
    access: how to reach them, and as whom.
    destination: its name.
    login: of an account.
    """
    if login.safe_anywhere:
        return
    with BlockingZnodes(zk, access) as znodes:
        if open_paths := login.open_paths(znodes, destination):
            text = not_sent(f"the nodes of {destination}", open_paths)
            raise NodeUnreachable(f"{text}, or name the nodes yourself with --server")


def secret(password: str) -> str:
    """Return the password of --password; warn if the command line shows it. Raises click.BadParameter."""
    if password and not has_placeholder(password):
        click.echo("canal-ha: other users can see --password in the list of processes; use --password-file", err=True)
    try:
        return filled(password, Path(), os.environ)
    except ValueError as error:
        raise click.BadParameter(f"expected {error}", param_hint="--password") from error


def address(text: str) -> tuple[str, int]:
    """Parse `host:port`, `host` or `[::1]:port`. Raises click.BadParameter."""
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--server")
    return host.strip("[]"), int(port)


def write(text: str) -> None:
    """Write to standard output in UTF-8, regardless of the locale, and flush."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGINT and SIGTERM within the block."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop()

    interrupted = signal.signal(signal.SIGINT, handle)
    terminated = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, terminated)
