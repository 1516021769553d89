"""Options of the target for Kafka that are refused without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from canal_ha.errors import OptionInvalid, SinkRefused
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


def test_settings_that_librdkafka_refuses_later_are_not_tried_again() -> None:
    """A file of certificates can go between the check and a commit. No later try would find it."""
    with pytest.raises(KafkaException) as caught:
        Producer({"ssl.ca.location": "/gone", "security.protocol": "ssl"})
    assert isinstance(ours(caught.value, "a test"), SinkRefused)
