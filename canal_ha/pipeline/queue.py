"""The queue of a destination, canal.serverMode = kafka, as a pipeline."""

from __future__ import annotations

from canal_ha.config.model import InstanceConfig, QueueConfig
from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.target import PipelineTarget

_FILE = "canal.properties"
_NAMES = {
    "maxMessageBytes": "kafka.max.request.size",
    "dynamicTopic": "canal.mq.dynamicTopic",
    "partitionHash": "canal.mq.partitionHash",
    "topicPartitions": "canal.mq.dynamicTopicPartitionNum",
}


def described(config: InstanceConfig, queue: QueueConfig) -> Description:
    """Return the pipeline of all tables of a destination. queue: the destination's."""
    return Description(
        file=_FILE,
        name=queue.pipeline,
        engine="embedded",
        state=str(config.data_dir / config.destination),
        tables=("*",),
        keys={},
        source={},
        target=TargetDescription("kafka", "events", options=queue.options, names=_NAMES),
    )


def opened(description: Description) -> PipelineTarget:
    """Open the target of `described`. Raises OptionInvalid, which names the keys of canal.properties."""
    try:
        return open_target(description)
    except OptionInvalid as error:
        raise OptionInvalid(str(error).replace("target.properties:", f"{_FILE}: keys kafka.*:")) from error
