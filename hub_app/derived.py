"""What follows from the settings: how Kafka is reached, which topics there are, where the hub may send, and when it
gives up on a sink."""

from __future__ import annotations

import base64

from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.breaker import BreakerPolicy
from hub_app.domain.egress import EgressPolicy, parse_cidrs
from hub_app.kafka.client import KafkaConfig
from hub_app.settings import Settings
from hub_app.topics import TopicSpec, internal_topics


def kafka_config(settings: Settings) -> KafkaConfig:
    return KafkaConfig(
        brokers=",".join(settings.kafka_brokers),
        scram_mechanism=settings.kafka_scram_mechanism,
        username=settings.kafka_scram_username,
        password=settings.kafka_scram_password,
        tls=settings.kafka_tls_enabled,
        ca_pem_base64=base64.b64encode(settings.kafka_ca_cert.encode()).decode(),
        metadata_max_age_ms=settings.metadata_max_age_ms,
    )


def egress_policy(settings: Settings) -> EgressPolicy:
    return EgressPolicy(allow_private=settings.allow_private_sinks, allow_cidrs=parse_cidrs(settings.sink_allow_cidrs))


def breaker_policy(settings: Settings) -> BreakerPolicy:
    return BreakerPolicy(settings.breaker_failures, settings.breaker_open_ms, settings.breaker_open_ms_max)


def disable_policy(settings: Settings) -> DisablePolicy | None:
    """None: nobody is disabled for their failures."""
    if not settings.autodisable_enabled:
        return None
    return DisablePolicy(settings.autodisable_failure_window_ms, settings.autodisable_failure_spread_ms)


def topic_specs(settings: Settings) -> tuple[TopicSpec, ...]:
    """Every internal topic of a deployment."""
    return internal_topics(
        settings.topic_prefix,
        settings.shards,
        settings.topic_replication,
        settings.retentions,
        settings.backoff_caps_ms,
    )
