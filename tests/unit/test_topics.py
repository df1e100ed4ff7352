"""Topics: names, settings, and partitions that Kafka's own tools agree with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hub_app.domain.limits import HOUR_MS, MESSAGE_BYTES_MAX, TOPIC_NAME_BYTES_MAX
from hub_app.topics import (
    INGEST_PATTERN,
    OBSERVER_PATTERN,
    Retentions,
    internal_topics,
    names,
    observed_source_of,
    partition_for,
    prefix_problem,
    retention_problems,
    source_of,
    tier_name,
    tiers,
)

VECTORS = Path(__file__).parents[1] / "vectors"
CURVE = (10_000, 60_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000)


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def expand(topic: str) -> str:
    """`{a*223}` stands for 223 times `a`."""
    return re.sub(r"\{(.)\*(\d+)\}", lambda found: found[1] * int(found[2]), topic)


@pytest.mark.parametrize("vector", load("topics.json"), ids=lambda vector: repr(vector["topic"]))
def test_producers_topics(vector: dict[str, Any]) -> None:
    topic = expand(vector["topic"])
    assert (source_of(topic) is not None) == vector["ingest"]
    assert (observed_source_of(topic) is not None) == vector["observe"]
    # What Kafka's client asks (`re.match`) says the same.
    assert (re.match(INGEST_PATTERN, topic) is not None) == vector["ingest"]
    assert (re.match(OBSERVER_PATTERN, topic) is not None) == vector["observe"]


def test_the_vectors_hold_both_sides_of_the_length_rule() -> None:
    lengths = {len(expand(vector["topic"])) for vector in load("topics.json")}
    assert {len("lerian.streaming.") + 223, len("lerian.streaming.") + 224} <= lengths


@pytest.mark.parametrize(("topic", "source"), [("lerian.streaming.a-b_c", "a-b_c"), ("lerian.streaming.dlq", "dlq")])
def test_the_source_is_the_last_segment(topic: str, source: str) -> None:
    assert source_of(topic) == source
    assert observed_source_of(f"{topic}.dlq") == source


@pytest.mark.parametrize("topic", ["", ".dlq", "lerian.streaming..dlq", "lerian.streaming.é", "x" * 100_000])
def test_other_topics_have_no_source(topic: str) -> None:
    assert source_of(topic) is None
    assert observed_source_of(topic) is None


@pytest.mark.parametrize("shards", [1, 2, 3, 12, 50])
def test_partitions_as_kafka_s_own_producer_chooses_them(shards: int) -> None:
    vectors = load("partitions.json")
    found = [partition_for(key.encode(), shards) for key in vectors["keys"]]
    assert found == vectors["partitions"][str(shards)]


def test_partition_vectors_cover_every_tail_length_and_non_ascii_keys() -> None:
    keys = [key.encode() for key in load("partitions.json")["keys"]]
    assert {len(key) % 4 for key in keys} == {0, 1, 2, 3}
    assert any(not key.isascii() for key in keys)
    assert any(b"\x1f" in key for key in keys)
    assert len(keys) > 80


@pytest.mark.parametrize(
    ("cap_ms", "name"),
    [
        (1, "1ms"),
        (250, "250ms"),
        (1_000, "1s"),
        (1_500, "1500ms"),
        (10_000, "10s"),
        (60_000, "1m"),
        (90_000, "90s"),
        (300_000, "5m"),
        (1_800_000, "30m"),
        (7_200_000, "2h"),
        (18_000_000, "5h"),
        (36_000_000, "10h"),
        (86_400_000, "1d"),
        (129_600_000, "36h"),
    ],
)
def test_tier_names(cap_ms: int, name: str) -> None:
    assert tier_name(cap_ms) == name


def test_tiers_keep_their_order_and_name_a_topic_once() -> None:
    assert tiers(CURVE) == ("10s", "1m", "5m", "30m", "2h", "5h", "10h")
    assert tiers((1_000, 60_000, 1_000)) == ("1s", "1m")
    with pytest.raises(ValueError, match="millisecond"):
        tier_name(0)


def test_names() -> None:
    own = names("hub.")
    assert own.facts == "hub.facts"
    assert own.parked == "hub.retry.parked"
    assert own.retry("10s") == "hub.retry.10s"
    assert names("acme-").dlq == "acme-dlq"


@pytest.mark.parametrize(
    ("topic", "is_retry"),
    [
        ("hub.retry.10s", True),
        ("hub.retry.parked", True),
        ("hub.retry.17m", True),  # another curve's: read all the same
        ("hub.retry.", False),
        ("hub.retry.10s\n", False),
        ("hub.retry.10s.dlq", False),
        ("hub.retry", False),
        ("hubXretry.10s", False),
        ("xhub.retry.10s", False),
        ("hub.deliveries", False),
    ],
)
def test_which_topics_dispatch_reads(topic: str, is_retry: bool) -> None:
    assert names("hub.").is_retry(topic) is is_retry


@pytest.mark.parametrize("prefix", ["hub.", "acme-hub.", "a_", "Hub.v2."])
def test_prefixes_that_work(prefix: str) -> None:
    assert prefix_problem(prefix) is None


@pytest.mark.parametrize(
    "prefix", ["", "hub", "hub/", ".hub.", "hub.\n", "lerian.streaming.", "lerian.streaming.x.", "é.", "h" * 240 + "."]
)
def test_prefixes_that_do_not(prefix: str) -> None:
    assert prefix_problem(prefix)


def test_every_topic_of_the_design_is_there() -> None:
    specs = {spec.name: spec for spec in internal_topics("hub.", 12, 3, Retentions(), CURVE)}
    deleted = {
        "hub.facts": 336,
        "hub.quarantine": 240,
        "hub.deliveries": 240,
        **{f"hub.retry.{tier}": 240 for tier in ("10s", "1m", "5m", "30m", "2h", "5h", "10h", "parked")},
        "hub.attempts": 336,
        "hub.dlq": 720,
        "hub.queue": 336,
        "hub.observations": 168,
        "hub.operator": 336,
    }
    compacted = {"hub.subscriptions", "hub.keys", "hub.operations", "hub.health", "hub.meta"}
    assert set(specs) == set(deleted) | compacted
    for name, hours in deleted.items():
        assert specs[name].config["cleanup.policy"] == "delete"
        assert specs[name].config["retention.ms"] == str(hours * HOUR_MS)
    for name in compacted:
        assert specs[name].config["cleanup.policy"] == "compact"
        assert "retention.ms" not in specs[name].config
    for name, spec in specs.items():
        assert spec.partitions == (1 if name == "hub.meta" else 12)
        assert spec.replication == 3
        assert spec.config["message.timestamp.type"] == "LogAppendTime"
        assert spec.config["segment.ms"] == str(6 * HOUR_MS)
        assert spec.config["max.message.bytes"] == str(MESSAGE_BYTES_MAX) == "2621440"
        assert spec.config["min.insync.replicas"] == "2"
        assert len(name) <= TOPIC_NAME_BYTES_MAX


def test_one_replica_asks_for_one_in_sync() -> None:
    assert {spec.config["min.insync.replicas"] for spec in internal_topics("hub.", 1, 1, Retentions(), (1_000,))} == {
        "1"
    }


def test_facts_outlive_the_window_and_the_events() -> None:
    kept = Retentions(events_ms=2 * HOUR_MS, dedup_window_ms=3 * HOUR_MS)
    assert internal_topics("hub.", 1, 1, kept, ())[0].config["retention.ms"] == str(5 * HOUR_MS)


def test_retentions_that_are_too_short_are_named() -> None:
    assert retention_problems(Retentions(), CURVE, 24 * HOUR_MS) == ()
    short = Retentions(deliveries_ms=100 * HOUR_MS, attempts_ms=50 * HOUR_MS)
    problems = retention_problems(short, CURVE, 24 * HOUR_MS)
    assert [problem.split(":")[0] for problem in problems] == ["deliveries and retry", "attempts"]
    assert "100h" in problems[0]
    # A longer age makes longer jobs: 2 x 80 h + 96 h.
    assert retention_problems(Retentions(), CURVE, 80 * HOUR_MS)
    assert retention_problems(Retentions(), CURVE, 72 * HOUR_MS) == ()
