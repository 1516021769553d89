"""Options of the target for Kafka that are refused without a broker."""

from __future__ import annotations

import pytest

from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.targets.kafka import open_target
from tests.pipeline.kafka_writer import description


@pytest.mark.parametrize("properties", [{"security.protocl": "SASL_SSL"}, {"linger.ms": "soon"}])
def test_properties_that_librdkafka_does_not_know_are_refused(properties: dict[str, str]) -> None:
    """The error names the key of the file; it was a traceback."""
    with pytest.raises(OptionInvalid, match=r"target\.properties"):
        open_target(description("127.0.0.1:1", properties=properties))
