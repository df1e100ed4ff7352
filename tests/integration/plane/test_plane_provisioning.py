"""Topics as they must be, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from hub_app.kafka.provisioning import provision


class Spec(NamedTuple):
    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


def specs(prefix: str) -> list[Spec]:
    return [
        Spec(prefix + "facts", 4, 1, {"retention.ms": "1209600000", "message.timestamp.type": "LogAppendTime"}),
        Spec(prefix + "subs", 4, 1, {"cleanup.policy": "compact"}),
    ]


async def test_topics_are_created_once_and_then_left_alone(world: Any) -> None:
    wanted = specs(world.prefix)
    first = await provision(world.config, wanted, local=True)
    assert sorted(first.created) == [s.name for s in wanted]
    assert first.cluster_id
    assert [p for p in first.problems if p.fatal] == []
    second = await provision(world.config, wanted, local=True)
    assert (second.created, second.altered) == ([], [])
    assert second.cluster_id == first.cluster_id
    described = await world.admin.describe_topics([wanted[0].name])
    assert len(described[0]["partitions"]) == 4


async def test_several_workers_at_once(world: Any) -> None:
    wanted = specs(world.prefix)
    found = await asyncio.gather(*(provision(world.config, wanted, local=True) for _ in range(4)))
    assert sorted(name for p in found for name in p.created) == [s.name for s in wanted]
    assert [problem for p in found for problem in p.problems if problem.fatal] == []


async def test_another_partition_count_names_the_topic_and_both_numbers(world: Any) -> None:
    wanted = specs(world.prefix)
    await world.admin.create_topics([NewTopic(wanted[0].name, 7, 1)])
    found = await provision(world.config, wanted, local=True)
    [problem] = [p for p in found.problems if p.fatal]
    assert problem.subject == wanted[0].name
    assert problem.text == "has 7 partitions, but 4 are wanted"


async def test_drift_is_set_right_and_what_others_set_stays(world: Any) -> None:
    wanted = specs(world.prefix)
    new = NewTopic(wanted[0].name, 4, 1, topic_configs={"retention.ms": "1000", "segment.bytes": "20000000"})
    await world.admin.create_topics([new])
    found = await provision(world.config, wanted, local=True)
    assert sorted(found.altered) == [
        f"{wanted[0].name}.message.timestamp.type",
        f"{wanted[0].name}.retention.ms",
    ]
    resource = ConfigResource(ConfigResourceType.TOPIC, wanted[0].name)

    async def values() -> Mapping[str, str]:
        [response] = await world.admin.describe_configs([resource])
        entries = response.to_object()["resources"][0]["config_entries"]
        return {entry["config_names"]: entry["config_value"] for entry in entries}

    async def is_set() -> bool:
        return (await values())["retention.ms"] == "1209600000"

    await world.until(is_set)
    assert (await values())["segment.bytes"] == "20000000"
    assert (await provision(world.config, wanted, local=True)).altered == []


async def test_a_topic_that_cannot_be_created_is_a_problem_that_names_it(world: Any) -> None:
    wanted = [Spec(world.prefix + "wide", 4, 3, {}), Spec(world.prefix + "odd", 1, 1, {"no.such.key": "1"})]
    found = await provision(world.config, wanted, local=True)
    assert sorted(p.subject for p in found.problems if p.fatal) == [world.prefix + "odd", world.prefix + "wide"]
    assert found.created == []


async def test_offsets_that_are_kept_too_briefly(make_kafka: Any, world_on: Any) -> None:
    world = await world_on(make_kafka(overrides={"offsets.retention.minutes": "10080"}))
    for local in (True, False):
        [problem] = (await provision(world.config, [], local=local)).problems
        assert problem.fatal is not local
        assert "10080" in problem.text
        assert "20160" in problem.text
