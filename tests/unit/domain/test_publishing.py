"""Events published over HTTP: what is taken, byte for byte, and what is refused, whole."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from hub_app.domain.publishing import Published, Unfit, binary, structured

EVENT = {"specversion": "1.0", "id": "1", "source": "/x", "type": "t"}


def one(**more: Any) -> Published | Unfit:
    return text(json.dumps(EVENT | more))


def text(body: str | bytes) -> Published | Unfit:
    found = structured(body.encode() if isinstance(body, str) else body, "acme")
    return found if isinstance(found, Unfit) else found[0]


def published(found: Published | Unfit) -> tuple[dict[str, str], bytes]:
    assert isinstance(found, Published), found
    return {name: value.decode() for name, value in found.headers}, found.value


def test_attributes_become_headers_and_null_is_absent() -> None:
    headers, value = published(
        one(subject=None, time="2026-01-02T03:04:05.123456+02:00", data=None, dataschema=None, extra="é", n=5, yes=True)
    )
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": "/x",
        "ce-type": "t",
        "ce-time": "2026-01-02T03:04:05.123456+02:00",
        "ce-extra": "é",
        "ce-n": "5",
        "ce-yes": "true",
    }
    assert value == b""


def test_trace_headers_keep_their_names() -> None:
    headers, _ = published(one(traceparent="00-a-b-01", tenantid="acme"))
    assert (headers["traceparent"], headers["ce-tenantid"]) == ("00-a-b-01", "acme")


@pytest.mark.parametrize(
    "raw",
    ['{"a": 1.0, "a":2 }', "1", '"x\\u00e9"', "123456789012345678901234567890", "1e400", "[ ]", "false", '"\\ud800"'],
)
def test_data_is_kept_byte_for_byte(raw: str) -> None:
    body = '{"specversion":"1.0","id":"1", "data" : ' + raw + ' ,"source":"/x","type":"t"}'
    assert published(text(body))[1] == raw.encode()
    assert published(text(f" [ {body} ]\n"))[1] == raw.encode()


def test_text_that_is_not_json_is_its_own_payload() -> None:
    assert published(one(data='a "b"', datacontenttype="text/plain"))[1] == b'a "b"'
    assert published(one(data={"a": 1}, datacontenttype="text/plain"))[1] == b'{"a": 1}'
    assert published(one(data="x", datacontenttype="application/vnd.x+json; charset=utf-8"))[1] == b'"x"'


def test_base64() -> None:
    assert published(one(data_base64=base64.b64encode(bytes(range(256))).decode()))[1] == bytes(range(256))
    assert published(one(data_base64="", data=None))[1] == b""
    assert published(one(data_base64=None, data=1))[1] == b"1"


@pytest.mark.parametrize(
    "more",
    [
        *[{name: None} for name in ("specversion", "id", "source", "type")],
        *[{name: ""} for name in ("id", "source", "type", "subject", "time", "datacontenttype", "dataschema")],
        *[{name: 5} for name in ("id", "source", "type", "subject", "time")],
        {"specversion": "0.3"},
        {"id": "x" * 257},
        {"source": "a\x1fb"},
        {"source": "x" * 1025},
        {"type": "x" * 513},
        {"id": "\ud800"},
        {"time": "yesterday"},
        {"time": "2026-02-30T00:00:00Z"},
        {"datacontenttype": "json"},
        {"data": 1, "data_base64": "MQ=="},
        *[{"data_base64": v} for v in ("MQ", "M===", "-_-_", "M Q=", 5, [], "é")],
        *[{name: "x"} for name in ("Upper", "a-b", "a_b", "x" * 21, "12345", "", "é")],
        *[{"ext": v} for v in (1.5, [], {}, 1 << 31, 12345678901234567890123, "a\x00b", "\udfff")],
        {"tenantid": "other"},
    ],
)
def test_refused(more: dict[str, Any]) -> None:
    found = one(**more)
    assert isinstance(found, Unfit) and not found.too_large
    batch = structured(json.dumps([EVENT, EVENT | more]).encode(), "acme")
    assert isinstance(batch, Unfit) and batch.detail.startswith("event 1: ")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"[1]",
        b"[[{}]]",
        b"{",
        b"[{]",
        b"{}x",
        b"[{},]",
        b'{"id"}',
        b'{"id":}',
        b'{"id" "x"}',
        b'{"id":"x",}',
        b"{'id':1}",
        b'{"id":"1","id":"1"}',
        b'{"data":NaN}',
        b'{"data":[Infinity]}',
        b'{"data":"\x01"}',
        b"\xef\xbb\xbf{}",
        b"\xff{}",
        b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"data":"x',
        json.dumps([EVENT] * 1001).encode(),
    ],
)
def test_no_events(body: bytes) -> None:
    assert isinstance(structured(body, "acme"), Unfit)


def test_a_full_batch() -> None:
    found = structured(json.dumps([EVENT | {"id": str(i)} for i in range(1000)]).encode(), "acme")
    assert not isinstance(found, Unfit) and len(found) == 1000


def test_too_large() -> None:
    fits, over = "x" * ((1 << 20) - 2), "x" * ((1 << 20) - 1)
    assert isinstance(one(data=fits), Published)
    found = one(data=over)
    assert isinstance(found, Unfit) and found.too_large
    found = one(**{f"e{i}": "x" * 3000 for i in range(100)})
    assert isinstance(found, Unfit) and found.too_large


HEADERS = [("ce-specversion", "1.0"), ("CE-ID", "1"), ("ce-source", "/x"), ("ce-type", "t")]


def test_binary_mode() -> None:
    more = [("ce-subject", "a%20b%C3%A9"), ("ce-extra", "plain"), ("traceparent", "00-a"), ("Accept", "x")]
    headers, value = published(binary([*HEADERS, *more], "text/plain", b"\xff\x00", "acme"))
    assert value == b"\xff\x00"
    assert headers["ce-subject"] == "a bé"
    assert (headers["ce-extra"], headers["traceparent"], headers["ce-datacontenttype"]) == (
        "plain",
        "00-a",
        "text/plain",
    )
    assert set(headers) == {
        *(f"ce-{name}" for name in ("specversion", "id", "source", "type", "subject", "extra", "datacontenttype")),
        "traceparent",
    }


@pytest.mark.parametrize(
    "headers",
    [
        HEADERS[1:],
        [*HEADERS, ("ce-id", "2")],
        [*HEADERS, ("ce-datacontenttype", "x/y")],
        [*HEADERS, ("ce-subject", "%FF")],
        [*HEADERS, ("ce-data", "x")],
        [*HEADERS, ("ce-b_c", "x")],
        [*HEADERS, ("ce-subject", "a%00b")],
        [*HEADERS, ("ce-subject", "\udcff")],
    ],
)
def test_refused_in_binary_mode(headers: list[tuple[str, str]]) -> None:
    assert isinstance(binary(headers, None, b"", "acme"), Unfit)
