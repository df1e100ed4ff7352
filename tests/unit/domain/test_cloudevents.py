"""Verdicts: every rule of the wire contract, at its edges."""

from __future__ import annotations

import pytest

from hub_app.domain.cloudevents import REASONS, Accept, Drop, Quarantine, Verdict, judge
from hub_app.domain.limits import HEADERS_BYTES_MAX, HEADERS_COUNT_MAX, PAYLOAD_BYTES_MAX

TOPIC = "lerian.streaming.lender"
BASE: dict[str, bytes] = {
    "ce-specversion": b"1.0",
    "ce-id": b"evt-1",
    "ce-source": b"lender",
    "ce-type": b"studio.lerian.lender.loan_application.approved",
    "ce-time": b"2026-01-02T03:04:05.678Z",
    "ce-schemaversion": b"1.0.0",
    "ce-resourcetype": b"loan_application",
    "ce-eventtype": b"approved",
    "ce-tenantid": b"acme",
    "ce-subject": b"loan-1",
    "ce-datacontenttype": b"application/json",
}
Pairs = list[tuple[str, bytes | None]]


def headers(changes: dict[str, bytes | None] | None = None, *more: tuple[str, bytes | None]) -> Pairs:
    """The base record with headers set, or (None) left out, and more appended."""
    merged: dict[str, bytes | None] = {**BASE, **(changes or {})}
    return [(name, data) for name, data in merged.items() if data is not None] + list(more)


def verdict(
    pairs: Pairs, *, topic: str = TOPIC, value: bytes | None = b"{}", default_tenant: str | None = None
) -> Verdict:
    return judge(topic, tuple(pairs), value, default_tenant=default_tenant)


def parts(resource: bytes, event: bytes) -> dict[str, bytes | None]:
    return {
        "ce-type": b"studio.lerian.lender." + resource + b"." + event,
        "ce-resourcetype": resource,
        "ce-eventtype": event,
    }


def source(name: bytes) -> dict[str, bytes | None]:
    return {"ce-source": name, "ce-type": b"studio.lerian." + name + b".loan_application.approved"}


def assert_quarantined(found: Verdict, reason: str) -> None:
    assert isinstance(found, Quarantine)
    assert found.reason == reason
    assert found.reason in REASONS
    assert len(found.detail.encode()) <= 512


def test_an_ordinary_record() -> None:
    found = verdict(headers())
    assert isinstance(found, Accept)
    assert (found.tenant, found.key, found.topic) == ("acme", b"acme", "lender")
    assert list(found.headers) == headers()


ACCEPTED: list[tuple[str, Pairs]] = [
    ("only the required", headers({"ce-subject": None, "ce-datacontenttype": None})),
    ("traces", headers(None, ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))),
    ("traces that make no sense", headers(None, ("traceparent", b"\xff"), ("tracestate", b""))),
    ("id of 256 bytes", headers({"ce-id": b"i" * 256})),
    ("id of 256 bytes in 128 characters", headers({"ce-id": "é".encode() * 128})),
    ("id that is opaque", headers({"ce-id": b"\x00\x1f \n\x7f"})),
    ("id of a blank", headers({"ce-id": b" "})),
    ("tenant of 256 bytes", headers({"ce-tenantid": b"t" * 256})),
    ("tenant with a blank behind", headers({"ce-tenantid": b"acme "})),
    ("tenant beyond ASCII", headers({"ce-tenantid": "ação".encode()})),
    ("tenant with a C1 control, which the rule does not name", headers({"ce-tenantid": "a\x85b".encode()})),
    ("subject of 1,024 bytes", headers({"ce-subject": b"s" * 1024})),
    ("subject beyond ASCII", headers({"ce-subject": "日本\u2028".encode()})),
    ("resource type of 128 bytes", headers(parts(b"r" * 128, b"e"))),
    ("event type of 128 bytes", headers(parts(b"r", b"e" * 128))),
    ("parts beyond ASCII", headers(parts("café".encode(), "criação".encode()))),
    ("schema version short", headers({"ce-schemaversion": b"1"})),
    ("schema version v", headers({"ce-schemaversion": b"v1"})),
    ("schema version v1.2", headers({"ce-schemaversion": b"v1.2"})),
    ("schema version full", headers({"ce-schemaversion": b"1.2.3-rc.1+build.5"})),
    ("schema version of 64 bytes", headers({"ce-schemaversion": b"1.0.0-" + b"a" * 58})),
    ("content type with parameters", headers({"ce-datacontenttype": b"application/json; charset=utf-8"})),
    ("content type with a suffix", headers({"ce-datacontenttype": b"application/vnd.a+json"})),
    ("content type of 256 bytes", headers({"ce-datacontenttype": b"a/" + b"b" * 254})),
    ("data schema of 2,048 bytes", headers({"ce-dataschema": b"https://x/" + b"s" * 2038})),
    ("not a system event: True", headers({"ce-systemevent": b"True"})),
    ("not a system event: 1", headers({"ce-systemevent": b"1"})),
    ("not a system event: true and a blank", headers({"ce-systemevent": b"true "})),
    ("not a system event: empty", headers({"ce-systemevent": b""})),
    ("not a system event: not UTF-8", headers({"ce-systemevent": b"\xff"})),
    ("time with an offset", headers({"ce-time": b"2026-01-02T03:04:05+02:00"})),
    ("time in nanoseconds", headers({"ce-time": b"2026-01-02T03:04:05.123456789Z"})),
    ("time in lower case", headers({"ce-time": b"2026-01-02t03:04:05z"})),
    ("time in a leap second", headers({"ce-time": b"2016-12-31T23:59:60Z"})),
    ("an extension", headers(None, ("ce-region", "são".encode()))),
    ("an empty extension", headers(None, ("ce-region", b""))),
    ("unknown headers, whatever they hold", headers(None, ("x", b"\xff\x00"), ("", b""), ("x", b"other"))),
    ("CE-ID in capitals beside ce-id", headers(None, ("CE-ID", b"another"))),
    ("a header of 64 KiB", headers(None, ("x", b"x" * 65_536))),
    ("1,000 more headers", headers(None, *[(f"x-{i}", b"v") for i in range(1_000)])),
    ("the same header 1,000 times", headers(None, *[("x", b"v")] * 1_000)),
    ("repeats with one value", headers(None, ("ce-id", b"evt-1"), ("ce-tenantid", b"acme"))),
    ("an extension repeated with one value", headers(None, ("ce-x", b"1"), ("ce-x", b"1"))),
]


@pytest.mark.parametrize("pairs", [pairs for _, pairs in ACCEPTED], ids=[name for name, _ in ACCEPTED])
def test_accepted(pairs: Pairs) -> None:
    found = verdict(pairs)
    assert isinstance(found, Accept), found
    assert found.key == dict(pairs)["ce-tenantid"]
    assert found.tenant.encode() == found.key


REFUSED: list[tuple[str, Pairs, str]] = [
    *[
        (f"no {name}", headers({name: None}), "no_tenant" if name == "ce-tenantid" else "missing_attribute")
        for name in list(BASE)[:9]
    ],
    *[(f"empty {name}", headers({name: b""}), "empty_attribute") for name in BASE],
    ("null id", [*headers()[:1], ("ce-id", None), *headers()[2:]], "empty_attribute"),
    ("no headers", [], "missing_attribute"),
    ("CE-ID in capitals alone", headers({"ce-id": None}, ("CE-ID", b"evt-1")), "missing_attribute"),
    ("specversion 0.3", headers({"ce-specversion": b"0.3"}), "wrong_specversion"),
    ("specversion 1.0 and a blank", headers({"ce-specversion": b"1.0 "}), "wrong_specversion"),
    ("id of 257 bytes", headers({"ce-id": b"i" * 257}), "attribute_too_long"),
    ("id of 258 bytes in 129 characters", headers({"ce-id": "é".encode() * 129}), "attribute_too_long"),
    ("id that is not UTF-8", headers({"ce-id": b"a\xff"}), "not_utf8"),
    ("id cut inside a character", headers({"ce-id": "é".encode()[:1]}), "not_utf8"),
    ("id with a surrogate", headers({"ce-id": b"\xed\xa0\x80"}), "not_utf8"),
    ("tenant of 257 bytes", headers({"ce-tenantid": b"t" * 257}), "attribute_too_long"),
    ("tenant with NUL", headers({"ce-tenantid": b"ac\x00me"}), "malformed_attribute"),
    ("tenant with the separator of keys", headers({"ce-tenantid": b"a\x1fb"}), "malformed_attribute"),
    ("tenant with DEL", headers({"ce-tenantid": b"a\x7f"}), "malformed_attribute"),
    ("tenant with a line end", headers({"ce-tenantid": b"acme\n"}), "malformed_attribute"),
    ("tenant that is not UTF-8", headers({"ce-tenantid": b"\xc3("}), "not_utf8"),
    ("subject of 1,025 bytes", headers({"ce-subject": b"s" * 1025}), "attribute_too_long"),
    ("subject with a tab", headers({"ce-subject": b"a\tb"}), "malformed_attribute"),
    ("subject that is not UTF-8", headers({"ce-subject": b"\x80"}), "not_utf8"),
    ("another source", headers(source(b"other")), "topic_mismatch"),
    ("source in capitals", headers(source(b"Lender")), "malformed_attribute"),
    ("source with a blank", headers(source(b"lender ")), "malformed_attribute"),
    ("source with a line end", headers(source(b"lender\n")), "malformed_attribute"),
    ("source of 224 bytes", headers(source(b"a" * 224)), "attribute_too_long"),
    ("type of another source", headers({"ce-type": b"studio.lerian.x.loan_application.approved"}), "type_mismatch"),
    ("type without prefix", headers({"ce-type": b"loan_application.approved"}), "type_mismatch"),
    ("type with more", headers({"ce-type": BASE["ce-type"] + b".v2"}), "type_mismatch"),
    ("type that says other parts", headers({"ce-eventtype": b"denied"}), "type_mismatch"),
    ("type far too long", headers({"ce-type": b"x" * 10_000}), "attribute_too_long"),
    ("resource type with a dot", headers(parts(b"a.b", b"c")), "malformed_attribute"),
    ("event type with a dot", headers(parts(b"a", b"b.c")), "malformed_attribute"),
    ("resource type of 129 bytes", headers(parts(b"r" * 129, b"e")), "attribute_too_long"),
    ("event type of 129 bytes", headers(parts(b"r", b"e" * 129)), "attribute_too_long"),
    ("schema version V1", headers({"ce-schemaversion": b"V1"}), "malformed_attribute"),
    ("schema version with leading zero", headers({"ce-schemaversion": b"01.0.0"}), "malformed_attribute"),
    ("schema version of four numbers", headers({"ce-schemaversion": b"1.2.3.4"}), "malformed_attribute"),
    ("schema version of a word", headers({"ce-schemaversion": b"latest"}), "malformed_attribute"),
    ("schema version with a line end", headers({"ce-schemaversion": b"1.0.0\n"}), "malformed_attribute"),
    ("schema version of 65 bytes", headers({"ce-schemaversion": b"1.0.0-" + b"a" * 59}), "attribute_too_long"),
    ("content type of a word", headers({"ce-datacontenttype": b"json"}), "malformed_attribute"),
    ("content type with a line end", headers({"ce-datacontenttype": b"a/b\r\nX: y"}), "malformed_attribute"),
    (
        "content type with a line end in a parameter",
        headers({"ce-datacontenttype": b"a/b;\r\n"}),
        "malformed_attribute",
    ),
    ("content type of 257 bytes", headers({"ce-datacontenttype": b"a/" + b"b" * 255}), "attribute_too_long"),
    ("data schema of 2,049 bytes", headers({"ce-dataschema": b"s" * 2049}), "attribute_too_long"),
    ("data schema that is not UTF-8", headers({"ce-dataschema": b"\xff"}), "not_utf8"),
    ("an extension that is not UTF-8", headers(None, ("ce-region", b"\xff")), "not_utf8"),
    ("an unknown header whose name is not UTF-8", headers(None, ("x-\udcff", b"1")), "not_utf8"),
    ("an extension whose name is not UTF-8", headers(None, ("ce-\udcc3", b"1")), "not_utf8"),
    ("time without offset", headers({"ce-time": b"2026-01-02T03:04:05"}), "malformed_attribute"),
    ("time on no day", headers({"ce-time": b"2026-02-30T03:04:05Z"}), "malformed_attribute"),
    ("time in a leap second that cannot be", headers({"ce-time": b"2026-01-02T03:04:60Z"}), "malformed_attribute"),
    ("time in ten digits", headers({"ce-time": b"2026-01-02T03:04:05.1234567890Z"}), "malformed_attribute"),
    ("time far too long", headers({"ce-time": b"2" * 65_536}), "attribute_too_long"),
    ("two ids", headers(None, ("ce-id", b"evt-2")), "conflicting_headers"),
    ("two ids, one null", headers(None, ("ce-id", None)), "conflicting_headers"),
    ("two tenants", headers(None, ("ce-tenantid", b"acme ")), "conflicting_headers"),
    ("two values of an extension", headers(None, ("ce-x", b"1"), ("ce-x", b"2")), "conflicting_headers"),
    ("two spellings that differ", headers(None, ("ce_id", b"evt-2")), "conflicting_headers"),
    ("two content types", headers(None, ("content-type", b"text/plain")), "conflicting_headers"),
    ("too many headers", headers(None, *[("x", b"")] * HEADERS_COUNT_MAX), "headers_too_large"),
    ("headers too large", headers(None, ("x", b"x" * HEADERS_BYTES_MAX)), "headers_too_large"),
]


@pytest.mark.parametrize(("pairs", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_quarantined(pairs: Pairs, reason: str) -> None:
    assert_quarantined(verdict(pairs), reason)
    # One tenant changes nothing but that records may leave it out.
    alone = verdict(pairs, default_tenant="default")
    if reason == "no_tenant":
        assert isinstance(alone, Accept)
        assert (alone.tenant, alone.key) == ("default", b"default")
    else:
        assert_quarantined(alone, reason)


def test_with_one_tenant_a_record_s_own_tenant_still_counts() -> None:
    found = verdict(headers(), default_tenant="default")
    assert isinstance(found, Accept)
    assert found.tenant == "acme"


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("lerian.streaming.br_consignado_gw", b"br_consignado_gw"),
        ("lerian.streaming.br-consignado-gw", b"br-consignado-gw"),
        ("lerian.streaming.0lender", b"0lender"),
        ("lerian.streaming." + "a" * 223, b"a" * 223),
        ("lerian.streaming.dlq", b"dlq"),
    ],
)
def test_sources(topic: str, name: bytes) -> None:
    found = verdict(headers(source(name)), topic=topic)
    assert isinstance(found, Accept)
    assert found.topic == name.decode()


@pytest.mark.parametrize(
    "topic", ["lerian.streaming.lender.commands", "lerian.streaming.lender.dlq", "lender", "", "x.lender"]
)
def test_topics_that_carry_no_facts(topic: str) -> None:
    assert_quarantined(verdict(headers(), topic=topic), "topic_mismatch")


def test_sources_that_look_alike_are_not_mixed() -> None:
    assert_quarantined(verdict(headers(source(b"br_x")), topic="lerian.streaming.br-x"), "topic_mismatch")


@pytest.mark.parametrize(
    "changes",
    [
        {"ce-tenantid": None},
        {},
        # A system event has no tenant by definition, so what stands there is not looked at.
        {"ce-tenantid": b""},
        {"ce-tenantid": b"\xff"},
    ],
)
def test_system_events_are_dropped(changes: dict[str, bytes | None]) -> None:
    assert verdict(headers({"ce-systemevent": b"true", **changes})) == Drop("system_event")
    assert verdict(headers({"ce-systemevent": b"true", **changes}), default_tenant="d") == Drop("system_event")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ce-id": None}, "missing_attribute"),
        ({"ce-subject": b"\n"}, "malformed_attribute"),
        ({"ce-type": b"x"}, "type_mismatch"),
    ],
)
def test_a_system_event_s_context_must_be_well_formed_first(changes: dict[str, bytes | None], reason: str) -> None:
    assert_quarantined(verdict(headers({"ce-systemevent": b"true", **changes})), reason)


def test_a_system_event_said_twice_with_other_words_is_a_conflict() -> None:
    pairs = headers({"ce-systemevent": b"true"}, ("ce-systemevent", b"false"))
    assert_quarantined(verdict(pairs), "conflicting_headers")


def test_payloads_are_not_looked_into() -> None:
    for value in (None, b"", b"\xff\x00", b"{", b"x" * PAYLOAD_BYTES_MAX):
        assert isinstance(verdict(headers(), value=value), Accept)
    assert_quarantined(verdict(headers(), value=b"x" * (PAYLOAD_BYTES_MAX + 1)), "payload_too_large")


def test_headers_up_to_the_byte() -> None:
    size = sum(len(name) + len(data or b"") for name, data in headers())
    room = HEADERS_BYTES_MAX - size - 1
    assert isinstance(verdict(headers(None, ("x", b"x" * room))), Accept)
    assert_quarantined(verdict(headers(None, ("x", b"x" * (room + 1)))), "headers_too_large")


def test_the_binding_s_own_spelling() -> None:
    names = {"ce-datacontenttype": "content-type"}
    pairs: Pairs = [(names.get(name, name.replace("ce-", "ce_")), data) for name, data in headers()]
    found = verdict(pairs)
    assert isinstance(found, Accept)
    assert list(found.headers) == headers()  # written back in ours


def test_both_spellings_with_one_value() -> None:
    found = verdict([("ce_id", b"evt-1"), *headers(None, ("content-type", b"application/json"))])
    assert isinstance(found, Accept)
    assert list(found.headers) == [("ce-id", b"evt-1"), *headers({"ce-id": None})]


def test_canonical_headers() -> None:
    """The hub's own names are taken from nobody, nulls become empty, repeats of attributes go, the rest stays."""
    found = verdict(
        [
            ("hub-tenant", b"other"),
            *headers(None, ("ce-id", b"evt-1"), ("x", None), ("x", b"1"), ("x", b"1"), ("hub-x", b""), ("Hub-X", b"2")),
        ]
    )
    assert isinstance(found, Accept)
    assert list(found.headers) == headers(None, ("x", b""), ("x", b"1"), ("x", b"1"), ("Hub-X", b"2"))


def test_tenants_are_compared_byte_for_byte() -> None:
    composed, decomposed = "caf\u00e9".encode(), "cafe\u0301".encode()
    keys = [b"acme", b"acme ", b" acme", b"Acme", composed, decomposed]
    found = [verdict(headers({"ce-tenantid": key})) for key in keys]
    assert [accept.key for accept in found if isinstance(accept, Accept)] == keys
    assert len({accept.tenant for accept in found if isinstance(accept, Accept)}) == len(keys)


def test_details_name_the_attribute_and_stay_short_and_printable() -> None:
    found = verdict(headers({"ce-subject": b"\x1b[31m" + b"s" * 1000}))
    assert isinstance(found, Quarantine)
    assert found.detail.startswith("ce-subject: ")
    assert found.detail.isascii()
    assert found.detail.isprintable()
    assert len(found.detail) < 160
