"""The Kafka broker of the tests: what is committed survives a kill, and the rest is not shown."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from lab.kafka import Kafka

pytestmark = pytest.mark.real


def test_a_committed_message_survives_a_kill_and_an_open_transaction_is_not_shown() -> None:
    with Kafka() as broker:
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "one", "log_level": 0})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("topic", b"committed")
        producer.commit_transaction(20)
        producer.begin_transaction()
        producer.produce("topic", b"open")
        producer.flush(20)
        broker.kill()
        broker.start()

        shown = broker.messages("topic")
        written = broker.messages("topic", isolation_level="read_uncommitted")

        assert [message.value() for message in shown] == [b"committed"]
        assert [message.value() for message in written] == [b"committed", b"open"]
