"""canal.serverMode = kafka: a node with canal's own keys writes the changes of its destinations to a real Kafka."""

from __future__ import annotations

import json
import random
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import post
from canal_ha.errors import LocalProtocolError
from canal_ha.node.queues import LET_GO_S
from canal_ha.wire.proto.canal_protocol_pb2 import MESSAGES, Messages, Packet
from canal_ha.wire.proto.entry_protocol_pb2 import Entry, RowChange
from lab import MySQL, Node, ZooKeeper, follow
from lab.kafka import Kafka
from lab.node import PROGRAM
from lab.ports import LOOPBACK, free_port
from tests.beside import beside
from tests.waiting import until

pytestmark = pytest.mark.real


def properties(kafka: Kafka, **more: str) -> dict[str, str]:
    """Return the lines of canal.properties, as canal's stock file has them."""
    return {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": kafka.address,
        "kafka.acks": "all",
        "kafka.compression.type": "lz4",
        "kafka.batch.size": "16384",
        "kafka.linger.ms": "1",
        "kafka.max.request.size": "1048576",
        "kafka.buffer.memory": "33554432",
        "kafka.max.in.flight.requests.per.connection": "1",
        "kafka.retries": "0",
        "kafka.kerberos.enable": "false",
        "canal.mq.flatMessage": "true",
        "canal.mq.canalBatchSize": "50",
        "canal.mq.canalGetTimeout": "100",
        "canal.mq.pipeline.name": kafka.name,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def to_one_topic(database: str) -> dict[str, str]:
    """Return the lines of instance.properties that send the rows of a database to the topic of its name."""
    return {"canal.instance.filter.regex": rf"{database}\\..*", "canal.mq.topic": database}


def queue(node: Node, destination: str) -> Mapping[str, Any]:
    """Return the state of a destination's queue."""
    found = {each["destination"]: each["queue"] for each in node.status()["destinations"]}
    state: Mapping[str, Any] = found[destination]
    return state


def alarms(node: Node) -> list[tuple[str, str]]:
    """Return name and text of the node's alarms."""
    return [(each["alarm"], each["text"]) for each in node.status()["alarms"]]


def flat(kafka: Kafka, topic: str) -> list[dict[str, Any]]:
    """Return the messages of a topic; none while it is missing."""
    try:
        return [json.loads(message.value() or b"") for message in kafka.messages(topic)]
    except KeyError:
        return []


def test_a_migrated_configuration_writes_canals_messages_and_goes_on_after_a_kill(
    mysql: MySQL, kafka: Kafka, database: str
) -> None:
    """Topics, partitions and texts are canal's; each change comes once; status and metrics say how far Kafka is."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, name VARCHAR(20))")
    settings = {
        "canal.instance.filter.regex": rf"{database}\\..*",
        "canal.mq.topic": f"{database}.rest",
        "canal.mq.dynamicTopic": rf"{database}_t:{database}\\.t",
        "canal.mq.partitionsNum": "3",
        "canal.mq.partitionHash": rf"{database}\\.t:id",
    }
    with Node({database: follow(mysql, settings)}, properties=properties(kafka)) as node:
        until(lambda: "queue.active" in node.log_file(database), what="the queue")
        mysql.execute(f"INSERT INTO {database}.t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
        mysql.execute(f"UPDATE {database}.t SET name = 'c' WHERE id = 2", f"CREATE TABLE {database}.u (id INT)")
        until(lambda: queue(node, database)["rows"] >= 3, what="the rows")
        node.kill()
        mysql.execute(f"DELETE FROM {database}.t WHERE id = 1")
        node.start()
        until(lambda: any(each["type"] == "DELETE" for each in flat(kafka, f"{database}_t")), what="the last row")
        state = queue(node, database)
        assert (state["servers"], state["error"], state["lag_s"]) == (kafka.address, "", 0.0)
    messages = kafka.messages(f"{database}_t")
    rows = [(each.partition(), json.loads(each.value() or b"")) for each in messages]
    kinds = [(row["type"], data["id"], data["name"]) for _, row in rows for data in row["data"]]
    assert sorted(kinds, key=str) == [
        ("DELETE", "1", "a"),
        ("INSERT", "1", "a"),
        ("INSERT", "2", "b"),
        ("INSERT", "3", None),
        ("UPDATE", "2", "c"),
    ]
    places = {data["id"]: partition for partition, row in rows for data in row["data"]}
    assert len(set(places.values())) > 1
    (created,) = flat(kafka, f"{database}_rest")
    assert (created["isDdl"], created["table"], created["database"]) == (True, "u", database)


@pytest.mark.nightly(
    "one node that is killed, in the test above; the rest is the race of nodes, which has tests of its own"
)
def test_each_change_comes_once_although_owners_are_killed(
    mysql: MySQL, kafka: Kafka, zookeeper: ZooKeeper, database: str
) -> None:
    """The node that takes over continues behind the last transaction of Kafka, while rows are written."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    settings = to_one_topic(database)
    written = 0

    def write(stopping: threading.Event) -> None:
        nonlocal written
        with mysql.connect() as connection, connection.cursor() as cursor:
            while not stopping.wait(0.002):
                cursor.execute(f"INSERT INTO {database}.t VALUES ({written + 1})")
                written += 1

    cluster = {
        "canal.instance.global.spring.xml": "classpath:spring/default-instance.xml",
        "canal.zookeeper.session.timeout": "4000",
    }

    def member(name: str) -> Node:
        own = {**properties(kafka), **cluster}
        return Node({database: follow(mysql, settings)}, zk_servers=zookeeper.hosts, properties=own, name=name)

    with member("one") as one, member("two") as two:
        owner = until(lambda: next((each for each in (one, two) if database in each.running()), None), what="an owner")
        until(lambda: "queue.active" in owner.log_file(database), what="the queue")
        with beside(write):
            for _ in range(4):
                time.sleep(1.0 + random.random())
                owner.kill()
                other = two if owner is one else one
                until(lambda other=other: database in other.running(), what="the take-over")  # type: ignore[misc]  # bound
                owner.start()
                owner = other
        until(lambda: str(written) in {row["data"][0]["id"] for row in flat(kafka, database)}, what="the last row")
    found = [int(row["id"]) for message in flat(kafka, database) for row in message["data"]]
    assert found == list(range(1, written + 1))


@pytest.mark.nightly("the format without a broker, in tests/pipeline/messages/test_canal_protobuf.py")
def test_the_client_id_of_a_flow_that_runs_is_not_deleted(mysql: MySQL, kafka: Kafka, database: str) -> None:
    """The flow began anew at the newest position, and Kafka lacked the changes before it."""
    mysql.execute(f"CREATE DATABASE {database}")
    with Node({database: follow(mysql, to_one_topic(database))}, properties=properties(kafka)) as node:
        until(lambda: "queue.active" in node.log_file(database), what="the queue")
        token = (node.directory / "logs" / "canal" / "operator.token").read_text().strip()
        url, body = f"http://{LOOPBACK}:{node.admin_port}", {"client_id": 1001, "action": "delete"}
        with pytest.raises(LocalProtocolError, match="is in use by the flow of this node into Kafka"):
            post(url, HttpAccess(token=token), database, "cursor", body, {"before": str}, LocalProtocolError, 30)


def test_protobuf_messages_are_canals_packets(mysql: MySQL, kafka: Kafka, database: str) -> None:
    """With flatMessage = false. A row goes to the partition of its key, in an entry of its own."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    settings = {**to_one_topic(database), "canal.mq.partitionsNum": "2", "canal.mq.partitionHash": r".*\\..*:$pk$"}
    with Node({database: follow(mysql, settings)}, properties=properties(kafka, canal_mq_flatMessage="false")) as node:
        until(lambda: "queue.active" in node.log_file(database), what="the queue")
        mysql.execute(f"INSERT INTO {database}.t VALUES (1), (2), (3)")
        until(lambda: queue(node, database)["rows"] >= 3, what="the rows")
    found = []
    for message in kafka.messages(database):
        packet = Packet.FromString(message.value() or b"")
        assert packet.type == MESSAGES
        for raw in Messages.FromString(packet.body).messages:
            entry = Entry.FromString(raw)
            (row,) = RowChange.FromString(entry.storeValue).rowDatas
            found.append((row.afterColumns[0].value, message.partition(), entry.header.tableName))
    assert sorted(value for value, _, _ in found) == ["1", "2", "3"]
    assert {partition for value, partition, _ in found if value in ("1", "3")} != {
        partition for value, partition, _ in found if value == "2"
    }


@pytest.mark.nightly(
    "the refusals of the target, in tests/pipeline/test_kafka.py, and the alarms, in tests/node/test_lasting.py"
)
def test_what_a_person_has_to_mend_is_an_alarm_until_it_is_mended(mysql: MySQL, kafka: Kafka, database: str) -> None:
    """A topic with too few partitions, and a setting that Kafka does not know. `canal-ha check` asks Kafka."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    settings = {**to_one_topic(database), "canal.mq.partitionsNum": "2", "canal.mq.partitionHash": r".*\\..*:$pk$"}
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(database, 1)])[database].result(10)
    with Node({database: follow(mysql, settings)}, properties=properties(kafka)) as node:
        until(lambda: "queue.active" in node.log_file(database), what="the queue")
        mysql.execute(f"INSERT INTO {database}.t VALUES (1)")
        until(lambda: bool(alarms(node)), what="the alarm")
        ((name, text),) = alarms(node)
        assert (name, "has 1 partitions: add some" in text) == ("queue", True)
        admin.create_partitions([NewPartitions(database, 2)])[database].result(10)
        until(lambda: not alarms(node) and bool(flat(kafka, database)), what="the row")
        check = [PROGRAM, "check", "--conf", str(node.conf)]
        done = subprocess.run(check, capture_output=True, text=True, timeout=90, check=False)
        assert re.search(rf"ok +{database} +Kafka +Kafka at {kafka.address}", done.stdout)
        wrong = [*check, "--set", "kafka.no.such=1"]
        done = subprocess.run(wrong, capture_output=True, text=True, timeout=90, check=False)
        assert re.search(rf"FAILED +{database} +Kafka .*kafka\.\*: librdkafka refuses them.*no\.such", done.stdout)
    assert len(flat(kafka, database)) == 1


@pytest.mark.nightly(
    "the alarm in tests/node/test_lasting.py, and what the status makes of it in tests/cli/test_status.py"
)
def test_brokers_that_do_not_answer_are_a_problem_at_once_and_an_alarm_after_30_s(
    mysql: MySQL, kafka: Kafka, database: str
) -> None:
    """The status says from the beginning that the node waits, and ends with 3. The alarm has a text for people."""
    mysql.execute(f"CREATE DATABASE {database}")
    nowhere = {**properties(kafka), "kafka.bootstrap.servers": f"{LOOPBACK}:{free_port()}"}
    with Node({database: follow(mysql, {"canal.mq.topic": database})}, properties=nowhere) as node:
        assert queue(node, database)["waits_for"] == "the first answer of Kafka"
        command = [PROGRAM, "status", "--url", f"http://{LOOPBACK}:{node.admin_port}", "--max-lag", "60"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "the node waits for the first answer of Kafka" in done.stdout) == (3, True)
        ((name, text),) = until(lambda: alarms(node) or None, what="the alarm", seconds=60)
        assert (name, "does not get the changes: the node waits for " in text) == ("queue", True)
        assert "queue.waiting" in node.log_file(database)
        until(lambda: "no broker can be reached" in alarms(node)[0][1], what="the reason", seconds=90)


@pytest.mark.parametrize(
    "clustered",
    [
        False,
        pytest.param(True, marks=pytest.mark.nightly("a node without ZooKeeper; a member releases in the same way")),
    ],
    ids=["alone", "clustered"],
)
def test_destinations_of_a_broker_that_is_down_do_not_wait_for_each_other(
    mysql: MySQL, zookeeper: ZooKeeper, database: str, clustered: bool
) -> None:
    """Each has a transaction that the broker does not answer, and waits LET_GO_S for it.

    A change of canal.properties restarts all of them in little more than that time, and an orderly stop ends all. When
    the broker is back, each topic has the row once.
    """
    names = [f"{database}_{number}" for number in range(6)]
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    settings = {name: follow(mysql, {**to_one_topic(database), "canal.mq.topic": name}) for name in names}
    scanned = {"canal.auto.scan": "true", "canal.auto.scan.interval": "1", "canal.instance.memory.buffer.size": "1024"}
    with Kafka() as kafka:
        own = {**properties(kafka), **scanned}
        with Node(settings, properties=own, zk_servers=zookeeper.hosts if clustered else "") as node:
            until(lambda: all("queue.active" in node.log_file(name) for name in names), what="the queues")
            kafka.stop()
            mysql.execute(f"INSERT INTO {database}.t VALUES (1)")
            time.sleep(2.0)  # until each flow has begun its transaction
            main = node.conf / "canal.properties"
            main.write_text(main.read_text().replace("buffer.size = 1024", "buffer.size = 512"))
            begun = time.monotonic()
            until(lambda: [each["buffer_size"] for each in node.status()["destinations"]] == [512] * 6, what="restarts")
            assert time.monotonic() - begun < 3 * LET_GO_S
            begun = time.monotonic()
            node.stop()
            assert time.monotonic() - begun < 2 * LET_GO_S
            kafka.start()
            node.start()
            until(lambda: all(flat(kafka, name) for name in names), what="the row in all topics")
            assert [len(flat(kafka, name)) for name in names] == [1] * 6
