"""canal's keys for Kafka: what they mean for a pipeline, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from canal_ha.config.load import load
from canal_ha.config.model import QueueConfig
from canal_ha.errors import ConfigError
from tests.config.test_load import STOCK, write

KAFKA = "canal.serverMode=kafka"


def queue(tmp_path: Path, *sets: str, instance: str = "canal.mq.topic=rows\n") -> QueueConfig:
    """Return the queue of a destination. sets: further settings."""
    conf = write(tmp_path, "canal.destinations=a\nkafka.bootstrap.servers=k:9092\n", a=instance)
    (loaded,) = load(conf, [KAFKA, *sets], {}).destinations
    assert loaded.queue is not None
    return loaded.queue


def producer(tmp_path: Path, *sets: str) -> Mapping[str, Any]:
    """Return the settings of librdkafka."""
    properties: Mapping[str, Any] = queue(tmp_path, *sets).options["properties"]
    return properties


def test_canals_stock_files_work_with_one_changed_line() -> None:
    """The mode is kafka, all else as canal ships it. Clients cannot connect then, as with canal."""
    config = load(STOCK, [KAFKA], {})
    assert config.without_netty
    (instance,) = config.destinations
    assert instance.queue == QueueConfig(
        "canal",
        {
            "servers": "127.0.0.1:9092",
            "format": "canal-json",
            "topic": "example",
            "progressTopic": "canal-ha.progress",
            "partitionHash": "",
            "partition": 0,
            "databaseHash": True,
            "maxMessageBytes": 1048576,
            "properties": {
                "compression.type": "none",
                "batch.size": "16384",
                "linger.ms": "1",
                "queue.buffering.max.kbytes": "32768",
                "max.in.flight.requests.per.connection": "1",
            },
        },
    )
    assert not [text for text in config.warnings if "kafka.acks" in text or "canal.mq." in text]


def test_topics_and_partitions_are_those_of_canal(tmp_path: Path) -> None:
    """canal puts `_` for dots into all topics if there are rules. partitionsNum is 1 if rows are distributed."""
    rules = "canal.mq.topic=all.rows\ncanal.mq.dynamicTopic=shop\\\\..*\ncanal.mq.partitionHash=.*:$pk$\n"
    options = queue(tmp_path, "canal.mq.flatMessage=false", instance=rules).options
    assert (options["topic"], options["dynamicTopic"], options["format"]) == ("all_rows", r"shop\..*", "canal-protobuf")
    assert (options["partitionHash"], options["partitions"]) == (".*:$pk$", 1)
    more = queue(tmp_path, instance=f"{rules}canal.mq.partitionsNum=6\ncanal.mq.dynamicTopicPartitionNum=a:2\n").options
    assert (more["partitions"], more["topicPartitions"]) == (6, "a:2")
    every = queue(tmp_path, instance=f"{rules}canal.mq.enableDynamicQueuePartition=true\n").options
    assert "partitions" not in every


def test_canals_older_names_work(tmp_path: Path) -> None:
    """Those of canal up to 1.1.4; a new name beside an old one counts."""
    old = ["canal.mq.acks=all", "canal.mq.compressionType=lz4", "canal.mq.lingerMs=5", "kafka.linger.ms=7"]
    assert producer(tmp_path, *old, "canal.mq.properties.client.id=me") == {
        "compression.type": "lz4",
        "linger.ms": "7",
        "client.id": "me",
    }
    assert queue(tmp_path, "canal.mq.flat.message=false").options["format"] == "canal-protobuf"
    assert queue(tmp_path, "canal.mq.canal.batch.size=9").fetch_size == 9
    conf = write(tmp_path, "canal.destinations=a\ncanal.mq.servers=old:9092\n", a="canal.mq.topic=rows\n")
    (loaded,) = load(conf, [KAFKA], {}).destinations
    assert loaded.queue is not None
    assert loaded.queue.options["servers"] == "old:9092"


def test_settings_of_the_java_client_are_translated(tmp_path: Path) -> None:
    """Those that librdkafka has under other names; settings that concern Java alone are left out."""
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b";'
    java = ["kafka.key.serializer=x", "kafka.max.block.ms=1", "kafka.retries=0", f"kafka.sasl.jaas.config={jaas}"]
    trust = ["kafka.ssl.truststore.location=/ca.pem", "kafka.ssl.truststore.type=PEM"]
    assert producer(tmp_path, *java, *trust, "kafka.retries=3", "kafka.send.buffer.bytes=9") == {
        "retries": "3",
        "sasl.username": "me",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/ca.pem",
        "socket.send.buffer.bytes": "9",
    }
    assert queue(tmp_path, "kafka.transaction.timeout.ms=5000").options["timeout"] == 5.0


def test_javas_default_delivery_timeout_did_not_let_the_producer_start(tmp_path: Path) -> None:
    """librdkafka refuses a longer time than that of a transaction, and the pipeline waited for ever."""
    java = "kafka.delivery.timeout.ms=120000"
    assert producer(tmp_path, java) == {"delivery.timeout.ms": "60000"}
    assert producer(tmp_path, java, "kafka.transaction.timeout.ms=90000") == {"delivery.timeout.ms": "90000"}
    assert producer(tmp_path, "kafka.delivery.timeout.ms=9000") == {"delivery.timeout.ms": "9000"}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("kafka.acks=1", "kafka.acks.*all: each change comes once"),
        ("kafka.enable.idempotence=false", "transactions need it"),
        ("kafka.transactional.id=x", "canal.mq.pipeline.name"),
        ("kafka.kerberos.enable=true", "SCRAM-SHA-256"),
        ("kafka.max.in.flight.requests.per.connection=6", "from 1 to 5"),
        ("kafka.ssl.truststore.location=/a.jks", "PEM"),
        ("kafka.max.request.size=x", ": kafka.max.request.size = 'x': expected a whole number"),
        ("canal.mq.canal.batch.size=x", ": canal.mq.canal.batch.size = 'x': expected a whole number"),
        ("kafka.sasl.jaas.config=secret", r"\*\*\*.*kafka.sasl.username"),
        ("canal.mq.topic=", "name of a topic"),
        ("kafka.bootstrap.servers=", "host:port"),
        ("canal.mq.pipeline.name=a b", "letters, digits"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, setting: str, expected: str) -> None:
    """The error names the key, what is expected, and what to use instead."""
    conf = write(tmp_path, f"canal.destinations=a\nkafka.bootstrap.servers=k:9\ncanal.mq.topic=t\n{KAFKA}\n", a="")
    if setting.endswith("="):
        main = conf / "canal.properties"
        main.write_text(
            main.read_text().replace({"c": "canal.mq.topic=t\n"}.get(setting[0], "kafka.bootstrap.servers=k:9\n"), "")
        )
    with pytest.raises(ConfigError, match=expected):
        load(conf, [setting], {})


OF_THE_NODE = {
    "kafka.linger.ms": "77",
    "canal.mq.servers": "evil:9092",
    "canal.mq.lingerMs": "77",
    "canal.mq.properties.client.id": "me",
    "canal.mq.flatMessage": "false",
    "canal.mq.flat.message": "false",
    "canal.mq.canalBatchSize": "7",
    "canal.mq.canal.batch.size": "7",
    "canal.mq.database.hash": "false",
    "canal.mq.pipeline.name": "other",
}


@pytest.mark.parametrize("key", OF_THE_NODE)
def test_a_key_of_the_node_in_an_instance_file_has_no_effect_and_is_told(tmp_path: Path, key: str) -> None:
    """canal reads these from canal.properties alone, too. Some were used, and others were left out in silence."""
    conf = write(tmp_path, "canal.destinations=a\n", a=f"{key}={OF_THE_NODE[key]}\n")
    (warning,) = load(conf, [], {}).warnings
    assert f"{key} is read from canal.properties only" in warning
    topic = "canal.mq.topic=rows\n"
    assert queue(tmp_path, instance=f"{topic}{key}={OF_THE_NODE[key]}\n") == queue(tmp_path, instance=topic)


def test_an_instance_file_does_not_choose_who_gets_the_password_of_the_producer(tmp_path: Path) -> None:
    """It can come over HTTP. It had the last word on the servers and on how the node logs in there."""
    topic = "canal.mq.topic=rows\n"
    sent = f"{topic}kafka.bootstrap.servers=evil:9092\nkafka.linger.ms=77\n"
    assert queue(tmp_path, instance=sent).options == queue(tmp_path, instance=topic).options


def test_brokers_that_only_an_instance_file_names_are_missing(tmp_path: Path) -> None:
    """The error named the valid value of the instance file, and not where it belongs."""
    conf = write(tmp_path, "canal.destinations=a\n", a="canal.mq.topic=t\nkafka.bootstrap.servers=k:9092\n")
    with pytest.raises(ConfigError) as caught:
        load(conf, [KAFKA], {})
    assert "set it in canal.properties: an instance file is not read for it" in str(caught.value)
    assert "k:9092" not in str(caught.value)
    assert "instance.properties" not in str(caught.value)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries of pipelines are an extra."""
    monkeypatch.setattr("canal_ha.config.queue.LIBRARIES", ("no_such_library",))
    with pytest.raises(ConfigError, match="no_such_library is missing: install canal-ha with the extra"):
        queue(tmp_path)


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    """Instance files are read in both modes."""
    conf = write(tmp_path, "canal.destinations=a\n", a="canal.mq.dynamicTopik=x\n")
    assert "did you mean canal.mq.dynamicTopic" in load(conf, [], {}).warnings[0]
