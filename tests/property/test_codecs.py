"""Codecs: what is written is what is read, reading is total, and no two tenants share a key."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hub_app.domain.cloudevents import Accept
from hub_app.domain.delivery import Job, OutcomeKind
from hub_app.domain.fact import Fact
from hub_app.domain.ids import delivery_id, destination_key, event_id, identity_key, tenant_key
from hub_app.domain.instants import is_rfc3339, parse_rfc3339, rfc3339
from hub_app.domain.limits import EPOCH_MAX, ERROR_BYTES_MAX
from hub_app.topics import partition_for
from hub_app.wire import attempts, dead_letters, facts, jobs, keyed, meta, quarantine, subscriptions
from hub_app.wire.owned import Stored
from hub_app.wire.record import Unreadable, cut, error_text

Pairs = tuple[tuple[str, bytes], ...]

tenants = st.text(
    st.characters(exclude_categories=("Cs",), min_codepoint=32, exclude_characters="\x7f"), min_size=1, max_size=40
)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
counts = st.integers(0, 10**18 - 1)
instants = st.integers(1, 253_402_300_799_999)
ids = st.binary(min_size=16, max_size=16)
event = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(["ce-id", "ce-x", "traceparent", "hub", "Hub-x"]), st.text(max_size=8)),
        st.binary(max_size=20),
    ).filter(lambda pair: not pair[0].startswith("hub-")),
    max_size=12,
).map(tuple)
made = st.builds(
    Job,
    delivery_id=ids,
    attempt=st.integers(1, 10**18 - 1),
    moves=counts,
    tenant=tenants,
    destination=texts,
    subscription=texts,
    series=texts,
    seq=counts,
    topic=texts,
    received_at_ms=instants,
    not_before_ms=st.one_of(st.just(0), instants),
    subscriptions_offset=counts,
    reclaims=counts,
)
any_headers = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(
                [
                    *jobs.LAYOUT,
                    "hub-outcome",
                    "hub-at",
                    "hub-reason",
                    "hub-status",
                    "hub-error",
                    "hub-nulls",
                    "hub-payload-omitted",
                    "ce-id",
                ]
            ),
            st.text(max_size=6),
        ),
        st.one_of(
            st.none(),
            st.binary(max_size=12),
            st.sampled_from([b"1", b"claimed", b"failed", b"2026-01-02T03:04:05.678Z", b"a" * 32]),
        ),
    ),
    max_size=24,
)


@settings(deadline=None)
@given(made, event)
def test_jobs(job: Job, headers: Pairs) -> None:
    written = jobs.write(job, headers)
    assert jobs.read_record(written) == (job, headers)
    assert jobs.read(written[::-1]) == job


@settings(deadline=None)
@given(made, event)
def test_the_short_way_of_jobs(job: Job, headers: Pairs) -> None:
    fact = Fact(job.seq, job.tenant, job.topic, "", "", "", "", headers, b"", job.received_at_ms)
    assert jobs.write_shared(job, jobs.shared(fact)) == jobs.write(job, headers)


@settings(deadline=None)
@given(tenants, texts, texts, texts, event, instants, st.integers(0, EPOCH_MAX), st.integers(0, 2**40 - 1))
def test_facts(tenant: str, topic: str, id: str, type: str, headers: Pairs, at: int, epoch: int, offset: int) -> None:
    rest = tuple(pair for pair in headers if not pair[0].startswith("ce-"))
    carried = (("ce-id", id.encode()), ("ce-source", b"s"), ("ce-type", type.encode()), *rest)
    accept = Accept(tenant, tenant.encode(), topic, carried)
    written = facts.write(accept, received_at_ms=at, origin=(1, offset))
    read = facts.read(tuple(written), b"v", epoch=epoch, offset=offset)
    assert read == Fact((epoch << 40) | offset, tenant, topic, "s", id, type, type, carried, b"v", at)


@settings(deadline=None)
@given(
    st.sampled_from([kind for kind in OutcomeKind if kind is not OutcomeKind.CLAIMED]),
    made,
    instants,
    counts,
    st.one_of(st.none(), counts),
    texts,
    st.binary(max_size=1024),
    event,
)
def test_outcomes(
    kind: OutcomeKind, job: Job, at: int, took: int, status: int | None, reason: str, answer: bytes, headers: Pairs
) -> None:
    outcome = attempts.Outcome(kind, job, at, took, status, "http_503", reason, answer)
    assert attempts.read(attempts.write(outcome, headers), attempts.value(outcome)) == outcome


@settings(deadline=None)
@given(st.lists(st.builds(attempts.Claim, ids, counts, counts, counts, instants), max_size=20))
def test_claims(claims: list[attempts.Claim]) -> None:
    read = [attempts.read(made.headers, made.value) for made in attempts.write_claimed(claims, 1)]
    assert [claim for found in read if isinstance(found, attempts.Claimed) for claim in found.claims] == claims


@settings(deadline=None)
@given(made, event, st.binary(max_size=20), texts, instants, st.one_of(st.none(), counts))
def test_dead_letters(job: Job, headers: Pairs, value: bytes, reason: str, at: int, status: int | None) -> None:
    written = dead_letters.write(job, headers, value, reason=reason, at_ms=at, status=status, error="e")
    read = dead_letters.read(written.headers, written.value)
    assert read == dead_letters.DeadLetter(job, reason, at, status, "e", headers, value, len(value))


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(0, EPOCH_MAX), st.text(max_size=20), instants)
def test_epochs(shard: int, epoch: int, reason: str, at: int) -> None:
    said = meta.Epoch(shard, epoch, reason, at)
    record = meta.write(said)
    assert meta.read(record.key, record.value) == said


@settings(max_examples=400, deadline=None)
@given(any_headers, st.one_of(st.none(), st.binary(max_size=80)))
def test_reading_never_raises(headers: list[tuple[str, bytes | None]], value: bytes | None) -> None:
    assert isinstance(jobs.read(headers), Job | Unreadable)
    assert isinstance(jobs.read_record(headers), tuple)
    assert isinstance(facts.read(headers, value, epoch=0, offset=0), Fact | Unreadable)
    assert isinstance(attempts.read(headers, value), attempts.Outcome | attempts.Claimed | Unreadable)
    assert isinstance(dead_letters.read(headers, value), dead_letters.DeadLetter | Unreadable)
    assert isinstance(quarantine.read(headers, value, value), quarantine.Original | Unreadable)
    assert isinstance(meta.read(value, value), meta.Schema | meta.Epoch | Unreadable)
    assert isinstance(subscriptions.read(value, value, headers), Stored | Unreadable)
    facts.origin(headers)


@settings(deadline=None)
@given(tenants, tenants, texts, texts)
def test_two_tenants_never_share_a_key(one: str, other: str, a: str, b: str) -> None:
    if one != other:
        assert tenant_key(one) != tenant_key(other)
        assert destination_key(one, a) != destination_key(other, b)
        assert keyed.join(one, a) != keyed.join(other, b)
        assert identity_key(one, "t", "s", a) != identity_key(other, "t", "s", b)
        assert event_id(one, "t", "s", a) != event_id(other, "t", "s", b)
        assert delivery_id(one, 1, a) != delivery_id(other, 1, b)
    assert keyed.split(keyed.join(one, a), 2) == (one, a)


@settings(deadline=None)
@given(instants)
def test_instants(ms: int) -> None:
    assert parse_rfc3339(rfc3339(ms)) == ms


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789-:.TtZz+ 6", max_size=40))
def test_reading_instants_is_total(text: str) -> None:
    try:
        parse_rfc3339(text)
    except ValueError:
        assert not is_rfc3339(text)
    else:
        assert is_rfc3339(text)


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(1, 100))
def test_partitions(key: bytes, shards: int) -> None:
    assert 0 <= partition_for(key, shards) < shards


@settings(deadline=None)
@given(st.text(max_size=3_000), st.integers(0, 50))
def test_texts_for_people(text: str, bytes_max: int) -> None:
    assert len(cut(text, bytes_max)) <= bytes_max
    kept = error_text(text)
    assert len(kept) <= ERROR_BYTES_MAX
    kept.decode()
