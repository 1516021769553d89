"""Writes changes to Kafka, in transactions.

A portion is one transaction: its messages, and its progress in a compacted topic. Readers with isolation.level
read_committed see both or neither. A destination has a transactional id of its own. Opening it again makes Kafka end
the transaction that a dead process left, and refuse an older process that still runs. Only then is the progress read.

If anything fails, the producer is given up: the next try opens the id again, and reads what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from canal_ha.config.pem_files import check_regular
from canal_ha.errors import CanalError, OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.messages.avro import Avro
from canal_ha.pipeline.messages.canal_json import CanalJson
from canal_ha.pipeline.messages.canal_protobuf import CanalProtobuf
from canal_ha.pipeline.messages.debezium_json import DebeziumJson
from canal_ha.pipeline.messages.queue_message import MessageFormat, MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import (
    EVERY_KEY,
    CountRules,
    PartitionRules,
    Placement,
    TopicRules,
    topic_name,
)
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.row_entry import RowEntry
from canal_ha.pipeline.targets.kafka_errors import is_fenced, ours, wrong_properties
from canal_ha.pipeline.targets.kafka_topics import PARTITION, KafkaTopics, ProgressTopic
from canal_ha.pipeline.targets.schema_registry import SchemaRegistry
from canal_ha.steady_time import seconds

PREFIX = "canal-ha/"  # of transactional ids and groups
_ABORT_S = 5.0
_ROOM_S = 0.1  # between looks for room in the producer's queue
_REPORT_S = 5.0  # for the report that has made a transaction fail
_CRITICAL = 2  # of syslog: librdkafka writes a line for each try to connect otherwise
_OWN_PROPERTIES = {
    "bootstrap.servers": "name the brokers in `servers`",
    "metadata.broker.list": "name the brokers in `servers`",
    "transactional.id": f"it is {PREFIX}PIPELINE/DESTINATION, so that a pipeline finds its progress",
    "transaction.timeout.ms": "give the time in `timeout`",
}
"""Settings that the target makes itself, and why."""


def open_target(description: Description) -> KafkaTarget:
    """Return the target of a pipeline. Raises OptionInvalid."""
    return KafkaTarget(description)


class KafkaTarget:
    """The topics of one pipeline."""

    def __init__(self, description: Description) -> None:
        """Check the options; nothing is asked of Kafka yet. Raises OptionInvalid."""
        target = description.target
        if target.mode != "events":
            raise OptionInvalid(f"{description.file}: target.mode = {target.mode!r}: Kafka takes `events`")
        options: dict[str, Any] = dict(target.options)
        self._name = description.name
        self._servers: str = options["servers"]
        self._timeout_s = float(options.get("timeout", 60))
        size = int(options.get("maxMessageBytes", 1_000_000))
        for name in _OWN_PROPERTIES.keys() & options.get("properties", {}).keys():
            raise OptionInvalid(f"target.properties: {name} cannot be set: {_OWN_PROPERTIES[name]}")
        settings = {"log_level": _CRITICAL, **options.get("properties", {}), "bootstrap.servers": self._servers}
        self._producer_settings = {
            "linger.ms": 5,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": size,
            "batch.size": size,
            **settings,
            "transaction.timeout.ms": int(self._timeout_s * 1000),
        }
        _try_settings(self._producer_settings)
        self._topics = KafkaTopics(
            settings,
            create=options.get("create", True),
            replication=options.get("replication"),
            timeout_s=self._timeout_s,
        )
        progress = options.get("progressTopic", "canal-ha.progress")
        self._progress = ProgressTopic(self._topics, progress, settings, self._timeout_s)
        self._registry = SchemaRegistry(**options["schemaRegistry"]) if "schemaRegistry" in options else None
        self._format = _format(description, self._registry)
        self._statements: str = options.get("statementTopic", "")
        self._limit = description.target.called("maxMessageBytes")
        self._routes = _Routes(description.target, self._topics, {progress, self._statements})
        self._sessions: dict[str, _Session] = {}

    @property
    def exact(self) -> bool:
        """Whether it wants values in the exact form (docs/protocol.md#exact); canal's own formats have canal's."""
        return self._format.exact

    def check(self) -> str:
        """See PipelineTarget."""
        brokers = self._topics.brokers()
        self._progress.prepare()
        says = f"Kafka at {self._servers}, {brokers} {'broker' if brokers == 1 else 'brokers'}"
        if self._registry is None:
            return says
        self._registry.check()
        return f"{says}; schema registry at {self._registry.shown}"

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget. It waits until the transactions that are open now end."""
        return self._progress.read(self._key(destination)) if self._topics.has(self._progress.name) else None

    def progress(self, destination: str) -> Progress | None:
        """See PipelineTarget. From now on, every other process with this pipeline is refused."""
        self._give_up(destination)
        return self._session(destination).stored

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget."""
        session = self._session(portion.destination)
        try:
            session.commit(portion, lambda: self._messages(portion))
        except CanalError:
            self._give_up(portion.destination)
            raise

    def close(self) -> None:
        """See PipelineTarget."""
        for destination in list(self._sessions):
            self._give_up(destination)

    def _session(self, destination: str) -> _Session:
        session = self._sessions.get(destination)
        if session is None:
            self._topics.forget()
            self._progress.prepare()
            key = self._key(destination)
            session = _Session(key, self._producer_settings, self._progress, self._timeout_s, self._limit)
            self._sessions[destination] = session
        return session

    def _key(self, destination: str) -> str:
        """Return the transactional id of a destination, which is also its key in the topic of the progress."""
        return f"{PREFIX}{self._name}/{destination}"

    def _give_up(self, destination: str) -> None:
        session = self._sessions.pop(destination, None)
        if session is not None:
            session.close()

    def _messages(self, portion: Portion) -> Iterator[_Addressed]:
        origin = MessageOrigin(portion.destination, portion.progress.seq, time.time_ns() // 1_000_000)
        if self._format.statements_apart:
            portion.reader.check_statements(portion.frames)
        for entry in portion.row_entries():
            if self._format.statements_apart and not entry.rows:
                if not self._statements or not entry.is_ddl:
                    continue
                self._topics.partitions(self._statements, 1)
                topic, placement = self._statements, Placement(None, 1)
            else:
                topic, placement = self._routes.of(entry.schema, entry.table)
            for record in self._format.records(entry, topic, placement, origin):
                yield _Addressed(topic, record, entry)


def _try_settings(settings: dict[str, Any]) -> None:
    """Make a producer once, which asks nothing of Kafka. Raises OptionInvalid for settings without transactions."""
    for name, value in settings.items():
        if name.endswith(".location") and isinstance(value, str):
            try:
                check_regular(value)
            except OSError as error:
                raise OptionInvalid(f"target.properties: {name} = {value!r}: {error.strerror}") from error
    try:
        Producer({**settings, "transactional.id": PREFIX})
    except KafkaException as error:
        raise wrong_properties(error) from None


def _format(description: Description, registry: SchemaRegistry | None) -> MessageFormat:
    options = description.target.options
    zone = description.source.get("timeZone", "UTC")
    tombstones = options.get("tombstones", True)
    match options.get("format", "canal-json"):
        case "debezium-json":
            return DebeziumJson(description.keys, zone, tombstones=tombstones)
        case "avro":
            if registry is None:
                raise OptionInvalid(f"{description.file}: target.schemaRegistry is missing: the format avro needs one")
            if "statementTopic" in options:
                raise OptionInvalid(f"{description.file}: target.statementTopic: the format avro has no statements")
            return Avro(description.keys, zone, registry.register, tombstones=tombstones)
        case "canal-protobuf":
            return CanalProtobuf()
    return CanalJson()


class _Addressed(NamedTuple):
    """A message with its topic and its entry."""

    topic: str
    record: QueueMessage
    entry: RowEntry

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.record.key or b"") + len(self.record.value or b"")

    def too_large(self, key: str, limit: str) -> SinkRefused:
        """Return the error for a message that Kafka refuses. It names no values.

        key: transactional id.
        limit: the name of the option for it.
        """
        columns = self.entry.image.key_names
        keyed = f"key {', '.join(columns)}" if columns else "without a key"
        return SinkRefused(
            f"canal: {key}: a message of {self.entry.schema}.{self.entry.table} ({keyed}) has {self.size}"
            f" bytes, too many for topic {self.topic}: raise {limit} and the topic's max.message.bytes"
        )


class _Routes:
    """Topic and placement of each table, by the options of the target."""

    def __init__(self, target: TargetDescription, topics: KafkaTopics, own: Set[str]) -> None:
        """Take the rules. own: topics of the pipeline itself, which take no rows."""
        options = target.options
        self._called = target.called("dynamicTopic")
        self._topics = topics
        self._own = own
        self._claims: dict[str, tuple[str, ...]] = {}  # topic -> what gave it its name
        self._template: str = options.get("topic", "{schema}.{table}")
        rules = options.get("dynamicTopic", "")
        hashes = options.get("partitionHash", EVERY_KEY)
        with _named(self._called):
            self._rules = TopicRules(rules, "") if rules else None
        with _named(target.called("partitionHash")):
            self._keys = PartitionRules(hashes) if hashes else None
        self._fixed = 0 if hashes else int(options.get("partition", 0))
        self._count: int | None = options.get("partitions")
        with _named(target.called("topicPartitions")):
            self._counts = CountRules(options.get("topicPartitions", ""))
        self._database_hash: bool = options.get("databaseHash", True)

    def of(self, schema: str, table: str) -> tuple[str, Placement]:
        """Return a table's topic, created if it is missing, and the placement of its rows. Raises SinkRefused."""
        topic = self._topic(schema, table)
        wanted = self._counts.count_of(topic) or self._count
        found = self._topics.partitions(topic, wanted)
        key = self._keys.key_of(schema, table) if self._keys is not None else None
        return topic, Placement(key, wanted or found, self._database_hash, self._fixed)

    def _topic(self, schema: str, table: str) -> str:
        """Return a table's topic. Tables share one only if the options name it for both."""
        ruled = self._rules.topic_of(schema, table) if self._rules is not None else ""
        if ruled:
            claim: tuple[str, ...] = (ruled,)
            topic = topic_name(ruled.replace(".", "_"))
        else:
            named = {name: text for name, text in (("{schema}", schema), ("{table}", table)) if name in self._template}
            claim = (self._template, *named.values())
            topic = topic_name(self._template.replace("{schema}", schema).replace("{table}", table).rstrip("."))
        where = f"canal: table {printable(excerpt(f'{schema}.{table}'))}: topic {topic}"
        if topic in self._own or topic.startswith("__"):
            raise SinkRefused(f"{where} is not for rows: name another one with `{self._called}`")
        if self._claims.setdefault(topic, claim) != claim:
            raise SinkRefused(
                f"{where} has the rows of another table already, whose name gives the same topic: name topics for them"
                f" with `{self._called}`"
            )
        return topic


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Begin the errors of an option's rules with its name."""
    try:
        yield
    except OptionInvalid as error:
        raise OptionInvalid(f"{option}: {error}") from error


class _Session:
    """A transactional producer and what it has committed. One thread."""

    def __init__(
        self, key: str, settings: dict[str, Any], progress: ProgressTopic, timeout_s: float, limit: str
    ) -> None:
        """Open the transactional id, and read the progress.

        key: transactional id.
        settings: of the producer.
        progress: the topic.
        timeout_s: of each step.
        limit: name of the option for larger messages.
        Raises SinkRefused and TargetUnavailable.
        """
        self._key = key
        self._limit = limit
        self._topic = progress.name
        self._timeout_s = timeout_s
        self._open = False  # whether a transaction is
        self._begun_at = 0.0  # of the transaction
        self._failed: list[tuple[KafkaError, str]] = []
        self._what = f"{key} cannot write to Kafka"
        try:
            self._producer = Producer({**settings, "transactional.id": key, "on_delivery": self._delivered})
            self._producer.init_transactions(timeout_s)
        except KafkaException as error:
            raise ours(error, self._what) from error
        self.stored = progress.read(key)

    def commit(self, portion: Portion, messages: Callable[[], Iterator[_Addressed]]) -> None:
        """Commit a portion, unless it is committed already. The session cannot be used again after an error."""
        progress = portion.progress
        if not lacks(self.stored, portion, f"kafka: topic {self._topic}"):
            return
        producer = self._producer
        try:
            self._begun_at = seconds()
            producer.begin_transaction()
            self._open = True
            for message in messages():
                self._send(message)
            self._put(self._topic, progress.to_json().encode(), self._key.encode(), PARTITION)
            producer.commit_transaction(self._timeout_s)
        except KafkaException as error:
            raise self._reason(error, messages) from error
        self._open = False
        self.stored = progress

    def close(self) -> None:
        """End an open transaction if Kafka answers, so that readers do not wait for its timeout."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        if self._open:
            with suppress(KafkaException):
                self._producer.abort_transaction(min(self._timeout_s, _ABORT_S))
        del self._producer

    def _send(self, message: _Addressed) -> None:
        record = message.record
        try:
            self._put(message.topic, record.value, record.key, record.partition)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            raise message.too_large(self._key, self._limit) from None

    def _put(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        producer = self._producer
        while True:
            try:
                producer.produce(topic, value, key, partition)
                return
            except BufferError:
                producer.poll(_ROOM_S)
                if self._failed:
                    raise KafkaException(self._failed[0][0]) from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append((error, message.topic() or ""))

    def _reason(self, error: KafkaException, messages: Callable[[], Iterator[_Addressed]]) -> CanalError:
        """Return the error to raise: that of a message, or else that of the transaction."""
        found = error
        if error.args[0].code() == KafkaError._STATE:  # a message has failed; the report may not be here yet
            until = time.monotonic() + _REPORT_S
            while not self._failed and time.monotonic() < until:
                self._producer.poll(_ROOM_S)
            found = KafkaException(self._failed[0][0]) if self._failed else error
        for failed, topic in self._failed:
            if failed.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                of_topic = (message for message in messages() if message.topic == topic)
                return max(of_topic, key=lambda message: message.size).too_large(self._key, self._limit)
        if is_fenced(found) and seconds() - self._begun_at >= self._timeout_s:
            return TargetUnavailable(
                f"canal: {self._what}: a transaction was open for more than {self._timeout_s:g} s, so Kafka has ended"
                " it"
            )
        return ours(found, self._what)
