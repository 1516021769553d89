"""The topics of a pipeline: their partitions, their creation, and the compacted topic with the progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from math import inf
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import printable
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.targets.kafka_errors import ours, wrong_properties
from canal_ha.steady_time import seconds

PARTITION = 0  # of the progress topic
_BROKERS_DEFAULT = -1
_LOOK_S = 0.1
_ANSWER_S = 10.0  # at most, for a person who waits
_WINDOW = 500  # messages of the progress topic that are read at first, from its end


class KafkaTopics:
    """The topics of one pipeline; any thread may call it."""

    def __init__(self, settings: Mapping[str, Any], *, create: bool, replication: int | None, timeout_s: float) -> None:
        """Connect on first use.

        settings: of librdkafka.
        create: create topics that are missing.
        replication: replicas of a new topic; None: as the brokers say.
        timeout_s: of a request.
        Raises OptionInvalid for settings that librdkafka refuses.
        """
        self._settings = dict(settings)
        self._create = create
        self._replication = replication or _BROKERS_DEFAULT
        self._timeout_s = timeout_s
        self._known: dict[str, int] = {}
        self._turn = threading.Lock()
        try:
            self._admin = AdminClient(self._settings)
        except KafkaException as error:
            raise wrong_properties(error) from None

    def brokers(self) -> int:
        """Return the number of brokers. Raises SinkRefused and TargetUnavailable."""
        with self._turn:
            return self._look(_ANSWER_S)

    def has(self, topic: str) -> bool:
        """Return whether a topic exists now. Raises SinkRefused and TargetUnavailable."""
        with self._turn:
            self._look(_ANSWER_S)
            return topic in self._known

    def partitions(self, topic: str, wanted: int | None, config: Mapping[str, str] | None = None) -> int:
        """Return how many partitions a topic has; create it if it is missing.

        topic: its name.
        wanted: partitions of a new topic, and at least of an existing one; None: any.
        config: of a new topic.
        Raises SinkRefused and TargetUnavailable.
        """
        with self._turn:
            if topic not in self._known:
                self._look()
            if topic not in self._known:
                self._make(topic, wanted, config or {})
                self._await(topic)
            found = self._known.get(topic)
        if found is None:
            raise TargetUnavailable(f"canal: Kafka shows no topic {topic} yet")
        if wanted is not None and found < wanted:
            raise SinkRefused(f"canal: topic {topic} has {found} partitions: add some, or set partitions to {found}")
        return found

    def forget(self) -> None:
        """Ask for all topics again."""
        with self._turn:
            self._known = {}

    def _look(self, most_s: float = inf) -> int:
        """Ask for all topics; return the number of brokers. most_s: time for the answer, s."""
        try:
            cluster = self._admin.list_topics(timeout=min(self._timeout_s, most_s))
        except KafkaException as error:
            where = printable(str(self._settings.get("bootstrap.servers", "")))
            raise ours(error, f"Kafka at {where} does not tell its topics") from error
        self._known = {name: len(topic.partitions) for name, topic in cluster.topics.items() if topic.partitions}
        return len(cluster.brokers)

    def _await(self, topic: str) -> None:
        """Wait until all brokers know a new topic, at most for a request's time."""
        deadline = seconds() + self._timeout_s
        self._look()
        while topic not in self._known and seconds() < deadline:
            time.sleep(_LOOK_S)
            self._look()

    def _make(self, topic: str, wanted: int | None, config: Mapping[str, str]) -> None:
        if not self._create:
            raise SinkRefused(f"canal: there is no topic {topic}: create it, or set create: true")
        new = NewTopic(topic, wanted or _BROKERS_DEFAULT, self._replication, config=dict(config))
        try:
            self._admin.create_topics([new], request_timeout=self._timeout_s)[topic].result(self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ours(error, f"topic {topic} cannot be created") from error
        except TimeoutError as error:
            raise TargetUnavailable(f"canal: topic {topic} was not created within {self._timeout_s:g} s") from error


class ProgressTopic:
    """The compacted topic that pipelines keep their progress in, one key for each pipeline and destination."""

    def __init__(self, topics: KafkaTopics, name: str, settings: Mapping[str, Any], timeout_s: float) -> None:
        """Connect on first use.

        topics: creates it.
        name: its name.
        settings: of librdkafka.
        timeout_s: longest wait for the transactions of other pipelines.
        """
        self.name = name
        self._topics = topics
        self._settings = dict(settings)
        self._timeout_s = timeout_s

    def prepare(self) -> None:
        """Create the topic if it is missing. Raises SinkRefused and TargetUnavailable."""
        self._topics.partitions(self.name, 1, {"cleanup.policy": "compact"})

    def read(self, key: str) -> Progress | None:
        """Return the progress of the last committed transaction with this key.

        The transactions that are open now in the same partition must end first, because messages behind them are not
        shown. Raises SinkRefused and TargetUnavailable.
        """
        settings = {
            **self._settings,
            "group.id": key,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        try:
            return self._read(consumer, key)
        except KafkaException as error:
            raise ours(error, f"topic {self.name} cannot be read") from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, key: str) -> Progress | None:
        first, end = self._bounds()
        window, stop = _WINDOW, end
        while stop > first:
            start = max(first, stop - window)
            found = self._last(consumer, TopicPartition(self.name, PARTITION, start), stop, key.encode())
            if found is not None:
                try:
                    return Progress.from_json(found.decode())
                except ValueError as error:
                    raise SinkRefused(f"canal: topic {self.name}, key {key}: {error}") from error
            stop, window = start, 2 * window
        return None

    def _bounds(self) -> tuple[int, int]:
        """Return the first offset, and the one behind the last message, committed or not."""
        written = Consumer({**self._settings, "group.id": "canal-ha/bounds", "isolation.level": "read_uncommitted"})
        try:
            bounds = written.get_watermark_offsets(TopicPartition(self.name, PARTITION), timeout=self._timeout_s)
        finally:
            written.close()
        if bounds is None:
            raise TargetUnavailable(f"canal: topic {self.name} does not tell its end")
        return bounds

    def _last(self, consumer: Consumer, start: TopicPartition, stop: int, key: bytes) -> bytes | None:
        """Return the last value of a key from `start` on, up to an offset."""
        found = None
        consumer.assign([start])
        deadline = seconds() + self._timeout_s
        while seconds() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            at = message.offset()
            assert at is not None
            if error is None and at < stop and message.key() == key:
                found = message.value()
            if at >= stop or (error is None and at == stop - 1):
                return found
        raise TargetUnavailable(f"canal: a transaction of another pipeline is open in topic {self.name}")
