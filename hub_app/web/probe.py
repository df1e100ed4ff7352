"""The verification probe: does somebody at this address want our events?

One signed `POST` of a sample event, made as a delivery is: CloudEvents in binary mode, a Standard Webhooks signature
with the subscription's own secret, the same sender with the same address rules. Any 2xx answer verifies.

    ce-type              studio.lerian.streaming-hub.subscription.verification
    X-Lerian-Event-Type  subscription.verification
    body                 {"subscription":"sub_…","message":"…"}
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from agents.attempt import secret_context
from hub_app.domain.egress import UrlProblem, check_url, parse_cidrs
from hub_app.domain.ids import event_id
from hub_app.domain.instants import rfc3339
from hub_app.domain.signing import Signer, WebhookHead
from hub_app.domain.subscription import Subscription, WebhookSink, signing_secrets
from hub_app.ports import Answer, Failure, Request, SecretUnavailable, Target
from hub_app.web.deps import WebDeps

SOURCE: Final = "streaming-hub"
RESOURCE, EVENT = "subscription", "verification"
EVENT_TYPE: Final = f"{RESOURCE}.{EVENT}"
MESSAGE: Final = "Answer with any 2xx status to receive the events of this subscription."
AT_ONCE_MAX: Final = 32
AT_ONCE_PER_TENANT_MAX: Final = 4


class Probed(NamedTuple):
    """`status` is None when there was no answer. `detail` says why not verified, for people."""

    verified: bool
    status: int | None
    detail: str


class Busy(NamedTuple):
    """Too many probes are being made already; nothing was sent."""


class Prober:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._running: dict[str, int] = {}

    async def probe(self, subscription: Subscription) -> Probed | Busy:
        """One request, no repeat. Raises SecretUnavailable when it cannot be signed."""
        tenant = subscription.tenant
        running = self._running.get(tenant, 0)
        if running >= AT_ONCE_PER_TENANT_MAX or sum(self._running.values()) >= AT_ONCE_MAX:
            return Busy()
        self._running[tenant] = running + 1
        try:
            probed = await self._send(subscription)
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
        self._deps.metrics.probes.labels("verified" if probed.verified else "refused").inc()
        return probed

    async def _send(self, subscription: Subscription) -> Probed:
        settings, sink = self._deps.settings, subscription.sink
        if not isinstance(sink, WebhookSink):
            return Probed(True, None, "")  # a queue is our own
        request = self._request(subscription, sink)
        if isinstance(request, UrlProblem):
            return Probed(False, None, f"{request.field}: {request.detail}")
        answer = await self._deps.sender.send(
            request,
            connect_timeout_ms=settings.dispatch_connect_timeout_ms,
            timeout_ms=min(settings.dispatch_timeout_ms, sink.timeout_ms),
        )
        return _judge(answer)

    def _request(self, subscription: Subscription, sink: WebhookSink) -> Request | UrlProblem:
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
            static_headers=sink.headers,
        )
        body = orjson.dumps({"subscription": subscription.id, "message": MESSAGE})
        id = self._deps.entropy.token(16).hex()
        lines = head.build(
            headers=_sample_headers(subscription.tenant, id, now_ms),
            event_type=EVENT_TYPE,
            delivery_id=self._deps.entropy.token(16),
            attempt=1,
            event_id=event_id(subscription.tenant, SOURCE, SOURCE, id),
            timestamp_s=now_ms // 1000,
            body=body,
        )
        return Request(Target(url.scheme, url.host, url.port), b"POST", url.path.encode(), lines, body)

    def _secrets(self, subscription: Subscription, now_ms: int) -> list[str]:
        context = secret_context(subscription)
        sealed = signing_secrets(subscription, now_ms=now_ms)
        try:
            return [self._deps.keyring.open(text, context=context).decode() for text in sealed]
        except UnicodeDecodeError:
            raise SecretUnavailable("the sealed secret does not hold a signing secret") from None


def _sample_headers(tenant: str, id: str, now_ms: int) -> tuple[tuple[str, bytes], ...]:
    attributes = {
        "specversion": "1.0",
        "id": id,
        "source": SOURCE,
        "type": f"studio.lerian.{SOURCE}.{EVENT_TYPE}",
        "time": rfc3339(now_ms),
        "schemaversion": "1.0.0",
        "resourcetype": RESOURCE,
        "eventtype": EVENT,
        "tenantid": tenant,
        "datacontenttype": "application/json",
    }
    return tuple((f"ce-{name}", value.encode()) for name, value in attributes.items())


def _judge(answer: Answer | Failure) -> Probed:
    if isinstance(answer, Failure):
        return Probed(False, None, f"no answer ({answer.kind}): {answer.detail}")
    if 200 <= answer.status <= 299:
        return Probed(True, answer.status, "")
    return Probed(
        False, answer.status, f"the sink answered {answer.status}; expected any 2xx (redirects are not followed)"
    )
