"""The closed list of metrics. A name that is not an attribute here does not exist, so a typing error is a type error.

Labels are small closed sets: verdicts, reasons, kinds, tiers, planes, route templates, shard numbers. Never a tenant,
a subscription, a destination or a URL: their number is not ours to bound."""

from __future__ import annotations

from typing import Final

from hub_app.telemetry.registry import Registry

FAST_MS: Final = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0)
LATENCY_MS: Final = (
    *(1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0),
    *(5_000.0, 10_000.0, 30_000.0, 60_000.0, 300_000.0, 1_800_000.0, 7_200_000.0, 36_000_000.0, 86_400_000.0),
)


class Metrics:
    """One per process, made by the composition and handed down. Every family is an attribute."""

    def __init__(self) -> None:
        self.registry = r = Registry()
        # ingest
        self.facts = r.counter("hub_facts_total", "Records judged by ingest", "verdict", "reason")
        self.matched_topics = r.gauge("hub_matched_topics", "Topics that a source's pattern matches now", "source")
        # inbox
        self.admitted = r.counter("hub_admitted_total", "Facts admitted once into an inbox")
        self.duplicates = r.counter("hub_duplicates_total", "Facts seen again inside the dedup window")
        self.collisions = r.counter("hub_collisions_total", "Facts with a known id but another type or payload")
        self.matched = r.counter("hub_matched_deliveries_total", "Deliveries made by matching")
        # dispatch
        self.attempts = r.counter("hub_attempts_total", "Attempts that ended, by kind of outcome", "outcome")
        self.not_charged = r.counter(
            "hub_not_charged_total", "Attempts that could not be made, through our fault", "reason"
        )
        self.retries = r.counter("hub_retries_total", "Deliveries sent to a retry tier", "tier")
        self.dead = r.counter("hub_dead_letters_total", "Deliveries given up", "reason")
        self.reclaims = r.counter("hub_reclaims_total", "Claims found interrupted")
        self.parked = r.counter("hub_parked_total", "Waiting deliveries copied ahead in the log")
        self.breakers_open = r.gauge("hub_breakers_open", "Destinations of this worker whose breaker is not closed")
        self.in_flight = r.gauge("hub_attempts_in_flight", "Attempts being made now")
        self.backlog_jobs = r.gauge("hub_backlog_jobs", "Unfinished deliveries in this worker's dispatch shards")
        self.latency = r.histogram(
            "hub_delivery_latency_seconds", "From received by the hub to delivered", bounds_ms=LATENCY_MS
        )
        self.attempt_duration = r.histogram("hub_attempt_seconds", "One attempt, start to end", bounds_ms=FAST_MS)
        self.disabled = r.counter("hub_subscriptions_disabled_total", "Subscriptions disabled for their failures")
        # the no-loss plane
        self.batches = r.counter("hub_batches_total", "Batches finished", "source")
        self.batch_failures = r.counter("hub_batch_failures_total", "Batches that failed and were rewound", "source")
        self.lag = r.gauge("hub_lag_records", "Records between what is settled and the end of the log", "source")
        self.stalled = r.gauge("hub_stalled", "Partitions and shards that stand still, by source", "source")
        self.rebalances = r.counter("hub_rebalances_total", "Changes of assignment", "plane")
        self.producer_replaced = r.counter("hub_producer_replaced_total", "Producers replaced after a poisoned batch")
        self.lease_valid = r.gauge("hub_lease_valid", "1 while this worker's lease holds", "plane")
        self.shards = r.gauge("hub_open_shards", "Shards open in this worker", "plane")
        self.set_aside = r.counter(
            "hub_shards_set_aside_total", "Shard folders set aside, to be rebuilt", "plane", "reason"
        )
        # http
        self.http_requests = r.counter("hub_http_requests_total", "Requests by route template", "route", "status")
        self.http_duration = r.histogram("hub_http_request_seconds", "Requests by route", "route", bounds_ms=FAST_MS)
        self.http_forwards = r.counter("hub_http_forwards_total", "Requests forwarded to an owner", "result")
        self.probes = r.counter("hub_verification_probes_total", "Verification probes", "outcome")
        # process
        self.build = r.gauge("hub_build_info", "Always 1", "version")
