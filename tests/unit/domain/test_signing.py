"""Signatures and request heads: a public library verifies them, and nothing from outside can end a line."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from hub_app.domain.signing import Signer, WebhookHead, secret_key, secret_text, static_header_problem

SECRET = secret_text(b"0123456789abcdef0123456789abcdef")
OTHER = secret_text(b"fedcba9876543210fedcba9876543210")
AT = 1_767_323_045
EVENT = "evt_" + "ab" * 16
BODY = b'{"a": 1.0,  "a": 1}'
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS: tuple[tuple[str, bytes], ...] = (
    ("ce-specversion", b"1.0"),
    ("ce-id", b"evt-1"),
    ("ce-source", b"lender"),
    ("ce-type", b"studio.lerian.lender.loan_application.approved"),
    ("ce-resourcetype", b"loan_application"),
    ("ce-eventtype", b"approved"),
    ("ce-datacontenttype", b"application/json"),
    ("ce-tenantid", b"acme"),
)


def build(
    *more: tuple[str, bytes],
    secrets: tuple[str, ...] = (SECRET,),
    static: tuple[tuple[str, str], ...] = (),
    event_type: str = "loan_application.approved",
    body: bytes = BODY,
    timestamp_s: int = AT,
) -> bytes:
    head = WebhookHead(signer=Signer(secrets), user_agent="streaming-hub/0.1.0", static_headers=static)
    return head.build(
        headers=(*HEADERS, *more),
        event_type=event_type,
        delivery_id=bytes(range(16)),
        attempt=3,
        event_id=EVENT,
        timestamp_s=timestamp_s,
        body=body,
    )


def parsed(head: bytes) -> dict[str, str]:
    """Strictly: each line a name once and a printable value."""
    assert head.endswith(b"\r\n")
    found: dict[str, str] = {}
    for line in head[:-2].split(b"\r\n"):
        match = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\x20-\x7e]*)", line)
        assert match, line
        name = match[1].decode().lower()
        assert name not in found
        found[name] = match[2].decode()
    return found


def test_the_whole_head() -> None:
    found = parsed(build(("traceparent", TRACE), ("tracestate", b"a=1"), static=(("X-Env", "prod"),)))
    signature = found.pop("webhook-signature")
    assert re.fullmatch(r"v1,[A-Za-z0-9+/]{43}=", signature)
    assert found == {
        "user-agent": "streaming-hub/0.1.0",
        "x-env": "prod",
        "ce-specversion": "1.0",
        "ce-id": "evt-1",
        "ce-source": "lender",
        "ce-type": "studio.lerian.lender.loan_application.approved",
        "ce-resourcetype": "loan_application",
        "ce-eventtype": "approved",
        "ce-tenantid": "acme",
        "x-lerian-event-type": "loan_application.approved",
        "content-type": "application/json",
        "x-lerian-delivery-id": "000102030405060708090a0b0c0d0e0f",
        "x-lerian-attempt": "3",
        "traceparent": TRACE.decode(),
        "tracestate": "a=1",
        "webhook-id": EVENT,
        "webhook-timestamp": str(AT),
    }


def test_a_known_signature() -> None:
    """The example of the Standard Webhooks specification."""
    signer = Signer(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
    head = signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert head == (
        b"webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\nwebhook-timestamp: 1614265330\r\n"
        b"webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\r\n"
    )


# -- the public library ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "body", [BODY, b'{"name": "\xc3\xa7"}', b"[" + b"1," * 500_000 + b"1]"], ids=["odd", "utf8", "1MB"]
)
def test_a_public_library_verifies_it(body: bytes) -> None:
    head = parsed(build(body=body, timestamp_s=int(time.time())))
    assert Webhook(SECRET).verify(body, head) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body + b" ", head)


@pytest.mark.parametrize("body", [b"", b"no json"])
def test_a_public_library_signs_the_same(body: bytes) -> None:
    """Its `verify` parses what it verified, so bodies that are no JSON are compared by its `sign`."""
    signed = Webhook(SECRET).sign(EVENT, datetime.fromtimestamp(AT, UTC), body.decode())
    assert parsed(build(body=body))["webhook-signature"] == signed


def test_during_a_rotation_both_secrets_verify() -> None:
    head = parsed(build(secrets=(SECRET, OTHER), timestamp_s=int(time.time())))
    assert head["webhook-signature"].count(" ") == 1
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(BODY, head)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_text(b"x" * 24)).verify(BODY, head)
    only_new = parsed(build(secrets=(SECRET,), timestamp_s=int(time.time())))
    assert head["webhook-signature"].split(" ")[0] == only_new["webhook-signature"]


def test_one_signer_signs_many() -> None:
    """Copies of the prepared key schedule do not see each other's texts."""
    signer = Signer([SECRET])
    first = signer.headers(EVENT, AT, BODY)
    signer.headers(EVENT, AT + 1, b"other")
    assert signer.headers(EVENT, AT, BODY) == first


# -- secrets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [24, 32, 64])
def test_secret_round_trip(size: int) -> None:
    key = os.urandom(size)
    assert secret_key(secret_text(key)) == key


@pytest.mark.parametrize("size", [0, 23, 65])
def test_keys_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="24 to 64"):
        secret_text(b"k" * size)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "whsec_c2hvcnQ=", SECRET.removeprefix("whsec_"), SECRET + "!", SECRET[:-2], "whsec_" + "é" * 40],
)
def test_malformed_secrets_are_refused_and_not_told(secret: str) -> None:
    with pytest.raises(ValueError, match="signing secret") as caught:
        Signer([secret])
    told = secret.removeprefix("whsec_")
    assert not told or told not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_signer_needs_a_secret_and_does_not_show_it() -> None:
    with pytest.raises(ValueError, match="needs a secret"):
        Signer([])
    assert "MDEy" not in repr(Signer([SECRET])) and "whsec" not in repr(Signer([SECRET]))


@pytest.mark.parametrize("event_id", ["", "a.b", "a b", "a\r\nX: 1", "é", "a\n"])
def test_event_ids_that_could_not_be_signed(event_id: str) -> None:
    with pytest.raises(ValueError, match="event id"):
        Signer([SECRET]).headers(event_id, AT, BODY)


# -- CloudEvents, HTTP binding -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (b"plain-~!#$&'()*+,/:;=?@[]", "plain-~!#$&'()*+,/:;=?@[]"),
        (b"a b", "a%20b"),
        (b'"', "%22"),
        (b"100%", "100%25"),
        ("Euro € 😀".encode(), "Euro%20%E2%82%AC%20%F0%9F%98%80"),  # the binding's own example
        (b"a\r\nX-Evil: 1", "a%0D%0AX-Evil:%201"),
        (b"\x00\x7f\xff", "%00%7F%FF"),
        (b"", ""),
    ],
)
def test_values_are_percent_encoded(value: bytes, encoded: str) -> None:
    found = parsed(build(("ce-subject", value)))
    assert found["ce-subject"] == encoded
    assert found["ce-id"] == "evt-1"


def test_the_event_type_is_encoded_too() -> None:
    found = parsed(build(event_type='lo an."é\r\nX: 1'))
    assert found["x-lerian-event-type"] == "lo%20an.%22%C3%A9%0D%0AX:%201"


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (b"text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        (b'multipart/x; boundary="a b"', 'multipart/x; boundary="a b"'),
        (b" application/xml ", "application/xml"),
        (b"", "application/json"),
        (b"   ", "application/json"),
        (b"a/b\r\nX-Evil: 1", "a/b%0D%0AX-Evil: 1"),
        ("a/é".encode(), "a/%C3%A9"),
    ],
)
def test_content_type(value: bytes, sent: str) -> None:
    found = parsed(build(("ce-datacontenttype", value)))
    assert found["content-type"] == sent
    assert "ce-datacontenttype" not in found  # the binding: it must not be there as well


def test_content_type_defaults_to_json() -> None:
    head = WebhookHead(signer=Signer([SECRET]), user_agent="x").build(
        headers=(), event_type="a.b", delivery_id=b"", attempt=1, event_id=EVENT, timestamp_s=AT, body=b""
    )
    assert parsed(head)["content-type"] == "application/json"


@pytest.mark.parametrize(
    "name", ["hub-tenant", "x-other", "ce-", "ce-a b", "ce-a\r\nX", "ce-a:", "ce-é", "Content-Length", "host"]
)
def test_other_headers_stay_here(name: str) -> None:
    assert build((name, b"1")) == build()


def test_names_of_any_length_are_handled() -> None:
    assert parsed(build(("ce-" + "x" * 500, b"1")))["ce-" + "x" * 500] == "1"
    assert build(("ce-" + " " * 500, b"1")) == build()


@pytest.mark.parametrize(
    ("trace", "state", "sent"),
    [
        (TRACE, b"a=1,b=2", {"traceparent", "tracestate"}),
        (TRACE, b"", {"traceparent"}),
        (TRACE, b"a=1\r\nX: 1", {"traceparent"}),
        (TRACE, b"x" * 513, {"traceparent"}),
        (b"", b"a=1", set()),
        (TRACE + b"\n", b"a=1", set()),
        (TRACE.upper(), b"a=1", set()),
        (b"ff" + TRACE[2:], b"", set()),
        (TRACE[:3] + b"0" * 32 + TRACE[35:], b"", set()),
        (TRACE[:36] + b"0" * 16 + TRACE[52:], b"", set()),
    ],
)
def test_traces_go_out_only_if_well_formed(trace: bytes, state: bytes, sent: set[str]) -> None:
    found = parsed(build(("traceparent", trace), ("tracestate", state)))
    assert {"traceparent", "tracestate"} & set(found) == sent


def test_a_repeated_header_goes_out_once() -> None:
    assert parsed(build(("ce-id", b"evt-1")))["ce-id"] == "evt-1"


names = st.one_of(st.text(max_size=80), st.builds("ce-{}".format, st.text(max_size=80)))


@given(st.lists(st.tuples(names, st.binary(max_size=60)), max_size=12), st.text(max_size=60))
def test_nothing_from_outside_can_end_a_line(more: list[tuple[str, bytes]], event_type: str) -> None:
    more = [(name, value) for name, value in more if name.lower() not in {n for n, _ in HEADERS}]
    distinct = {name.lower(): (name, value) for name, value in more}
    head = build(*distinct.values(), event_type=event_type.encode("utf-8", "replace").decode())
    allowed = {"user-agent", "content-type", "traceparent", "tracestate"}
    for name in parsed(head):
        assert name in allowed or name.startswith(("ce-", "x-lerian-", "webhook-"))


# -- static headers ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    [
        *("Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authorization"),
        *("Proxy-Connection", "Host", "HOST", "Content-Type", "content-length", "Content-Encoding", "Expect"),
        *("ce-id", "CE-Anything", "Webhook-Id", "webhook-signature", "X-Lerian-Attempt", "User-Agent", "traceparent"),
        *("", "a b", "a:b", "a\r\nb", "é", "x" * 129),
    ],
)
def test_refused_static_headers(name: str) -> None:
    assert static_header_problem(name, "v") is not None
    with pytest.raises(ValueError, match="static header"):
        WebhookHead(signer=Signer([SECRET]), user_agent="x", static_headers=((name, "v"),))


@pytest.mark.parametrize("name", ["X-Env", "Authorization", "hosts", "cex", "webhook", "contents", "x" * 128])
def test_allowed_static_headers(name: str) -> None:
    assert static_header_problem(name, "v") is None


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\n", " a", "a ", "\t", "é", "\x00", "\x7f", "x" * 2_049])
def test_refused_values(value: str) -> None:
    assert static_header_problem("X-Env", value) is not None


@pytest.mark.parametrize("value", ["", "a", "Bearer abc.def==", "a  b", "x" * 2_048])
def test_allowed_values(value: str) -> None:
    assert static_header_problem("X-Env", value) is None


@pytest.mark.parametrize("user_agent", ["", "a\r\nb", "é"])
def test_user_agents_that_cannot_stand_in_a_head(user_agent: str) -> None:
    with pytest.raises(ValueError, match="user agent"):
        WebhookHead(signer=Signer([SECRET]), user_agent=user_agent)
