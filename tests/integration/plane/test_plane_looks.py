"""Reading for people's questions, on a real Kafka and without one."""

from __future__ import annotations

import pytest

from hub_app.domain.errors import BrokerTrouble
from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.looks import LookReader


async def test_without_a_kafka_it_is_the_brokers_trouble() -> None:
    reader = LookReader(KafkaConfig(brokers="127.0.0.1:9"))
    try:
        with pytest.raises(BrokerTrouble):
            await reader.end_offsets("hub.operator", [0])
        with pytest.raises(BrokerTrouble):
            await reader.begin_offsets("hub.operator", [0])
        with pytest.raises(BrokerTrouble):
            await reader.offset_for_time("hub.operator", 0, 1)
        with pytest.raises(BrokerTrouble):
            async for _ in reader.read_range("hub.operator", 0, 0, 1):
                raise AssertionError("there is nothing to read")
    finally:
        await reader.on_stop()
