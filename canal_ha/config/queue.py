"""Reads canal's keys for Kafka, canal.mq.* and kafka.*, as the options of a pipeline into Kafka.

canal hands the keys kafka.* to Kafka's Java client. Here librdkafka takes them: most have the same names there. Some
are translated, some have no meaning, and some are refused, because changes would be lost or doubled otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from canal_ha.config import keys
from canal_ha.config.keys import Key
from canal_ha.config.model import QueueConfig
from canal_ha.config.properties import Setting
from canal_ha.errors import ConfigError

T = TypeVar("T")
LIBRARIES = ("confluent_kafka", "pyarrow", "yaml", "jsonschema")
PREFIX = "kafka."
OLD_PREFIX = "canal.mq.properties."
OLD_NAMES: Mapping[str, str] = {
    "canal.mq.servers": "kafka.bootstrap.servers",
    "canal.mq.acks": "kafka.acks",
    "canal.mq.compressionType": "kafka.compression.type",
    "canal.mq.retries": "kafka.retries",
    "canal.mq.batchSize": "kafka.batch.size",
    "canal.mq.lingerMs": "kafka.linger.ms",
    "canal.mq.maxRequestSize": "kafka.max.request.size",
    "canal.mq.bufferMemory": "kafka.buffer.memory",
    "canal.mq.kafka.kerberos.enable": "kafka.kerberos.enable",
}
"""Names that canal had up to 1.1.4, and still reads."""
OTHER_NAMES: Mapping[str, str] = {
    "canal.mq.flatMessage": "canal.mq.flat.message",
    "canal.mq.canalBatchSize": "canal.mq.canal.batch.size",
}
WITHOUT_EFFECT = re.compile(
    r"canal\.mq\.(canalGetTimeout|canal\.fetch\.timeout|accessChannel|access\.channel|send\.thread\.size|build\.thread\.size"
    r"|parallel\w*|parallel\..*|transaction|filterTransactionEntry|producerGroup|namespace|kafka\.kerberos\..*)"
)
"""Keys of canal that need nothing here: how it reads its own ring, its threads, and parts of other queues."""

_JAVA_ALONE = re.compile(
    r"(key|value)\.serializer|max\.block\.ms|partitioner\..*|interceptor\.classes|metric.*|auto\.include\.jmx\.reporter"
    r"|kerberos\.(krb5|jaas)\.file|send\.thread.*"
)
_TRANSACTION_MS = 60_000
_RENAMED = {"send.buffer.bytes": "socket.send.buffer.bytes", "receive.buffer.bytes": "socket.receive.buffer.bytes"}
_LOGIN = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")


class Values(Protocol):
    """Typed values of keys; see canal_ha.config.load."""

    def get(self, key: Key[T], /) -> T: ...

    def has(self, key: Key[object], /) -> bool: ...

    def refusal(self, key: Key[object], expected: str, /) -> ConfigError: ...


Find = Callable[[str], Setting | None]


def named(settings: Iterable[str]) -> Iterator[str]:
    """Yield the names of Kafka's producer that these keys set, without a prefix."""
    for key in settings:
        for prefix in (PREFIX, OLD_PREFIX):
            if key.startswith(prefix):
                yield key.removeprefix(prefix)


def for_java_alone(key: str) -> bool:
    """Return whether a key is a setting of Kafka's Java client that has no meaning here."""
    return any(_JAVA_ALONE.fullmatch(name) for name in named([key]))


def of_node(key: str) -> bool:
    """Return whether a key is a setting of Kafka's producer, or an other name of a key of the node."""
    return key in OLD_NAMES or key in OTHER_NAMES.values() or any(named([key]))


def queue_of(values: Values, node: Values, find: Find, names: Iterable[str]) -> QueueConfig:
    """Return where the changes of a destination go.

    values: typed values of the destination.
    node: typed values without its instance file.
    find: returns the setting of a key of the node; None if it has none.
    names: of Kafka's producer, without a prefix, that are set.
    Raises ConfigError for what cannot work.
    """
    if missing := next((each for each in LIBRARIES if find_spec(each) is None), ""):
        raise node.refusal(
            keys.SERVER_MODE,
            f"tcp, because the library {missing} is missing: install canal-ha with the extra `pipeline`",
        )
    given = {name: setting for name in names if (setting := _setting(find, name)) is not None}
    servers = given.pop("bootstrap.servers", None)
    if servers is None:
        raise node.refusal(
            keys.KAFKA_SERVERS,
            "host:port,... of Kafka, because of canal.serverMode = kafka; set it in canal.properties: an instance file"
            " is not read for it",
        )
    topic, rules = values.get(keys.MQ_TOPIC), values.get(keys.MQ_DYNAMIC_TOPIC)
    if not topic:
        raise values.refusal(keys.MQ_TOPIC, "the name of a topic, because of canal.serverMode = kafka")
    options = {
        "servers": servers.text,
        "format": "canal-json" if _switch(node, find, keys.MQ_FLAT) else "canal-protobuf",
        "topic": topic.replace(".", "_") if rules else topic,
        "progressTopic": node.get(keys.MQ_PROGRESS),
        **_partitions(values, node),
        **({"dynamicTopic": rules} if rules else {}),
        **_of_producer(given),
    }
    return QueueConfig(
        pipeline=node.get(keys.MQ_NAME),
        options=options,
        fetch_size=_batch_size(node, find),
        fail_on_data_loss=node.get(keys.MQ_DATA_LOSS),
    )


def _partitions(values: Values, node: Values) -> dict[str, Any]:
    """Return the options about partitions. canal's partitionsNum is 1 by default, and has no effect without a hash."""
    hashed, counts = values.get(keys.MQ_PARTITION_HASH), values.get(keys.MQ_TOPIC_PARTITIONS)
    wanted, dynamic = values.get(keys.MQ_PARTITIONS), values.get(keys.MQ_ALL_PARTITIONS)
    fixed = not dynamic and (bool(hashed) or values.has(keys.MQ_PARTITIONS))
    return {
        "partitionHash": hashed,
        "partition": values.get(keys.MQ_PARTITION),
        "databaseHash": node.get(keys.MQ_DATABASE_HASH),
        **({"partitions": wanted} if fixed else {}),
        **({"topicPartitions": counts} if counts else {}),
    }


def _of_producer(given: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the options that follow from settings of Kafka's producer. Raises ConfigError."""
    options: dict[str, Any] = {"maxMessageBytes": 1_048_576}
    properties: dict[str, str] = {}
    for name, setting in given.items():
        text = setting.text
        if _JAVA_ALONE.fullmatch(name):
            continue
        _check(name, setting)
        match name:
            case "max.request.size":
                options["maxMessageBytes"] = _whole(PREFIX + name, setting, 1000, 1_000_000_000)
            case "transaction.timeout.ms":
                options["timeout"] = _transaction_ms(given) / 1000
            case "delivery.timeout.ms":
                delivery_ms = _whole(PREFIX + name, setting, 1, keys.INT32)
                properties[name] = str(min(delivery_ms, _transaction_ms(given)))
            case "buffer.memory":
                properties["queue.buffering.max.kbytes"] = str(_whole(PREFIX + name, setting, 1024, 1 << 40) // 1024)
            case "retries" if text == "0":
                pass  # ignored: transactions need retries, and these double nothing
            case "sasl.jaas.config":
                properties |= _login(setting)
            case "ssl.truststore.location":
                properties["ssl.ca.location"] = text
            case "ssl.truststore.type" | "kerberos.enable" | "acks" | "enable.idempotence":
                pass  # checked
            case _:
                properties[_RENAMED.get(name, name)] = text
    _check_trust(given)
    return {**options, "properties": properties}


def _transaction_ms(given: Mapping[str, Setting]) -> int:
    """Return the longest time of a transaction. librdkafka delivers no message for longer, and Java's client does."""
    name = "transaction.timeout.ms"
    return _whole(PREFIX + name, given[name], 1000, 900_000) if name in given else _TRANSACTION_MS


def _check(name: str, setting: Setting) -> None:
    """Raise ConfigError for a value of Kafka's producer that cannot work."""
    text = setting.text.lower()
    match name:
        case "acks" if text not in ("all", "-1"):
            expected = "all: each change comes once, in a transaction of Kafka, and that needs all"
        case "enable.idempotence" if text != "true":
            expected = "true: transactions need it"
        case "transactional.id":
            expected = "no value: a destination has an id of its own; canal.mq.pipeline.name is its first part"
        case "kerberos.enable" if text == "true":
            expected = (
                "false: there is no Kerberos; set kafka.security.protocol, kafka.sasl.mechanism (PLAIN, SCRAM-SHA-256"
                " or SCRAM-SHA-512), kafka.sasl.username and kafka.sasl.password"
            )
        case "max.in.flight.requests.per.connection" if not (text.isdecimal() and 1 <= int(text) <= 5):
            expected = "a whole number from 1 to 5: transactions need it"
        case _:
            return
    raise setting.refusal(PREFIX + name, expected)


def _check_trust(given: Mapping[str, Setting]) -> None:
    location = given.get("ssl.truststore.location")
    kind = given.get("ssl.truststore.type")
    if location is not None and (kind is None or kind.text.upper() != "PEM"):
        raise location.refusal(
            "kafka.ssl.truststore.location",
            "a PEM file, with kafka.ssl.truststore.type = PEM; `keytool -exportcert -rfc` writes one from a JKS file",
        )


def _login(setting: Setting) -> dict[str, str]:
    """Return name and password of a JAAS line for PLAIN or SCRAM."""
    found = {name: next(filter(None, texts), "") for name, *texts in _LOGIN.findall(setting.text)}
    if not {"username", "password"} <= found.keys():
        raise setting.refusal(
            "kafka.sasl.jaas.config",
            "a login module with username and password; else set kafka.sasl.username and kafka.sasl.password",
            secret=True,
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", text) for name, text in found.items()}


def _setting(find: Find, name: str) -> Setting | None:
    """Return the setting of a name of Kafka's producer: of today's key, or else of canal's older ones."""
    older = next((old for old, key in OLD_NAMES.items() if key == PREFIX + name), "")
    for key in (PREFIX + name, OLD_PREFIX + name, older):
        found = find(key) if key else None
        if found is not None and found.text:
            return found
    return None


def _whole(key: str, setting: Setting, low: int, high: int) -> int:
    if not setting.text.isdecimal() or not low <= int(setting.text) <= high:
        raise setting.refusal(key, f"a whole number from {low} to {high}")
    return int(setting.text)


def _switch(node: Values, find: Find, key: Key[bool]) -> bool:
    other = find(OTHER_NAMES[key.name])
    return node.get(key) if other is None or node.has(key) else other.text.lower() == "true"


def _batch_size(node: Values, find: Find) -> int:
    name = OTHER_NAMES[keys.MQ_BATCH.name]
    other = find(name)
    if other is None or node.has(keys.MQ_BATCH):
        return node.get(keys.MQ_BATCH)
    return _whole(name, other, 1, keys.INT32)
