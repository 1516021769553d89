"""Changes in a real Kafka broker: each exactly once and in order, whoever is killed; and what is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from fastavro import parse_schema, schemaless_reader

from canal_ha.config.model import InstanceConfig, QueueConfig, SourceConfig
from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.queue import described, opened
from canal_ha.pipeline.targets import kafka_topics
from canal_ha.pipeline.targets.kafka import KafkaTarget, _Session, open_target
from lab.kafka import Kafka
from lab.ports import free_port
from lab.process import spawn
from lab.registry import Registry
from tests.pipeline.kafka_writer import DESTINATION, KEYS, begun, description, numbered, portion
from tests.spark.entries import ddl, frames, insert, logged_statement, rows

pytestmark = pytest.mark.real

_numbers = count()


@pytest.fixture
def name() -> str:
    """Return the name of a pipeline, and of its topic, that no other test uses."""
    return f"t{next(_numbers)}"


@pytest.fixture
def target(kafka: Kafka, name: str) -> Iterator[KafkaTarget]:
    """Yield a target with one topic."""
    opened = opened_target(kafka, name)
    yield opened
    opened.close()


def opened_target(kafka: Kafka, name: str, **options: Any) -> KafkaTarget:
    """Return a target with one topic, of the pipeline's name."""
    opened = open_target(description(kafka.address, name=name, **{"topic": name, "timeout": 10, **options}))
    opened.check()
    return opened


def numbers(messages: Iterable[Message]) -> list[int]:
    """Return the numbers of the rows in canal-json messages."""
    bodies = [json.loads(message.value() or b"") for message in messages]
    return [int(row["name"]) for body in bodies for row in body["data"]]


def writer(kafka: Kafka, rows: int) -> subprocess.Popen[Any]:
    """Start a process that writes numbered rows into the topic s.t."""
    arguments = [kafka.address, "canal-json", str(rows)]
    return spawn([sys.executable, "-m", "tests.pipeline.kafka_writer", *arguments], stdout=subprocess.PIPE)


def check_numbers(kafka: Kafka, rows: int) -> None:
    """Fail unless every row is there once, those of a key in order and in one partition."""
    messages = kafka.messages("s.t")
    assert sorted(numbers(messages)) == list(range(rows))
    of_key: dict[int, list[tuple[int, int]]] = {}
    for message in messages:
        for number in numbers([message]):
            of_key.setdefault(number % KEYS, []).append((number, message.partition() or 0))
    for found in of_key.values():
        assert found == sorted(found)
        assert len({partition for _, partition in found}) == 1


@pytest.mark.parametrize("made", ["debezium-json", "canal-json"])
def test_changes_that_the_source_logged_as_a_statement(kafka: Kafka, name: str, made: str) -> None:
    """Debezium's formats have no message for them and stop; canal's have the statement."""
    target = opened_target(kafka, name, format=made)
    progress = begun(target)
    logged = logged_statement(1, "UPDATE t SET name = 'z'", "UPDATE")
    try:
        if made == "canal-json":
            target.commit(portion(frames([logged]), progress.after(LogPosition("bin.000001", 1), 1)))
        else:
            with pytest.raises(SinkRefused, match=r"logged a statement without its rows, UPDATE of s\.t, at"):
                target.commit(portion(frames([logged]), progress.after(LogPosition("bin.000001", 1), 1)))
    finally:
        target.close()


def test_each_row_is_there_once_and_in_order_while_writers_are_killed() -> None:
    with Kafka() as broker:
        for _ in range(4):
            process = writer(broker, 10_000)
            some_commits(process)
            process.kill()
            process.wait()
        left = broker.messages("canal-ha.progress")
        rows = json.loads(left[-1].value() or b"")["last"]["postion"]["position"] + 100
        assert writer(broker, rows).wait(60) == 0

        check_numbers(broker, rows)


def test_each_row_is_there_once_and_in_order_while_the_broker_is_killed() -> None:
    with Kafka() as broker:
        rows = 800
        process = writer(broker, rows)
        some_commits(process)
        broker.kill()
        broker.start()

        assert process.wait(60) == 0
        check_numbers(broker, rows)


def some_commits(process: subprocess.Popen[Any]) -> None:
    """Wait for a random moment in or between two commits of a writer."""
    assert process.stdout is not None
    for _ in range(random.randint(1, 6)):
        assert process.stdout.readline()
    time.sleep(random.uniform(0, 0.1))


def test_an_older_process_is_refused_and_the_newer_one_continues(kafka: Kafka, name: str) -> None:
    older, newer = opened_target(kafka, name), opened_target(kafka, name)
    first = numbered(0, 3, begun(older))
    older.commit(first)
    assert newer.progress(DESTINATION) == first.progress

    with pytest.raises(SinkRefused, match="another process with this pipeline's name has taken over"):
        older.commit(numbered(3, 1, first.progress))
    newer.commit(numbered(3, 2, first.progress))

    assert sorted(numbers(kafka.messages(name))) == [0, 1, 2, 3, 4]


def test_a_pipeline_that_was_suspended_in_a_transaction_was_told_of_another_process(
    kafka: Kafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has ended the transaction after its time, and the pipeline writes the portion again."""
    target = opened_target(kafka, name, timeout=2)
    first = numbered(0, 3, begun(target))
    put = _Session._put

    def suspended(session: _Session, *message: Any) -> None:
        put(session, *message)
        monkeypatch.undo()
        session._producer.flush(5.0)
        time.sleep(4.0)

    monkeypatch.setattr(_Session, "_put", suspended)
    with pytest.raises(TargetUnavailable, match="a transaction was open for more than 2 s, so Kafka has ended it"):
        target.commit(first)
    assert target.progress(DESTINATION) == begun(target)
    target.commit(first)
    assert numbers(kafka.messages(name)) == [0, 1, 2]
    target.close()


def test_looking_at_the_progress_ends_no_running_pipeline(kafka: Kafka, target: KafkaTarget, name: str) -> None:
    """It also creates no topic, and waits for no other process."""
    progress = f"{name}-progress"
    running = open_target(description(kafka.address, name=name, topic=name, timeout=10, progressTopic=progress))
    looking = open_target(description(kafka.address, name=name, topic=name, timeout=10, progressTopic=progress))
    assert looking.stored(DESTINATION) is None
    assert progress not in AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=10).topics
    first = numbered(0, 3, begun(running))
    running.commit(first)

    assert looking.stored(DESTINATION) == first.progress
    assert looking.stored("another") is None

    second = numbered(3, 2, first.progress)
    running.commit(second)
    assert looking.stored(DESTINATION) == second.progress
    assert sorted(numbers(kafka.messages(name))) == [0, 1, 2, 3, 4]


def test_a_portion_that_is_committed_already_is_not_written_again(kafka: Kafka, target: KafkaTarget, name: str) -> None:
    made = numbered(0, 3, begun(target))
    target.commit(made)
    assert target.progress(DESTINATION) == made.progress

    target.commit(made)

    assert sorted(numbers(kafka.messages(name))) == [0, 1, 2]


def test_a_portion_that_does_not_follow_the_committed_one_is_refused(target: KafkaTarget) -> None:
    first = numbered(0, 1, begun(target))
    target.commit(first)

    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        target.commit(numbered(5, 1, numbered(1, 1, first.progress).progress))


def test_a_portion_without_entries_begins_a_run_with_a_name_of_its_own(target: KafkaTarget) -> None:
    first = numbered(0, 1, begun(target))
    target.commit(first)
    renamed = replace(first.progress, run="another")

    target.commit(portion(b"", renamed))
    target.commit(numbered(1, 1, renamed))

    stored = target.progress(DESTINATION)
    assert stored is not None
    assert (stored.run, stored.seq) == ("another", 2)


def test_progress_is_found_behind_that_of_many_other_pipelines(kafka: Kafka, target: KafkaTarget, name: str) -> None:
    made = numbered(0, 1, begun(target))
    target.commit(made)
    others = Producer({"bootstrap.servers": kafka.address})
    for number in range(2000):
        others.produce("canal-ha.progress", b"{}", f"other {number}".encode(), 0)
    others.flush()

    assert opened_target(kafka, name).progress(DESTINATION) == made.progress


def test_progress_behind_an_open_transaction_of_another_pipeline_is_not_overlooked(kafka: Kafka, name: str) -> None:
    own = {"progressTopic": f"{name}-progress"}
    other = Producer({"bootstrap.servers": kafka.address, "transactional.id": name, "transaction.timeout.ms": 4000})
    other.init_transactions(10)
    other.begin_transaction()
    other.produce(own["progressTopic"], b"{}", b"another pipeline", 0)
    other.flush()
    del other  # as if it had died
    target = opened_target(kafka, name, **own)
    made = numbered(0, 1, begun(target))
    target.commit(made)

    assert opened_target(kafka, name, **own).progress(DESTINATION) == made.progress


def test_a_message_that_is_too_large_names_the_table_and_its_key_and_no_value(kafka: Kafka, name: str) -> None:
    target = opened_target(kafka, name, maxMessageBytes=5000)
    secret = "secret" * 1000
    target.progress(DESTINATION)

    with pytest.raises(SinkRefused, match=r"s\.t \(key id\) has \d+ bytes, too many for topic") as refused:
        target.commit(portion(frames([insert(1, 1, secret)]), numbered(1, 1, begun(target)).progress))

    assert "secret" not in str(refused.value)
    assert kafka.messages(name) == []


def test_a_message_that_is_too_large_for_the_topic_is_refused(kafka: Kafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(name, 1, config={"max.message.bytes": "2000"})])[name].result(10)
    target = opened_target(kafka, name)
    target.progress(DESTINATION)

    with pytest.raises(SinkRefused, match=r"s\.t \(key id\) has \d+ bytes, too many for topic"):
        target.commit(portion(frames([insert(1, 1, "x" * 3000)]), numbered(1, 1, begun(target)).progress))


def test_a_message_that_the_topic_refused_was_an_erroneous_state_while_others_followed(kafka: Kafka, name: str) -> None:
    """The broker's answer comes while messages are added. Adding one then fails before the answer has been read."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(name, 1, config={"max.message.bytes": "2000"})])[name].result(10)
    target = opened_target(kafka, name, properties={"linger.ms": 0})
    target.progress(DESTINATION)
    changes = frames([insert(1, 1, "x" * 3000), *[insert(2, 2, "y")] * 40_000])

    with pytest.raises(SinkRefused, match=r"s\.t \(key id\) has 3\d+ bytes, too many for topic"):
        target.commit(portion(changes, numbered(1, 1, begun(target)).progress))


def test_the_queue_of_a_node_names_the_key_of_canal_for_larger_messages(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """It named an option of pipelines, which canal.properties does not have."""
    options = {"servers": kafka.address, "topic": name, "timeout": 10, "maxMessageBytes": 5000}
    config = InstanceConfig(DESTINATION, SourceConfig("127.0.0.1"), data_dir=tmp_path)
    target = opened(described(config, QueueConfig(name, options)))
    assert isinstance(target, KafkaTarget)
    made = numbered(1, 1, begun(target))

    with pytest.raises(SinkRefused, match=r"raise kafka\.max\.request\.size and the topic's max\.message\.bytes"):
        target.commit(portion(frames([insert(1, 1, "x" * 6000)]), made.progress))


def test_a_topic_with_too_few_partitions_is_refused(kafka: Kafka, target: KafkaTarget, name: str) -> None:
    target.commit(numbered(0, 1, begun(target)))
    more = opened_target(kafka, name, partitions=4)

    with pytest.raises(SinkRefused, match="has 1 partitions: add some, or set partitions to 1"):
        more.commit(numbered(1, 1, begun(more)))


def test_a_missing_topic_is_refused_if_topics_are_not_to_be_created(kafka: Kafka, name: str) -> None:
    opened_target(kafka, f"{name}-before").close()  # it creates the topic of the progress
    target = opened_target(kafka, name, create=False)

    with pytest.raises(SinkRefused, match=f"there is no topic {name}: create it, or set create: true"):
        target.commit(numbered(0, 1, begun(target)))


def test_tables_have_topics_by_their_names_and_by_canals_rules(kafka: Kafka, name: str) -> None:
    rules = {"topic": "{table}.of.{schema}", "dynamicTopic": rf"{name}-ruled:s\.{name}r.*"}
    target = opened_target(kafka, name, **rules)
    entries = [insert(1, 1, "1", table=f"{name}\N{SNOWMAN}"), insert(2, 2, "2", table=f"{name}ruled")]
    entries.append(ddl(3, "ALTER TABLE x", table=f"{name}ruled"))
    progress = numbered(1, 1, begun(target)).progress

    target.commit(portion(frames(entries), progress))

    assert numbers(kafka.messages(f"{name}_.of.s")) == [1]
    ruled = [json.loads(message.value() or b"") for message in kafka.messages(f"{name}-ruled")]
    assert [(body["type"], body["isDdl"]) for body in ruled] == [("INSERT", False), ("ALTER", True)]


def test_two_tables_whose_names_give_one_topic_are_refused(kafka: Kafka, name: str) -> None:
    """Their rows would be mixed. Tables that the options give one topic share it."""
    target = opened_target(kafka, name, topic="{table}", dynamicTopic=rf"{name}-ruled:s\.{name}r.*")
    begin = begun(target)
    entries = [insert(1, 1, "1", table=f"{name}r1"), insert(2, 2, "2", table=f"{name}r2")]
    entries += [insert(3, 3, "3", table=f"{name}!"), insert(4, 4, "4", table=f"{name}!", schema="other")]
    with pytest.raises(SinkRefused, match="has the rows of another table"):
        target.commit(portion(frames([*entries, insert(5, 5, "5", table=f"{name}?")]), numbered(1, 1, begin).progress))

    target.commit(portion(frames(entries), numbered(1, 1, begun(target)).progress))

    assert numbers(kafka.messages(f"{name}-ruled")) == [1, 2]
    assert numbers(kafka.messages(f"{name}_")) == [3, 4]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "canal-ha.progress", "statements"])
def test_topics_that_are_not_for_rows_take_none(kafka: Kafka, name: str, topic: str) -> None:
    """Those of Kafka itself, that of the progress and that of the statements: a row there would be misread."""
    target = opened_target(kafka, name, topic=topic, statementTopic="statements")
    begin = begun(target)
    with pytest.raises(SinkRefused, match=f"topic {topic} is not for rows"):
        target.commit(numbered(1, 1, begin))


def test_debeziums_messages_have_keys_tombstones_and_statements_of_their_own(kafka: Kafka, name: str) -> None:
    target = opened_target(kafka, name, format="debezium-json", statementTopic=f"{name}-ddl", partitions=2)
    deleted = rows(3, "DELETE", [({"id": "1", "name": "b"}, None)])
    entries = [insert(1, 1, "a"), ddl(2, "ALTER TABLE t"), deleted]
    progress = numbered(1, 1, begun(target)).progress

    target.commit(portion(frames(entries), progress))

    messages = kafka.messages(name)
    assert [json.loads(message.key() or b"") for message in messages] == [{"id": 1}] * 3
    assert [message.value() is None for message in messages] == [False, False, True]
    (statement,) = kafka.messages(f"{name}-ddl")
    assert json.loads(statement.value() or b"")["ddl"] == "ALTER TABLE t"


def test_readers_with_the_registry_understand_avro(kafka: Kafka, name: str) -> None:
    with Registry() as registry:
        target = opened_target(kafka, name, format="avro", schemaRegistry={"url": registry.url})
        target.commit(numbered(5, 3, begun(target)))
        values = [avro_value(registry, message) for message in kafka.messages(name)]

    assert [value["after"] for value in values] == [{"id": number % KEYS, "name": str(number)} for number in (5, 6, 7)]
    assert [value["source"]["table"] for value in values] == ["t"] * 3


def test_a_check_asks_the_schema_registry(kafka: Kafka, name: str) -> None:
    """It needs no right to list the subjects."""
    with Registry() as registry:
        options = {"format": "avro", "schemaRegistry": {"url": registry.url, "user": "canal", "password": "secret"}}
        target = open_target(description(kafka.address, name=name, timeout=10, **options))
        assert target.check().endswith(f"schema registry at {registry.url}")
        assert registry.authorization == ["Basic Y2FuYWw6c2VjcmV0"]
        registry.answers[""] = 403, "not allowed"
        target.check()
        registry.answers[""] = 401, "Unauthorized"
        with pytest.raises(SinkRefused, match=r"401 .*Unauthorized.*check schemaRegistry"):
            target.check()
        registry.answers[""] = 503, "starting"
        with pytest.raises(TargetUnavailable, match="starting"):
            target.check()
    with pytest.raises(TargetUnavailable, match=r"the schema registry at .* does not answer"):
        target.check()


def avro_value(registry: Registry, message: Message) -> Any:
    """Return the value of a message; its schema comes from the registry."""
    value = message.value() or b""
    with urlopen(f"{registry.url}/schemas/ids/{int.from_bytes(value[1:5], 'big')}") as answer:
        schema = json.loads(json.loads(answer.read())["schema"])
    return schemaless_reader(BytesIO(value[5:]), parse_schema(schema), None)


def test_brokers_that_do_not_answer_can_be_tried_again(name: str) -> None:
    target = open_target(description(f"127.0.0.1:{free_port()}", name=name, timeout=1))

    with pytest.raises(
        TargetUnavailable,
        match=r"^canal: Kafka at 127\.0\.0\.1:\d+ does not tell its topics: no broker can be reached$",
    ):
        target.check()
    with pytest.raises(TargetUnavailable):
        target.progress(DESTINATION)


def test_a_look_at_the_progress_took_a_minute_if_no_broker_answered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check`, `plan` and `status` say it soon; a commit waits as long as `timeout` says."""
    monkeypatch.setattr(kafka_topics, "_ANSWER_S", 0.5)
    target = open_target(description(f"127.0.0.1:{free_port()}", name=name, timeout=60))
    begun = time.monotonic()

    with pytest.raises(TargetUnavailable, match="no broker can be reached"):
        target.stored(DESTINATION)
    with pytest.raises(TargetUnavailable, match="no broker can be reached"):
        target.check()
    assert time.monotonic() - begun < 30
