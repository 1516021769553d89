"""EmbeddedServer and AsyncEmbeddedServer follow a real server, inside the process of the test."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from canal_ha.client.message import Message
from canal_ha.client.rows import rows_of
from canal_ha.embedded import AsyncEmbeddedServer, ClientIdentity, EmbeddedServer
from canal_ha.errors import (
    BatchNotFirst,
    BatchUnknown,
    ConfigError,
    FilterInvalid,
    LocalProtocolError,
    NotRunningHere,
    NotSubscribed,
)
from lab import MySQL, SqlServer, ZooKeeper, follow
from tests.waiting import until

pytestmark = pytest.mark.real

LONG_MS = 60_000


class Table:
    """A table (id) of its own, and a client that reads it."""

    def __init__(self, server: SqlServer, schema: str, client_id: int = 1001) -> None:
        self.server = server
        self.client = ClientIdentity("example", client_id, rf"{schema}\.t")
        self.name = f"{schema}.t"
        server.execute(f"CREATE DATABASE {schema}", f"CREATE TABLE {self.name} (id INT PRIMARY KEY)")

    def insert(self, *ids: int) -> None:
        """Insert rows, each in a transaction of its own."""
        self.server.execute(*(f"INSERT INTO {self.name} VALUES ({number})" for number in ids))


@pytest.fixture
def table(mysql: MySQL, database: str) -> Table:
    return Table(mysql, database)


def ids(message: Message) -> list[int]:
    return [int(str(row.after["id"])) for row in rows_of(message) if row.after]


def next_rows(server: EmbeddedServer, client: ClientIdentity, *, acks: bool = True) -> Message:
    """Return the next batch with rows. acks: acknowledge those without."""
    while True:
        message = server.get_without_ack(client, 1, LONG_MS, eager=True)
        assert message
        if ids(message):
            return message
        if acks:
            server.ack(client, message.id)


def read(server: EmbeddedServer, client: ClientIdentity, count: int) -> list[int]:
    """Read and acknowledge this many rows."""
    seen: list[int] = []
    while len(seen) < count:
        message = server.get_without_ack(client, 1000, LONG_MS, eager=True)
        seen += ids(message)
        server.ack(client, message.id)
    return seen


def test_rows_arrive_and_a_restart_continues_behind_the_cursor(table: Table, tmp_path: Path) -> None:
    """What is acknowledged does not come again, and what is not does. The cursor is in a file, below the directory."""
    settings = {"canal.destinations": "example", **follow(table.server)}
    client = table.client
    with EmbeddedServer(tmp_path, settings) as server:
        assert server.destinations == ("example",)
        assert server.alarms == ()
        server.subscribe(client)
        table.insert(1, 2, 3)
        assert read(server, client, 3) == [1, 2, 3]
        table.insert(4)
        last = next_rows(server, client)
        assert ids(last) == [4]
    assert (tmp_path / "example" / "meta.dat").exists()
    with server:
        again = next_rows(server, client)
        assert ids(again) == [4]
        with pytest.raises(BatchUnknown):
            server.ack(client, last.id)
        server.ack(client, again.id)
        table.insert(5)
        assert read(server, client, 1) == [5]
        server.unsubscribe(client)
        with pytest.raises(NotSubscribed):
            server.get(client)


def test_one_table_as_a_text_was_taken_for_its_letters(table: Table, tmp_path: Path) -> None:
    """A snapshot of `shop.t` was refused with `a table is named twice`."""
    table.insert(1)
    settings = {"canal.destinations": "example", **follow(table.server)}
    with EmbeddedServer(tmp_path, settings) as server:
        server.subscribe(table.client, snapshot=table.name)
        assert read(server, table.client, 1) == [1]


def test_batches_are_acknowledged_in_order_and_rolled_back_together(table: Table, tmp_path: Path) -> None:
    """The errors are those of a node, and the ids of batches in flight are listed."""
    client = table.client
    with EmbeddedServer(tmp_path, {"canal.instance.memory.batch.mode": "ITEMSIZE"}) as server:
        with pytest.raises(NotRunningHere):
            server.subscribe(client)
        server.start_destination("example", follow(table.server))
        with pytest.raises(NotSubscribed):
            server.get(client)
        with pytest.raises(FilterInvalid):
            server.subscribe(ClientIdentity("example", 1001, "shop.("))
        server.subscribe(client)
        table.insert(1, 2)
        first = next_rows(server, client)
        second = next_rows(server, client, acks=False)
        listed = server.list_batch_ids(client)
        assert (listed[0], listed[-1]) == (first.id, second.id)
        with pytest.raises(BatchNotFirst):
            server.ack(client, second.id)
        server.rollback(client)
        assert server.list_batch_ids(client) == ()
        assert read(server, client, 2) == [1, 2]
        assert server.get(client).id == -1


def test_destinations_come_and_go(table: Table, tmp_path: Path) -> None:
    """A directory of properties files works as for a node. Each destination has cursors and clients of its own."""
    (tmp_path / "first").mkdir()
    lines = (f"{key} = {value}" for key, value in follow(table.server).items())
    (tmp_path / "first" / "instance.properties").write_text("\n".join(lines).replace("\\", "\\\\"))
    (tmp_path / "canal.properties").write_text("canal.destinations = first\ncanal.port = 1\n")
    clients = [ClientIdentity(name, 1001, table.client.filter) for name in ("first", "second")]
    with EmbeddedServer(tmp_path) as server:
        server.start_destination("second", follow(table.server))
        assert set(server.destinations) == {"first", "second"}
        for client in clients:
            server.subscribe(client)
        table.insert(1)
        assert [read(server, client, 1) for client in clients] == [[1], [1]]
        server.stop_destination("second")
        server.stop_destination("unknown")
        assert server.destinations == ("first",)
        with pytest.raises(NotRunningHere):
            server.get(clients[1])
        table.insert(2)
        server.start_destination("second", follow(table.server))
        assert read(server, clients[1], 1) == [2]
        assert read(server, clients[0], 1) == [2]


def test_the_host_program_keeps_its_signals_and_ports(table: Table, tmp_path: Path) -> None:
    """No handler is replaced, and nothing listens, although canal.properties names ports."""
    (tmp_path / "canal.properties").write_text("canal.destinations =\ncanal.metrics.pull.port = 11112\n")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    listening = listening_sockets()
    with EmbeddedServer(tmp_path) as server:
        server.start_destination("example", follow(table.server))
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        assert listening_sockets() == listening
    assert not (tmp_path.parent / "logs").exists()


def listening_sockets() -> set[str]:
    """Return the inodes of the TCP sockets on which this process listens."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()
    ]
    listening = {fields[9] for fields in lines if fields[3] == "0A"}
    own = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix("socket:[").removesuffix("]"))
        except OSError:  # that of the listing itself
            continue
    return listening & own


def test_settings_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """The error has the key and where its value comes from, and the server can be started again."""
    server = EmbeddedServer(tmp_path, {"canal.port": "many"})
    with pytest.raises(ConfigError, match=r"settings: canal\.port = 'many'"):
        server.start()
    with EmbeddedServer(tmp_path) as server:
        with pytest.raises(ConfigError, match=r"canal\.instance\.master\.address"):
            server.start_destination("example")
        with pytest.raises(ConfigError, match=r"settings: canal\.instance\.master\.address = 'nowhere:x'"):
            server.start_destination("example", {"canal.instance.master.address": "nowhere:x"})
        assert server.destinations == ()


def test_one_server_runs_at_a_time(tmp_path: Path) -> None:
    """A second one is refused until the first one has stopped. So are calls before the start and after the stop."""
    first, second = EmbeddedServer(tmp_path / "1"), EmbeddedServer(tmp_path / "2")
    with pytest.raises(LocalProtocolError, match="start the embedded server first"):
        first.list_batch_ids(ClientIdentity("example", 1001))
    first.stop()
    with first:
        with pytest.raises(LocalProtocolError, match="another embedded server runs"):
            second.start()
        with pytest.raises(LocalProtocolError, match="runs already"):
            first.start()
    with second:
        assert second.destinations == ()
    with pytest.raises(LocalProtocolError, match="start the embedded server first"):
        second.start_destination("example")


def test_a_get_without_limit_ends_when_the_server_stops(table: Table, tmp_path: Path) -> None:
    """The thread that waits gets NotRunningHere."""
    server = EmbeddedServer(tmp_path, {"canal.destinations": "example", **follow(table.server)})
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            server.get_without_ack(table.client, 1000, 0)
        except NotRunningHere as error:
            errors.append(error)

    with server:
        server.subscribe(table.client)
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive()
    thread.join(20)
    assert len(errors) == 1


def test_a_program_that_ends_without_stop_loses_no_acknowledgement(table: Table, tmp_path: Path) -> None:
    """The cursor is written when the main thread ends, also with an error, and the process ends by itself."""
    program = f"""
from canal_ha.embedded import ClientIdentity, EmbeddedServer
from canal_ha.client.rows import rows_of
server = EmbeddedServer({str(tmp_path)!r}, {{"canal.destinations": "example",
    "canal.file.flush.period": 3600000, **{follow(table.server)!r}}})
client = ClientIdentity("example", 1001, {table.client.filter!r})
server.start()
server.subscribe(client)
print("subscribed", flush=True)
while not any(row.after for row in rows_of(server.get(client, 1000, 1000))):
    pass
raise SystemExit(7)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "subscribed\n"
        table.insert(1)
        assert child.wait(60) == 7
    table.insert(2)
    with EmbeddedServer(tmp_path, {"canal.destinations": "example", **follow(table.server)}) as server:
        server.subscribe(table.client)
        assert read(server, table.client, 1) == [2]


def test_a_program_that_runs_the_reactor_itself(tmp_path: Path) -> None:
    """The server runs on it. A call that would block it is refused, and so is a start after it has stopped."""
    program = f"""
from twisted.internet import reactor
from canal_ha.embedded import EmbeddedServer
from canal_ha.errors import LocalProtocolError

server = EmbeddedServer({str(tmp_path)!r})

def refused(call):
    try:
        call()
    except LocalProtocolError as error:
        print(error, flush=True)

def work():
    with server:
        print(server.destinations, flush=True)
        reactor.callFromThread(refused, lambda: server.destinations)
    reactor.callFromThread(reactor.stop)

reactor.callWhenRunning(reactor.callInThread, work)
reactor.run()
refused(server.start)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "()",
        "a blocking call on the reactor's thread would wait for itself",
        "Twisted's reactor has stopped in this program, and cannot run a second time",
    ]


def test_threads_that_outlive_the_main_thread_are_told(table: Table, tmp_path: Path) -> None:
    """The server stops with the main thread. Calls of other threads raise, so the process ends."""
    program = f"""
import threading
from canal_ha.embedded import ClientIdentity, EmbeddedServer
from canal_ha.errors import LocalProtocolError, NotRunningHere

server = EmbeddedServer({str(tmp_path)!r}, {{"canal.destinations": "example", **{follow(table.server)!r}}})
client = ClientIdentity("example", 1001, {table.client.filter!r})
server.start()
server.subscribe(client)

def work():
    while True:
        try:
            server.get_without_ack(client, 1000, 0)
        except NotRunningHere:
            continue
        except LocalProtocolError as error:
            print(error, flush=True)
            return

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("client_id", ["1001", 1 << 70, -(2**15) - 1, 1001.0, True])
def test_a_client_id_that_no_client_can_have_was_stored(tmp_path: Path, client_id: object) -> None:
    """Numbers beyond canal's 16 bits were; a text gave a bare TypeError."""
    client = ClientIdentity("example", client_id)  # type: ignore[arg-type]  # programs have no type checker
    with (
        EmbeddedServer(tmp_path) as server,
        pytest.raises(LocalProtocolError, match=r"client id .*: expected a whole number, -32768 to 32767"),
    ):
        server.subscribe(client)


def test_a_call_in_a_forked_process_waited_for_ever(tmp_path: Path) -> None:
    """The reactor's thread is in the other process. The end of its `with` and `stop` there do nothing."""
    program = f"""
import os
from canal_ha.embedded import EmbeddedServer
from canal_ha.errors import LocalProtocolError

with EmbeddedServer({str(tmp_path)!r}) as server:
    child = os.fork()
    if not child:
        for call in (lambda: server.destinations, EmbeddedServer({str(tmp_path)!r}).start):
            try:
                call()
            except LocalProtocolError as error:
                print(error, flush=True)
        server.stop()
    else:
        assert os.waitpid(child, 0)[1] == 0
        print(server.destinations, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    told = "the embedded server's thread is in the process that this one was forked from: call it there"
    assert done.stdout.splitlines() == [told, told, "()"]


def test_cursors_in_zookeeper(table: Table, tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """The server runs the destination as a node of the cluster, and gives it back when it stops.

    The next one continues behind the cursor, from another directory.
    """
    settings = {
        "canal.zkServers": f"{zookeeper.hosts}/embedded{time.time_ns()}",
        "canal.register.ip": "127.0.0.1",
        "canal.destinations": "example",
        **follow(table.server),
    }
    for number in (1, 2):
        with EmbeddedServer(tmp_path / str(number), settings) as server:
            until(lambda: server.destinations == ("example",), seconds=60.0, what="the destination")
            if number == 1:
                server.subscribe(table.client)
            table.insert(number)
            assert read(server, table.client, 1) == [number]
        assert not (tmp_path / str(number) / "example" / "meta.dat").exists()


def test_on_an_event_loop(table: Table, tmp_path: Path) -> None:
    """Rows arrive in an iteration, the loop stays free, and a GET that is cancelled loses nothing at any moment."""
    count = 40

    async def program() -> list[int]:
        seen: list[int] = []
        settings = {"canal.destinations": "example", **follow(table.server)}
        async with AsyncEmbeddedServer(tmp_path, settings) as server:
            assert await server.destinations() == ("example",)
            await server.subscribe(table.client)
            table.insert(0)
            async for message in server.messages(table.client):
                seen += ids(message)
                assert message.id in await server.list_batch_ids(table.client)
                await server.ack(table.client, message.id)
                if seen:
                    break
            waiting = asyncio.create_task(server.get_without_ack(table.client, 1000, 0))
            await asyncio.sleep(0.3)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            writing = asyncio.create_task(asyncio.to_thread(table.insert, *range(1, count)))
            turn = 0
            while len(seen) < count:
                turn += 1
                try:
                    async with asyncio.timeout(0.0007 * (turn % 7)):
                        message = await server.get_without_ack(table.client, 1, 1000, eager=True)
                except TimeoutError:
                    continue
                seen += ids(message)
                await server.ack(table.client, message.id)
            await writing
            await server.rollback(table.client)
            assert not ids(await server.get(table.client))  # the end of the last transaction may be left
            last = asyncio.create_task(server.get_without_ack(table.client, 1000, 0))
            await asyncio.sleep(0.3)
        with pytest.raises(NotRunningHere):
            await last
        with pytest.raises(LocalProtocolError):
            await server.get(table.client)
        return seen

    assert asyncio.run(asyncio.wait_for(program(), 120)) == list(range(count))
