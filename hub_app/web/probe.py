"""The verification probe: does somebody at this address want our events? And the test event, made in the same way.

One signed `POST` of a sample event, made as a delivery is: CloudEvents in binary mode, a Standard Webhooks signature
with the subscription's own secret, the same sender with the same address rules. Any 2xx answer verifies.

    ce-type              studio.lerian.streaming-hub.subscription.verification
    X-Lerian-Event-Type  subscription.verification
    body                 {"subscription":"sub_…","message":"…"}
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from agents.sealing import hidden, hide, open_headers, secret_context
from hub_app.domain.egress import UrlProblem, check_url, parse_cidrs
from hub_app.domain.ids import event_id
from hub_app.domain.instants import rfc3339
from hub_app.domain.signing import Signer, WebhookHead
from hub_app.domain.subscription import Subscription, WebhookSink, signing_secrets
from hub_app.ports import Answer, Failure, Request, SecretUnavailable, Target
from hub_app.web.deps import WebDeps
from hub_app.wire.record import mask

SOURCE: Final = "streaming-hub"
RESOURCE: Final = "subscription"
MESSAGE: Final = "Answer with any 2xx status to receive the events of this subscription."
AT_ONCE_MAX: Final = 32
AT_ONCE_PER_TENANT_MAX: Final = 4


class Probed(NamedTuple):
    """`status` is None when there was no answer. `detail` says why not verified, for people."""

    verified: bool
    status: int | None
    detail: str


class Sample(NamedTuple):
    """`event` is the part after `subscription.` in its type."""

    event: str
    body: bytes


class Sent(NamedTuple):
    """A sample that was sent once, and what came of it. Of the answer only what the hub reads of any."""

    answer: Answer | Failure | UrlProblem
    event_id: str
    delivery_id: bytes
    took_ms: int


class Busy(NamedTuple):
    """Too many probes are being made already; nothing was sent."""


class Prober:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._running: dict[str, int] = {}

    async def probe(self, subscription: Subscription) -> Probed | Busy:
        """One request, no repeat. Raises SecretUnavailable when it cannot be signed."""
        body = orjson.dumps({"subscription": subscription.id, "message": MESSAGE})
        sent = await self.send(subscription, Sample("verification", body))
        if isinstance(sent, Busy):
            return sent
        probed = _judge(sent.answer)
        self._deps.metrics.probes.labels("verified" if probed.verified else "refused").inc()
        return probed

    async def send(self, subscription: Subscription, sample: Sample) -> Sent | Busy:
        """One request, no repeat, to a webhook. Raises SecretUnavailable when it cannot be signed."""
        sink = subscription.sink
        assert isinstance(sink, WebhookSink)
        tenant = subscription.tenant
        running = self._running.get(tenant, 0)
        if running >= AT_ONCE_PER_TENANT_MAX or sum(self._running.values()) >= AT_ONCE_MAX:
            return Busy()
        self._running[tenant] = running + 1
        try:
            return await self._send(subscription, sink, sample)
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    async def _send(self, subscription: Subscription, sink: WebhookSink, sample: Sample) -> Sent:
        settings, clock, entropy = self._deps.settings, self._deps.clock, self._deps.entropy
        id, delivery = entropy.token(16).hex(), entropy.token(16)
        event = event_id(subscription.tenant, SOURCE, SOURCE, id)
        request = self._request(subscription, sink, sample, id=id, delivery=delivery, event=event)
        if isinstance(request, UrlProblem):
            return Sent(request, event, delivery, 0)
        began_ms = clock.monotonic_ms()
        answer = await self._deps.sender.send(
            request,
            connect_timeout_ms=settings.dispatch_connect_timeout_ms,
            timeout_ms=min(settings.dispatch_timeout_ms, sink.timeout_ms),
        )
        took_ms = clock.monotonic_ms() - began_ms
        if isinstance(answer, Answer):
            words = hidden(request.path.decode(), open_headers(self._deps.keyring, subscription))
            answer = answer._replace(body=hide(answer.body, words))
        return Sent(answer, event, delivery, took_ms)

    def _request(
        self, subscription: Subscription, sink: WebhookSink, sample: Sample, *, id: str, delivery: bytes, event: str
    ) -> Request | UrlProblem:
        settings, now_ms = self._deps.settings, self._deps.clock.now_ms()
        url = check_url(
            sink.url,
            allow_private=settings.allow_private_sinks,
            allow_cidrs=parse_cidrs(settings.sink_allow_cidrs),
        )
        if isinstance(url, UrlProblem):
            return url
        head = WebhookHead(
            signer=Signer(self._secrets(subscription, now_ms)),
            user_agent=f"streaming-hub/{self._deps.version}",
            static_headers=open_headers(self._deps.keyring, subscription),
        )
        lines = head.build(
            headers=_sample_headers(subscription.tenant, sample.event, id, now_ms),
            event_type=f"{RESOURCE}.{sample.event}",
            delivery_id=delivery,
            attempt=1,
            event_id=event,
            timestamp_s=now_ms // 1000,
            body=sample.body,
        )
        return Request(Target(url.scheme, url.host, url.port), b"POST", url.path.encode(), lines, sample.body)

    def _secrets(self, subscription: Subscription, now_ms: int) -> list[str]:
        context = secret_context(subscription)
        sealed = signing_secrets(subscription, now_ms=now_ms)
        try:
            return [self._deps.keyring.open(text, context=context).decode() for text in sealed]
        except UnicodeDecodeError:
            raise SecretUnavailable("the sealed secret does not hold a signing secret") from None


def _sample_headers(tenant: str, event: str, id: str, now_ms: int) -> tuple[tuple[str, bytes], ...]:
    attributes = {
        "specversion": "1.0",
        "id": id,
        "source": SOURCE,
        "type": f"studio.lerian.{SOURCE}.{RESOURCE}.{event}",
        "time": rfc3339(now_ms),
        "schemaversion": "1.0.0",
        "resourcetype": RESOURCE,
        "eventtype": event,
        "tenantid": tenant,
        "datacontenttype": "application/json",
    }
    return tuple((f"ce-{name}", value.encode()) for name, value in attributes.items())


def _judge(answer: Answer | Failure | UrlProblem) -> Probed:
    if isinstance(answer, UrlProblem):
        return Probed(False, None, f"{answer.field}: {answer.detail}")
    if isinstance(answer, Failure):
        return Probed(False, None, f"no answer ({answer.kind}): {mask(answer.detail)}")
    if 200 <= answer.status <= 299:
        return Probed(True, answer.status, "")
    return Probed(
        False, answer.status, f"the sink answered {answer.status}; expected any 2xx (redirects are not followed)"
    )
