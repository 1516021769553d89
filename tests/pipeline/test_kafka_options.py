"""Options of the target for Kafka that are refused without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.description import read
from canal_ha.pipeline.targets.kafka import open_target
from canal_ha.pipeline.targets.kafka_errors import ours
from tests.pipeline.kafka_writer import description


@pytest.mark.parametrize("properties", [{"security.protocl": "SASL_SSL"}, {"linger.ms": "soon"}])
def test_properties_that_librdkafka_does_not_know_are_refused(properties: dict[str, str]) -> None:
    """The error names the key of the file; it was a traceback."""
    with pytest.raises(OptionInvalid, match=r"target\.properties"):
        open_target(description("127.0.0.1:1", properties=properties))


@pytest.mark.parametrize(
    "properties",
    [
        {"message.timeout.ms": 120000},
        {"acks": "1"},
        {"enable.idempotence": False},
        {"max.in.flight.requests.per.connection": 6},
        {"socket.timeout.ms": 90000},
    ],
)
def test_properties_that_forbid_transactions_made_a_pipeline_wait_for_ever(properties: dict[str, object]) -> None:
    """They pass for a client without transactions, so only the first commit met them, as if Kafka did not answer."""
    with pytest.raises(OptionInvalid, match=r"target\.properties: librdkafka refuses them: .*must be set|requires"):
        open_target(description("127.0.0.1:1", properties=properties))
    assert open_target(description("127.0.0.1:1", properties={"message.timeout.ms": 120000}, timeout=120))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("transactional.id", "it is canal-ha/PIPELINE/DESTINATION"),
        ("transaction.timeout.ms", "give the time in `timeout`"),
        ("bootstrap.servers", "name the brokers in `servers`"),
        ("metadata.broker.list", "name the brokers in `servers`"),
    ],
)
def test_a_property_that_the_target_sets_itself_had_no_effect(name: str, says: str) -> None:
    """An account that may only write another transactional id failed, although the file had that id."""
    with pytest.raises(OptionInvalid, match=rf"^target\.properties: {name} cannot be set: {says}"):
        open_target(description("127.0.0.1:1", properties={name: "5"}))


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("dynamicTopic", "([", r"^dynamicTopic: '\(\[' is not a regular expression: unterminated"),
        ("partitionHash", "([", r"^partitionHash: '\(\[' is not a regular expression: unterminated"),
        ("topicPartitions", "orders", "^topicPartitions: 'orders': expected topic:number"),
    ],
)
def test_an_error_in_a_rule_did_not_name_its_option(option: str, text: str, says: str) -> None:
    with pytest.raises(OptionInvalid, match=says):
        open_target(description("127.0.0.1:1", **{option: text}))


@pytest.mark.parametrize("topic", ["{schema}.{tabel}", "{db}", "shop.{"])
def test_a_misspelt_placeholder_put_all_tables_into_one_topic(topic: str) -> None:
    """Its braces became `_`, as other characters that Kafka does not allow."""
    file = (
        "name: shop\nsource: {servers: 'a:1', destination: d}\n"
        f"target: {{type: kafka, servers: 'k:1', topic: '{topic}'}}\n"
    )
    with pytest.raises(OptionInvalid, match=r"^shop.yaml:3: target.topic: expected a topic, with no other braces than"):
        read(file.encode(), "shop.yaml")
    good = file.replace(topic, "x.{table}_{schema}")
    assert read(good.encode(), "shop.yaml").target.options["topic"] == "x.{table}_{schema}"


def test_settings_that_librdkafka_refuses_later_are_not_tried_again() -> None:
    """A file of certificates can go between the check and a commit. No later try would find it."""
    with pytest.raises(KafkaException) as caught:
        Producer({"ssl.ca.location": "/gone", "security.protocol": "ssl"})
    assert isinstance(ours(caught.value, "a test"), SinkRefused)
