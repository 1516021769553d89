"""AsyncConnector and AsyncClusterConnector on an event loop, against our own server: cancellation, tasks, iteration."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from canal_ha.client.async_cluster import AsyncClusterConnector
from canal_ha.client.async_connector import AsyncConnector
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import BatchMode, PortTls
from canal_ha.errors import ConnectionLost, ConnectorStopped, LocalProtocolError, ServerRefused, WaitedTooLong
from canal_ha.server.certificates import Certificates
from lab.certificates import Authority
from lab.ports import free_port
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction

LONG_MS = 30_000
PATIENCE_S = 20.0


@pytest.fixture
def served() -> Iterator[Served]:
    """Yield a server whose batch sizes count entries. A transaction has three."""
    with Served(config={"batch_mode": BatchMode.ITEMSIZE}) as running:
        yield running


def client_of(served: Served, **options: object) -> AsyncConnector:
    return AsyncConnector(LOOPBACK, served.port, "example", **options)  # type: ignore[arg-type]  # valid options


def cluster_of(*ports: int, **options: object) -> AsyncClusterConnector:
    made: Callable[..., AsyncClusterConnector] = AsyncClusterConnector
    return made([f"{LOOPBACK}:{port}" for port in ports], "example", **{"retry_interval_ms": 100, **options})


def offsets(message: object) -> list[int]:
    return [entry.header.logfileOffset for entry in message.entries]  # type: ignore[attr-defined]  # a Message


async def beats(work: asyncio.Task[object]) -> int:
    """Return how often another task gets its turn while this one works."""
    count = 0
    while not work.done():
        await asyncio.sleep(0.01)
        count += 1
    return count


async def waiting(client: AsyncConnector | AsyncClusterConnector, wait_ms: int = LONG_MS) -> asyncio.Task[object]:
    """Return a task whose GET is on its way and waits."""

    async def get() -> object:
        return await client.get_without_ack(3, wait_ms)

    task = asyncio.create_task(get())
    await asyncio.sleep(0.2)
    assert not task.done()
    return task


async def cancelled(task: asyncio.Task[object]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


def test_batches_are_acknowledged_in_order_and_rolled_back_together(served: Served) -> None:
    """The calls have the meaning of the blocking connector's."""

    async def program() -> None:
        async with client_of(served) as client:
            await client.subscribe()
            assert not await client.get_without_ack(3)
            for number in range(2):
                served.push(entries_segment(transaction(number)))
            batches = [await client.get_without_ack(3) for _ in range(2)]
            assert [batch.id for batch in batches] == [1, 2]
            await client.rollback()
            again = await client.get_without_ack(6)
            assert again.raw_entries == batches[0].raw_entries + batches[1].raw_entries
            await client.ack(again.id)
            assert not await client.get(100)
        with pytest.raises(LocalProtocolError, match="should connect first"):
            await client.get()

    asyncio.run(program())
    assert str(served.meta.cursor(1001)) == "mysql-bin.000001:2900"


def test_a_get_that_waits_leaves_the_loop_to_others(served: Served) -> None:
    """Other tasks run while a GET waits, and an ACK does not wait for it."""

    async def program() -> None:
        async with client_of(served) as client:
            await client.subscribe()
            served.push(entries_segment(transaction(0)))
            first = await client.get_without_ack(3)
            task = await waiting(client, 1000)
            await client.ack(first.id)
            assert await beats(task) > 10

    asyncio.run(program())


def test_a_get_that_is_cancelled_leaves_its_batch_to_the_next_one(served: Served) -> None:
    """No later request reads the answer of the cancelled one, and no batch is lost or delivered twice."""

    async def program() -> None:
        async with client_of(served) as client:
            await client.subscribe()
            await cancelled(await waiting(client))
            assert client.connected
            served.push(entries_segment(transaction(0)))
            served.push(entries_segment(transaction(1)))
            first = await client.get_without_ack(100)
            assert offsets(first) == [1000, 1100, 1900]
            assert offsets(await client.get_without_ack(3)) == [2000, 2100, 2900]
            await client.ack(first.id)
            await cancelled(await waiting(client, 1000))
            await client.subscribe()
            await client.rollback()
            assert offsets(await client.get_without_ack(3)) == [2000, 2100, 2900]

    asyncio.run(program())
    assert str(served.meta.cursor(1001)) == "mysql-bin.000001:1900"


def test_gets_with_time_outs_of_their_caller_lose_nothing(served: Served) -> None:
    """asyncio.timeout cancels again and again at any moment while rows arrive: each comes once, in order."""
    count = 60

    async def program() -> list[int]:
        seen: list[int] = []
        async with client_of(served) as client:
            await client.subscribe()

            async def push() -> None:
                for number in range(count):
                    served.push(entries_segment(transaction(number)))
                    await asyncio.sleep(0.003 * (number % 5))

            pushing = asyncio.create_task(push())
            turn = 0
            while len(seen) < 3 * count:
                turn += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.0007 * (turn % 7)):
                        message = await client.get_without_ack(3, 50)
                        seen += offsets(message)
                        await client.ack(message.id)
            await pushing
        return seen

    async def bounded() -> list[int]:
        return await asyncio.wait_for(program(), PATIENCE_S * 3)

    seen = asyncio.run(bounded())
    assert seen == [1000 * number + offset for number in range(count) for offset in (1000, 1100, 1900)]


def test_a_get_without_limit_that_is_cancelled_closes_the_connection(served: Served) -> None:
    """Its reply may never come. The next connection gets everything that is not acknowledged."""

    async def program() -> None:
        client = client_of(served)
        await client.connect()
        await client.subscribe()
        await cancelled(await waiting(client, 0))
        assert not client.connected
        served.push(entries_segment(transaction(0)))
        async with client:
            await client.subscribe()
            assert offsets(await client.get_without_ack(3, LONG_MS)) == [1000, 1100, 1900]

    asyncio.run(program())


def test_a_connect_that_is_cancelled_leaves_nothing_open() -> None:
    """The server never greets. The connector can connect again."""

    async def program() -> None:
        with socket.create_server((LOOPBACK, 0)) as mute:
            client = AsyncConnector(LOOPBACK, mute.getsockname()[1], "example")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.connect()
            assert not client.connected
            peer, _ = mute.accept()
            with peer:
                peer.settimeout(PATIENCE_S)
                assert await asyncio.to_thread(peer.recv, 1) == b""

    asyncio.run(program())


def test_a_server_that_does_not_answer_is_left() -> None:
    """so_timeout_ms limits the wait for a reply, and the error is the package's own."""

    async def program() -> None:
        with (
            socket.create_server((LOOPBACK, 0)) as mute,
            pytest.raises(ConnectionLost, match="did not answer before the timeout"),
        ):
            await AsyncConnector(LOOPBACK, mute.getsockname()[1], "example", so_timeout_ms=100).connect()
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await AsyncConnector(LOOPBACK, free_port(), "example").connect()

    asyncio.run(program())


def test_calls_of_several_tasks_run_one_after_the_other(served: Served) -> None:
    """Each reply reaches the task that asked for it."""

    async def program() -> None:
        async with client_of(served) as client:
            await client.subscribe()
            for number in range(5):
                served.push(entries_segment(transaction(number)))
            batches = await asyncio.gather(*(client.get_without_ack(3) for _ in range(5)))
            assert [batch.id for batch in batches] == [1, 2, 3, 4, 5]

    asyncio.run(program())


def test_another_task_can_interrupt_and_abort(served: Served) -> None:
    """A waiting GET raises ConnectionLost; afterwards there is no connection."""

    async def program() -> None:
        for end in (AsyncConnector.interrupt, AsyncConnector.abort):
            async with client_of(served) as client:
                await client.subscribe()
                task = await waiting(client)
                end(client)
                with pytest.raises(ConnectionLost):
                    await task
                assert not client.connected

    asyncio.run(program())


def test_iteration_yields_what_has_entries(served: Served) -> None:
    """An iteration waits through empty answers, and goes on where the last one ended."""

    async def program() -> None:
        async with client_of(served) as client:
            await client.subscribe()
            asyncio.get_running_loop().call_later(1.5, served.push, entries_segment(transaction(0)))
            async for message in client:
                assert offsets(message) == [1000, 1100, 1900]
                await client.ack(message.id)
                break
            served.push(entries_segment(transaction(1)))
            async for message in client:
                assert offsets(message) == [2000, 2100, 2900]
                break

    asyncio.run(program())


def test_rows_of_any_size_arrive_whole_over_tls(tmp_path: Path) -> None:
    """Batches of megabytes are the same, also with read-ahead; acknowledgements before the end are read."""
    authority = Authority(tmp_path)
    node = str(authority.sign("node"))

    async def program(served: Served) -> None:
        tls = ClientTls(str(authority.file))
        async with client_of(served, tls=tls, read_ahead=True) as client:
            await client.subscribe()
            for number, rows in enumerate((1, 3000, 40)):
                pushed = transaction(number, rows=rows, value="x" * 300)
                served.push(entries_segment(pushed))
                got: list[bytes] = []
                while len(got) < len(pushed):
                    message = await client.get_without_ack(100, 100)
                    got += [bytes(entry) for entry in message.raw_entries]
                    await client.ack(message.id)
                assert got == pushed
        stranger = client_of(served, tls=ClientTls(str(authority.file), server_name="elsewhere"))
        with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.connect()

    with Served(certificates=Certificates(PortTls(node, node)), config={"buffer_mem_unit": 4096}) as served:
        asyncio.run(program(served))
        assert str(served.meta.cursor(1001)).startswith("mysql-bin.000001:")


# ---- several nodes


def test_a_node_that_ends_is_followed_by_the_next(served: Served) -> None:
    """What was not acknowledged comes again with a larger id; a late ACK is dropped."""

    async def program() -> None:
        async with cluster_of(free_port(), served.port, filter="") as client:
            assert client.node == f"{LOOPBACK}:{served.port}"
            served.push(entries_segment(transaction(0)))
            message = await client.get_without_ack(3, LONG_MS)
            link = client._exchange._link
            assert link is not None
            link.abort()
            again = await client.get_without_ack(3, LONG_MS)
            assert again.id > message.id
            assert again.raw_entries == message.raw_entries
            await client.ack(message.id)
            await client.ack(again.id)

    asyncio.run(program())
    assert str(served.meta.cursor(1001)) == "mysql-bin.000001:1900"


def test_a_get_of_a_cluster_that_is_cancelled_keeps_its_connection(served: Served) -> None:
    """Batches in flight are not delivered again, and the next GET returns the batch of the cancelled one."""

    async def program() -> None:
        async with cluster_of(served.port, filter="") as client:
            served.push(entries_segment(transaction(0)))
            first = await client.get_without_ack(3, LONG_MS)
            connection = client.connection
            await cancelled(await waiting(client))
            served.push(entries_segment(transaction(1)))
            second = await client.get_without_ack(3, LONG_MS)
            assert offsets(second) == [2000, 2100, 2900]
            await client.ack(first.id)
            await client.ack(second.id)
            assert client.connection == connection
            await cancelled(await waiting(client, 0))
            served.push(entries_segment(transaction(2)))
            assert offsets(await client.get_without_ack(3, LONG_MS)) == [3000, 3100, 3900]
            assert client.connection > connection

    asyncio.run(program())


def test_whatever_is_cancelled_and_aborted_every_row_arrives(served: Served) -> None:
    """Calls are cancelled at any moment, also while they connect, and connections break. No transaction is skipped."""
    count, chance = 60, random.Random(7)
    seen: list[int] = []

    async def program() -> None:
        async with cluster_of(served.port, filter="", retry_interval_ms=0) as client:

            async def push() -> None:
                for number in range(count):
                    served.push(entries_segment(transaction(number)))
                    await asyncio.sleep(0.002)

            pushing = asyncio.create_task(push())
            while max(seen, default=0) < count:
                link = client._exchange._link
                if link is not None and chance.random() < 0.1:
                    link.abort()
                with suppress(TimeoutError):
                    async with asyncio.timeout(chance.choice([0.0005, 0.002, 0.01, 0.05])):
                        message = await client.get_without_ack(3, chance.choice([-1, 20, 20, 0]))
                    if message:
                        number = message.entries[0].header.logfileOffset // 1000
                        assert number <= max(seen, default=0) + 1
                        seen.append(number)
                        await client.ack(message.id)
            await pushing

    asyncio.run(asyncio.wait_for(program(), PATIENCE_S * 4))


def test_a_call_that_waits_for_a_node_can_be_cancelled_stopped_and_limited() -> None:
    """No node can be reached. The loop stays free meanwhile."""

    async def program() -> None:
        client = cluster_of(free_port())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.connect()
        assert not client.connected
        connecting: asyncio.Task[object] = asyncio.create_task(client.connect())
        asyncio.get_running_loop().call_later(0.3, client.stop_running)
        assert await beats(connecting) > 5
        with pytest.raises(ConnectorStopped):
            await connecting
        with pytest.raises(WaitedTooLong, match="no connection to a node in time"):
            await cluster_of(free_port(), call_timeout_s=0.2).connect()
        with pytest.raises(ConnectionLost, match="after 3 times retry"):
            await cluster_of(free_port(), retry_times=3).connect()

    asyncio.run(program())


@pytest.mark.parametrize("stop", ["stop_running", "disconnect"])
def test_another_task_stops_a_get_without_limit(served: Served, stop: str) -> None:
    """The waiting call raises ConnectorStopped."""

    async def program() -> None:
        client = cluster_of(served.port, filter="")
        await client.connect()
        task = await waiting(client, 0)
        if stop == "disconnect":
            await client.disconnect()
        else:
            client.stop_running()
        with pytest.raises(ConnectorStopped):
            await task
        await client.disconnect()

    asyncio.run(program())


def test_what_cannot_get_better_is_told_at_once(served: Served) -> None:
    """A GET without SUBSCRIBE, an invalid filter and an ACK of an unknown batch are errors, as on a thread."""

    async def program() -> None:
        async with cluster_of(served.port) as client:
            with pytest.raises(ServerRefused, match="should subscribe first"):
                await client.get_without_ack()
            with pytest.raises(ServerRefused, match="table filter"):
                await client.subscribe("shop.(")
            with pytest.raises(LocalProtocolError, match="never delivered"):
                await client.ack(7)

    asyncio.run(program())
