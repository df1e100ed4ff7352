"""Spellings of URLs and addresses (docs/delivery.md, "Addresses")."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.egress import (
    EgressPolicy,
    SinkUrl,
    UrlProblem,
    address_problem,
    check_addresses,
    check_url,
    normalise_url,
    parse_cidrs,
)

STRICT = EgressPolicy()
PRIVATE = EgressPolicy(allow_private=True)

# Refused whatever is allowed: the part at fault, and the spelling.
NEVER = [
    ("scheme", ""),
    ("scheme", "crm.example.com"),
    ("scheme", "//crm.example.com/"),
    ("scheme", "https:/crm.example.com/"),
    ("scheme", "https:crm.example.com"),
    ("scheme", "ftp://crm.example.com/"),
    ("scheme", "file:///etc/passwd"),
    ("scheme", "gopher://crm.example.com/"),
    ("scheme", "javascript://crm.example.com/%0aalert(1)"),
    ("url", " https://crm.example.com/"),
    ("url", "https://crm.example.com/ "),
    ("url", "https://crm.example.com/a b"),
    ("url", "https://crm.example.com/\r\nX-Evil: 1"),
    ("url", "https://crm.example\n.com/"),
    ("url", "https://crm.example.com/\x00"),
    ("url", "https://crm.example.com\t/"),
    ("url", "https://crm.example.com\\@169.254.169.254/"),
    ("url", "https:\\\\crm.example.com/"),
    ("url", "https://crm.example.com/é"),
    ("url", "https://bücher.example/"),
    ("url", "https://127\u30020\u30020\u30021/"),
    ("url", "https://127\uff0e0\uff0e0\uff0e1/"),
    ("url", "https://127\uff610\uff610\uff611/"),
    ("url", "https://localhost\u3002/"),
    ("url", "https://\uff11\uff12\uff17.0.0.1/"),
    ("url", "https://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/"),
    ("url", "https://\uff45xample.com/"),
    ("url", "https://crm.example.com/" + "a" * 2025),
    ("url", "https://" + "a" * 8992),
    ("url", "https://crm.example.com/<x>"),
    ("url", 'https://crm.example.com/"'),
    ("userinfo", "https://user:pw@crm.example.com/"),
    ("userinfo", "https://user@crm.example.com/"),
    ("userinfo", "https://@crm.example.com/"),
    ("userinfo", "https://crm.example.com@169.254.169.254/"),
    ("userinfo", "https://crm.example.com:443@169.254.169.254/"),
    ("userinfo", "https://a@b@crm.example.com/"),
    ("host", "https://"),
    ("host", "https:///in"),
    ("host", "https://:443/"),
    ("host", "https://?x=1"),
    ("host", "https://#x"),
    ("host", "https://./"),
    ("host", "https://../"),
    ("host", "https://.crm.example.com/"),
    ("host", "https://crm..example.com/"),
    ("host", "https://crm.example.com../"),
    ("host", "https://-crm.example.com/"),
    ("host", "https://crm-.example.com/"),
    ("host", "https://crm.exam!ple.com/"),
    ("host", "https://crm.example.com%2f/"),
    ("host", "https://%6c%6f%63alhost/"),
    ("host", "https://127.0.0.1%00.example.com/"),
    ("host", "https://" + "a" * 64 + ".example.com/"),
    ("host", "https://" + "a." * 126 + "example/"),
    ("host", "https://127.1/"),
    ("host", "https://127.0.1/"),
    ("host", "https://127.0.0.1./"),
    ("host", "https://1/"),
    ("host", "https://0/"),
    ("host", "https://0x7f000001/"),
    ("host", "https://0X7F000001/"),
    ("host", "https://0x7f.0.0.1/"),
    ("host", "https://0x7f.1/"),
    ("host", "https://127.0.0.0x1/"),
    ("host", "https://0x/"),
    ("host", "https://2130706433/"),
    ("host", "https://8.8.8.08/"),
    ("host", "https://134744072/"),
    ("host", "https://017700000001/"),
    ("host", "https://0177.0.0.1/"),
    ("host", "https://127.0.0.01/"),
    ("host", "https://127.0.0.256/"),
    ("host", "https://127.0.0.1.1/"),
    ("host", "https://1.2.3.4.5/"),
    ("host", "https://4294967296/"),
    ("host", "https://00000000000000000000008.8.8.8/"),
    ("host", "https://crm.example.123/"),
    ("host", "https://[::1/"),
    ("host", "https://[]/"),
    ("host", "https://[localhost]/"),
    ("host", "https://[127.0.0.1]/"),
    ("host", "https://[fe80::1%25eth0]/"),
    ("host", "https://[fe80::1%eth0]/"),
    ("host", "https://[v1.x]/"),
    ("host", "https://[2606:4700::1111::]/"),
    ("port", "https://2606:4700::1111/"),
    ("port", "https://crm.example.com:/"),
    ("port", "https://crm.example.com:0/"),
    ("port", "https://crm.example.com:00443/"),
    ("port", "https://crm.example.com:65536/"),
    ("port", "https://crm.example.com:70000/"),
    ("port", "https://crm.example.com:-1/"),
    ("port", "https://crm.example.com:+443/"),
    ("port", "https://crm.example.com:4.4/"),
    ("port", "https://crm.example.com:https/"),
    ("port", "https://crm.example.com:443:443/"),
    ("port", "https://[2606:4700::1111]443/"),
    ("port", "https://[2606:4700::1111]x/"),
    ("path", "https://crm.example.com/%"),
    ("path", "https://crm.example.com/%zz"),
    ("path", "https://crm.example.com/a?x=%2"),
    ("path", "https://crm.example.com/a[0]"),
]

# Refused unless private sinks are allowed.
INSIDE = [
    ("scheme", "http://crm.example.com/"),
    ("host", "https://localhost/"),
    ("host", "https://LOCALHOST/"),
    ("host", "https://localhost./"),
    ("host", "https://a.localhost/"),
    ("host", "https://localhost.localdomain/"),
    ("host", "https://ip6-localhost/"),
    ("host", "https://printer.local/"),
    ("host", "https://printer.local./"),
    ("host", "https://x.internal/"),
    ("host", "https://X.INTERNAL/"),
    ("host", "https://internal/"),
    ("host", "https://svc.ns.svc.cluster.local/"),
    ("host", "https://metadata.google.internal/"),
    ("host", "https://metadata.google.internal./"),
    ("host", "https://metadata/"),
    ("host", "https://metadata.goog/"),
    ("host", "https://instance-data/"),
    ("host", "https://instance-data.ec2.internal/"),
    ("host", "https://127.0.0.1/"),
    ("host", "https://127.255.255.254/"),
    ("host", "https://0.0.0.0/"),
    ("host", "https://10.0.0.1/"),
    ("host", "https://100.64.0.1/"),
    ("host", "https://169.254.169.254/"),
    ("host", "https://172.16.0.1/"),
    ("host", "https://192.168.1.1:8443/"),
    ("host", "https://255.255.255.255/"),
    ("host", "https://[::]/"),
    ("host", "https://[::1]/"),
    ("host", "https://[0:0:0:0:0:0:0:1]/"),
    ("host", "https://[::ffff:127.0.0.1]/"),
    ("host", "https://[::FFFF:7f00:1]/"),
    ("host", "https://[::127.0.0.1]/"),
    ("host", "https://[64:ff9b::127.0.0.1]/"),
    ("host", "https://[2002:7f00:1::]/"),
    ("host", "https://[fe80::1]/"),
    ("host", "https://[fd00:ec2::254]/"),
]

ACCEPTED = [
    ("https://crm.example.com", SinkUrl("https", "crm.example.com", 443, "/"), "https://crm.example.com/"),
    ("https://crm.example.com/in", SinkUrl("https", "crm.example.com", 443, "/in"), "https://crm.example.com/in"),
    ("HTTPS://CRM.Example.COM/In", SinkUrl("https", "crm.example.com", 443, "/In"), "https://crm.example.com/In"),
    ("https://crm.example.com:443/in", SinkUrl("https", "crm.example.com", 443, "/in"), "https://crm.example.com/in"),
    ("https://crm.example.com:8443", SinkUrl("https", "crm.example.com", 8443, "/"), "https://crm.example.com:8443/"),
    ("https://crm.example.com:80/", SinkUrl("https", "crm.example.com", 80, "/"), "https://crm.example.com:80/"),
    (
        "https://crm.example.com:65535/",
        SinkUrl("https", "crm.example.com", 65535, "/"),
        "https://crm.example.com:65535/",
    ),
    ("https://crm.example.com./in", SinkUrl("https", "crm.example.com", 443, "/in"), "https://crm.example.com/in"),
    ("https://crm.example.com?x=1", SinkUrl("https", "crm.example.com", 443, "/?x=1"), "https://crm.example.com/?x=1"),
    ("https://crm.example.com/a#b?c@d", SinkUrl("https", "crm.example.com", 443, "/a"), "https://crm.example.com/a"),
    ("https://crm.example.com#@x", SinkUrl("https", "crm.example.com", 443, "/"), "https://crm.example.com/"),
    (
        "https://crm.example.com/a@b:c",
        SinkUrl("https", "crm.example.com", 443, "/a@b:c"),
        "https://crm.example.com/a@b:c",
    ),
    (
        "https://crm.example.com//a/../b/./%2F%2f?q=%20&r=/?",
        SinkUrl("https", "crm.example.com", 443, "//a/../b/./%2F%2f?q=%20&r=/?"),
        "https://crm.example.com//a/../b/./%2F%2f?q=%20&r=/?",
    ),
    (
        "https://xn--bcher-kva.example/",
        SinkUrl("https", "xn--bcher-kva.example", 443, "/"),
        "https://xn--bcher-kva.example/",
    ),
    ("https://my_sink.example/", SinkUrl("https", "my_sink.example", 443, "/"), "https://my_sink.example/"),
    ("https://sink1/", SinkUrl("https", "sink1", 443, "/"), "https://sink1/"),
    ("https://1password.example/", SinkUrl("https", "1password.example", 443, "/"), "https://1password.example/"),
    ("https://0x7f.example/", SinkUrl("https", "0x7f.example", 443, "/"), "https://0x7f.example/"),
    ("https://local.example/", SinkUrl("https", "local.example", 443, "/"), "https://local.example/"),
    ("https://notlocalhost/", SinkUrl("https", "notlocalhost", 443, "/"), "https://notlocalhost/"),
    ("https://8.8.8.8/", SinkUrl("https", "8.8.8.8", 443, "/"), "https://8.8.8.8/"),
    ("https://[2606:4700::1111]/", SinkUrl("https", "2606:4700::1111", 443, "/"), "https://[2606:4700::1111]/"),
    (
        "https://[2606:4700:0:0:0:0:0:1111]:8443/x",
        SinkUrl("https", "2606:4700::1111", 8443, "/x"),
        "https://[2606:4700::1111]:8443/x",
    ),
    ("https://crm.example.com/" + "a" * 2024, SinkUrl("https", "crm.example.com", 443, "/" + "a" * 2024), None),
]


@pytest.mark.parametrize(("field", "text"), NEVER)
@pytest.mark.parametrize("allow_private", [False, True])
def test_refused_whatever_is_allowed(field: str, text: str, allow_private: bool) -> None:
    networks = parse_cidrs(["0.0.0.0/0", "::/0"])
    problem = check_url(text, allow_private=allow_private, allow_cidrs=networks)
    assert isinstance(problem, UrlProblem)
    assert problem.field == field
    assert problem.detail and "pw" not in problem.detail


@pytest.mark.parametrize(("field", "text"), INSIDE)
def test_refused_unless_private_sinks_are_allowed(field: str, text: str) -> None:
    problem = check_url(text)
    assert isinstance(problem, UrlProblem)
    assert problem.field == field
    assert isinstance(check_url(text, allow_private=True), SinkUrl)


@pytest.mark.parametrize(("text", "url", "destination"), ACCEPTED)
def test_accepted_and_normalised(text: str, url: SinkUrl, destination: str | None) -> None:
    assert check_url(text) == url
    assert normalise_url(url) == (destination or text)
    assert check_url(normalise_url(url)) == url


def test_http_has_its_own_default_port() -> None:
    url = check_url("http://127.0.0.1:80/x", allow_private=True)
    assert url == SinkUrl("http", "127.0.0.1", 80, "/x")
    assert normalise_url(url) == "http://127.0.0.1/x"
    assert normalise_url(url._replace(port=443)) == "http://127.0.0.1:443/x"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.255.255.255", "unspecified"),
        ("10.0.0.0", "private"),
        ("10.255.255.255", "private"),
        ("100.64.0.0", "carrier-grade NAT"),
        ("100.127.255.255", "carrier-grade NAT"),
        ("100.100.100.200", "carrier-grade NAT"),
        ("127.0.0.1", "loopback"),
        ("168.63.129.16", "cloud metadata"),
        ("169.254.169.254", "link-local"),
        ("172.16.0.0", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.192", "protocol assignments"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4 relay"),
        ("192.168.255.255", "private"),
        ("198.18.0.0", "benchmarking"),
        ("198.19.255.255", "benchmarking"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:10.0.0.1", "IPv4-mapped form of 10.0.0.1, private"),
        ("::ffff:0:10.0.0.1", "IPv4-translated form of 10.0.0.1, private"),
        ("::10.0.0.1", "IPv4-compatible form of 10.0.0.1, private"),
        ("::2", "IPv4-compatible form of 0.0.0.2, unspecified"),
        ("64:ff9b::169.254.169.254", "NAT64 form of 169.254.169.254, link-local"),
        ("64:ff9b:1::1", "local NAT64"),
        ("64:ff9b:1:ffff::808:808", "local NAT64"),
        ("100::1", "discard-only"),
        ("2001::1", "Teredo server form of 0.0.0.0, unspecified"),
        ("2001:0:a00:1::", "Teredo server form of 10.0.0.1, private"),
        ("2001:0:808:808:0:0:f5ff:fffe", "Teredo client form of 10.0.0.1, private"),
        ("2001:2::1", "protocol assignments"),
        ("2001:10::1", "protocol assignments"),
        ("2001:db8::1", "documentation"),
        ("2002:a00:1::1", "6to4 form of 10.0.0.1, private"),
        ("2002:7f00:1::", "6to4 form of 127.0.0.1, loopback"),
        ("2606:4700::5efe:10.0.0.1", "ISATAP form of an address, private"),
        ("2606:4700::200:5efe:10.0.0.1", "ISATAP form of an address, private"),
        ("3fff::1", "documentation"),
        ("fc00::1", "unique local"),
        ("fd00:ec2::254", "unique local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("4000::1", "not a global address"),
        ("5f00::1", "not a global address"),
        ("127.1", "not an address"),
        ("0x7f000001", "not an address"),
        ("localhost", "not an address"),
        ("", "not an address"),
    ],
)
def test_addresses_refused(address: str, why: str) -> None:
    assert address_problem(address, STRICT) == why
    lifted = None if why != "not an address" else why
    assert address_problem(address, PRIVATE) == lifted


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450:4001::8",
        "2001:200::1",
        "2001:4860:4860::8888",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:0:808:808:0:0:f7f7:f7f7",
        "2606:4700::5efe:8.8.8.8",
    ],
)
def test_addresses_accepted(address: str) -> None:
    assert address_problem(address, STRICT) is None


def test_an_allow_list_lifts_the_address_rule_inside_it_alone() -> None:
    policy = EgressPolicy(allow_cidrs=parse_cidrs(["10.1.0.0/16", "fd12::/32"]))
    assert address_problem("10.1.2.3", policy) is None
    assert address_problem("::ffff:10.1.2.3", policy) is None  # The kernel sends it to 10.1.2.3.
    assert address_problem("fd12::1", policy) is None
    assert address_problem("10.2.0.1", policy) == "private"
    assert address_problem("fd13::1", policy) == "unique local"
    assert address_problem("64:ff9b::10.1.2.3", policy) == "NAT64 form of 10.1.2.3, private"
    networks = policy.allow_cidrs
    assert check_url("https://10.1.2.3/", allow_cidrs=networks) == SinkUrl("https", "10.1.2.3", 443, "/")
    assert check_url("http://10.1.2.3/", allow_cidrs=networks) == UrlProblem("scheme", "must be https")
    assert isinstance(check_url("https://localhost/", allow_cidrs=parse_cidrs(["127.0.0.0/8"])), UrlProblem)


def test_allow_lists_that_are_slips() -> None:
    assert parse_cidrs([]) == ()
    for text in ("10.1.2.3/8", "10.0.0.0/33", "10.0.0", "example.com", ""):
        with pytest.raises(ValueError, match=re.escape(repr(text)) if "/" not in text else text):
            parse_cidrs(["10.0.0.0/8", text])


def test_one_bad_address_refuses_all() -> None:
    assert check_addresses(["8.8.8.8", "2606:4700::1111"], STRICT) is None
    assert check_addresses(["8.8.8.8", "10.0.0.1"], STRICT) == "10.0.0.1: private"
    assert check_addresses(["::ffff:127.0.0.1", "8.8.8.8"], STRICT) is not None
    assert check_addresses([], STRICT) == "no address"
    assert check_addresses([], PRIVATE) == "no address"


@given(st.text(max_size=60))
def test_any_text_gets_a_verdict(text: str) -> None:
    for candidate in (text, "https://" + text, f"https://{text}.example/", "https://crm.example.com/" + text):
        url = check_url(candidate, allow_private=True)
        assert isinstance(url, UrlProblem) or check_url(normalise_url(url), allow_private=True) == url


@given(st.ip_addresses(v=4))
def test_every_disguise_of_a_bad_address_is_seen_through(address: object) -> None:
    number = int(address)  # type: ignore[call-overload]
    bare = address_problem(str(address), STRICT)
    high, low = number >> 16, number & 0xFFFF
    for disguise in (f"::ffff:{address}", f"64:ff9b::{address}", f"2002:{high:x}:{low:x}::1", f"::ffff:0:{address}"):
        assert (address_problem(disguise, STRICT) is None) == (bare is None)
