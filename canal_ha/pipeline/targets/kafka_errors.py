"""Turns errors of Kafka into ours."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from canal_ha.errors import CanalError, OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, printable

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give the account the right to write, read, describe and create this topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "give the account the right IdempotentWrite, or a broker since 2.8",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "give the account the right to write transactional ids with the"
    " prefix canal-ha/",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "give the account the right to read groups with the prefix canal-ha/",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "set timeout to at most transaction.max.timeout.ms of the brokers",
    KafkaError.POLICY_VIOLATION: "create the topic by hand, and set create: false",
    KafkaError.INVALID_REPLICATION_FACTOR: "set replication to at most the number of brokers",
    KafkaError.UNSUPPORTED_VERSION: "use brokers since 2.5",
    KafkaError._AUTHENTICATION: "check user and password in properties",
    KafkaError._INVALID_ARG: "check properties",
    KafkaError._UNKNOWN_PARTITION: "give the topic as many partitions as `partition` and `partitions` say",
}
_UNREACHED = {
    KafkaError._TRANSPORT: "no broker can be reached",
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached",
    KafkaError._RESOLVE: "the name of no broker can be resolved",
    KafkaError._TIMED_OUT: "no broker has answered in time",
}


def wrong_properties(error: KafkaException) -> OptionInvalid:
    """Return the error to raise if librdkafka refuses its settings."""
    said = printable(excerpt(error.args[0].str()))
    return OptionInvalid(f"target.properties: librdkafka refuses them: {said}")


def is_fenced(error: KafkaException) -> bool:
    """Return whether Kafka refuses a producer because its transactional id has a newer epoch."""
    found = error.args[0]
    return isinstance(found, KafkaError) and found.code() in _FENCED


def ours(error: KafkaException, what: str) -> CanalError:
    """Return the error to raise. what: what failed, for the text."""
    found = error.args[0]
    if not isinstance(found, KafkaError):
        return TargetUnavailable(f"canal: {what}: {found}")
    if is_fenced(error):
        return SinkRefused(
            f"canal: {what}: another process with this pipeline's name has taken over. Stop one of them, or give them"
            " different names"
        )
    advice = _REFUSED.get(found.code())
    if advice or found.fatal():
        return SinkRefused(f"canal: {what}: {found.str()}{f': {advice}' if advice else ''}")
    return TargetUnavailable(f"canal: {what}: {_UNREACHED.get(found.code(), found.str())}")
