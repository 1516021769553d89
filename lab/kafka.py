"""Kafka 4 from Maven Central's jars: one broker that is its own controller (KRaft), without ZooKeeper."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from lab.ports import LOOPBACK, free_port
from lab.process import Process, StartFailed

_CACHE = Path(os.environ.get("CANAL_HA_CACHE", Path.home() / ".cache" / "canal-ha")) / "kafka"
_CLUSTER = "Y2FuYWwtaGEtdGVzdHMtMQ"  # 16 bytes in Base64, as Kafka requires

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=100
broker.session.timeout.ms=500
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=300
controller.quorum.request.timeout.ms=300
num.io.threads=2
num.network.threads=1
"""


class Kafka(Process):
    """One Kafka process with its topics in a temporary directory. They survive kill(), because they are written.

    settings: further lines of server.properties, such as "auto.create.topics.enable=false".
    """

    def __init__(self, *, settings: Sequence[str] = ()) -> None:
        super().__init__("kafka", free_port())
        self.settings = tuple(settings)
        self._controller_port = free_port()

    def prepare(self) -> None:
        if not (_CACHE / "pom.xml").exists() or shutil.which("java") is None:
            raise StartFailed(f"{_CACHE} or java is missing; run: bash deploy/install.sh kafka")
        data = self.directory / "data"
        configuration = self.directory / "server.properties"
        configuration.write_text(
            f"{_SETTINGS}listeners=PLAINTEXT://{self.address},CONTROLLER://{LOOPBACK}:{self._controller_port}\n"
            f"controller.quorum.voters=1@{LOOPBACK}:{self._controller_port}\nlog.dirs={data}\n"
            + "".join(f"{line}\n" for line in self.settings)
        )
        if not data.exists():
            format_storage = _java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(configuration))
            done = subprocess.run(format_storage, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StartFailed(f"Kafka cannot format its directory\n{done.stdout}{done.stderr}")

    def command(self) -> Sequence[str]:
        return _java("kafka.Kafka", str(self.directory / "server.properties"))

    def ready(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=1.0).close()
            cluster = AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=2.0)
        except (OSError, KafkaException):
            return False
        return bool(cluster.brokers)

    def messages(self, *topics: str, **options: str) -> list[Message]:
        """Return all messages of these topics, each partition's in order; those of open transactions are left out.

        options: of the consumer, with underscores for dots, such as isolation_level="read_uncommitted".
        """
        settings = {name.replace("_", "."): value for name, value in options.items()}
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "lab",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **settings,
            }
        )
        try:
            known = consumer.list_topics(timeout=10.0).topics
            unread = {(topic, number) for topic in topics for number in known[topic].partitions}
            consumer.assign([TopicPartition(topic, number, 0) for topic, number in sorted(unread)])
            found: list[Message] = []
            while unread:
                message = consumer.poll(10.0)
                if message is None:
                    raise TimeoutError(f"{self.name} sends no messages of {sorted(unread)}\n{self.log_tail()}")
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((message.topic(), message.partition()))
                else:
                    raise KafkaException(error)
            return found
        finally:
            consumer.close()


def _java(*arguments: str) -> list[str]:
    return [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # halves the start time of these short-lived servers
        "-XX:-UsePerfData",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-cp",
        f"{_CACHE}/lib/*",
        *arguments,
    ]
