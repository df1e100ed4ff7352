"""The verdict is total, and its two ways agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hub_app.domain import cloudevents
from hub_app.domain.cloudevents import REASONS, SYSTEM_EVENT, Accept, Drop, Quarantine, judge
from hub_app.domain.limits import HEADERS_BYTES_MAX, TENANT_BYTES_MAX

Pairs = tuple[tuple[str, bytes | None], ...]
TOPICS = ["lerian.streaming.lender", "lerian.streaming.x", "lerian.streaming.lender.dlq", "other", ""]
GOOD: dict[str, list[bytes]] = {
    "ce-specversion": [b"1.0"],
    "ce-id": [b"1", b"x" * 256, "é".encode()],
    "ce-source": [b"lender"],
    "ce-type": [b"studio.lerian.lender.a.b"],
    "ce-time": [b"2026-01-02T03:04:05Z", b"2024-02-29t23:59:59.123456789+05:30", b"2016-12-31T23:59:60Z"],
    "ce-schemaversion": [b"1", b"v1.2", b"1.0.0-rc.1+b"],
    "ce-resourcetype": [b"a"],
    "ce-eventtype": [b"b"],
    "ce-tenantid": [b"acme", b"acme ", "ação".encode()],
    "ce-subject": [b"s", "日".encode()],
    "ce-datacontenttype": [b"application/json", b"text/plain; a=b"],
    "ce-dataschema": [b"https://x"],
    "ce-systemevent": [b"true", b"false"],
    "ce-extension": [b"1", "é".encode()],
    "traceparent": [b"00-1-2-3"],
    "hub-tenant": [b"spoofed"],
    "CE-ID": [b"2"],
    "content-type": [b"application/json", b"text/plain"],
    "x": [b"\x00", b"y"],
}
name = st.one_of(st.sampled_from([*GOOD, *(key.replace("ce-", "ce_") for key in GOOD)]), st.text(max_size=8))
data = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.sampled_from([value for values in GOOD.values() for value in values]),
    st.sampled_from([b"\xff", b"\n", b"a\x7f", b""]),
    st.sampled_from([b"x" * 300, b"x" * 3_000, b"x" * (HEADERS_BYTES_MAX + 1), "é".encode() * 200]),
)
value = st.one_of(st.none(), st.binary(max_size=20))


@st.composite
def nearly_good(draw: st.DrawFn) -> Pairs:
    """Records that pass, or fail for one or two reasons: where mistakes would hide."""
    pairs: list[tuple[str, bytes | None]] = [
        (key, draw(st.sampled_from(values)))
        for key, values in GOOD.items()
        if key in list(GOOD)[:9] or draw(st.integers(0, 5)) == 0
    ]
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        at = draw(st.integers(0, len(pairs) - 1))
        change = draw(st.integers(0, 3))
        if change == 0:
            del pairs[at]
        elif change == 1:
            pairs[at] = (pairs[at][0], draw(data))
        elif change == 2:
            pairs.insert(at, (draw(name), draw(data)))
        else:
            pairs.insert(at, pairs[draw(st.integers(0, len(pairs) - 1))])
    return tuple(draw(st.permutations(pairs)))


topics = st.sampled_from([*[TOPICS[0]] * 5, *TOPICS]) | st.text(max_size=20)
records = st.one_of(nearly_good(), st.lists(st.tuples(name, data), max_size=20).map(tuple))


@settings(max_examples=600, deadline=None)
@given(topics, records, value, st.sampled_from([None, "default", "ação"]))
def test_every_record_gets_a_verdict(topic: str, headers: Pairs, value: bytes | None, default: str | None) -> None:
    found = judge(topic, headers, value, default_tenant=default)
    if isinstance(found, Accept):
        names = [key for key, _ in found.headers]
        attributes = [key for key in names if key.startswith("ce-")]
        assert len(attributes) == len(set(attributes))
        assert not any(key.startswith(("hub-", "ce_")) or key == "content-type" for key in names)
        assert all(isinstance(held, bytes) for _, held in found.headers)
        assert found.tenant
        assert found.tenant.encode() == found.key
        assert len(found.key) <= TENANT_BYTES_MAX
        assert all(ord(character) >= 32 and character != "\x7f" for character in found.tenant)
        assert topic == f"lerian.streaming.{found.topic}"
        # Judged again, as the facts record carries it, it passes as it stands.
        again = judge(topic, found.headers, value, default_tenant=default)
        assert isinstance(again, Accept)
        assert list(again.headers) == list(found.headers)
    elif isinstance(found, Quarantine):
        assert found.reason in REASONS
        assert len(found.detail.encode()) <= 512
        assert found.detail.isprintable()
    else:
        assert found == SYSTEM_EVENT


@settings(max_examples=600, deadline=None)
@given(topics, records, value, st.sampled_from([None, "default"]))
def test_both_ways_say_the_same(topic: str, headers: Pairs, value: bytes | None, default: str | None) -> None:
    careful = cloudevents._careful(topic, headers, value, default)
    for _ in range(2):  # the second time from what the first has remembered
        found = judge(topic, headers, value, default_tenant=default)
        assert type(found) is type(careful)
        if isinstance(found, Accept) and isinstance(careful, Accept):
            assert found._replace(headers=list(found.headers)) == careful
        else:
            assert found == careful


@settings(max_examples=300, deadline=None)
@given(nearly_good())
def test_order_and_repeats_of_equal_headers_change_nothing(headers: Pairs) -> None:
    once = judge(TOPICS[0], headers, b"", default_tenant=None)
    twice = judge(
        TOPICS[0], headers + tuple(pair for pair in headers if pair[0].startswith("ce-")), b"", default_tenant=None
    )
    reverse = judge(TOPICS[0], headers[::-1], b"", default_tenant=None)
    assert type(once) is type(twice) is type(reverse)
    if isinstance(once, Accept) and isinstance(twice, Accept):
        assert list(once.headers) == list(twice.headers)
    if isinstance(once, Drop | Quarantine):
        assert twice == once
