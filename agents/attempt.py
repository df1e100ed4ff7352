"""Exactly one attempt of one delivery (docs/delivery.md, "One attempt").

`may` answers before anything is claimed: is there still somebody to deliver to? `make` sends once and says what came of
it. Nothing here keeps state of a job; what an outcome means for it is settled by `agents.settle`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from agents.sealing import hidden, hide, open_headers, secret_context
from hub_app.domain.backoff import Curve
from hub_app.domain.classify import answered, not_tried, unanswered
from hub_app.domain.delivery import Dead, DeadReason, Deferred, Job, Moved, NextStep, Result, next_step, overstayed
from hub_app.domain.egress import EgressPolicy, UrlProblem, check_url
from hub_app.domain.ids import event_id
from hub_app.domain.limits import SECOND_MS, SUSPENDED_MS_MAX
from hub_app.domain.signing import Signer, WebhookHead
from hub_app.domain.subscription import Subscription, WebhookSink, signing_secrets
from hub_app.ports import Answer, Clock, Entropy, Keyring, Request, SecretUnavailable, Sender, Target
from tables.jobs import Row
from tables.subscriptions import SubscriptionsTable

UNKNOWN_MS = SECOND_MS
"""How long a job is left alone whose subscription this worker's table has not reached yet."""
PREPARED_MAX = 10_000


class Go(NamedTuple):
    subscription: Subscription


class Hold(NamedTuple):
    """Its subscription receives nothing: the job waits until that changes, or is given up at `until_ms`."""

    until_ms: int


class Attempted(NamedTuple):
    """What came of an attempt. `answer` is the start of the body, for the attempts log."""

    result: Result
    step: NextStep
    answer: bytes
    started_ms: int
    took_ms: int


class _Prepared(NamedTuple):
    """`hidden`: what a sink that repeats the request must not bring into the attempts log."""

    subscription: Subscription
    until_ms: int
    target: Target
    path: bytes
    head: WebhookHead
    timeout_ms: int
    hidden: tuple[bytes, ...]


class Attempter:
    def __init__(
        self,
        *,
        subscriptions: SubscriptionsTable,
        read_to: Callable[[str], int],
        unwanted: Container[str],
        sender: Sender,
        keyring: Keyring,
        clock: Clock,
        entropy: Entropy,
        curve: Curve,
        policy: EgressPolicy,
        timeout_ms: int,
        connect_timeout_ms: int,
        max_age_ms: int,
        poisoned_from: int,
        user_agent: str,
    ) -> None:
        """`read_to(tenant)`: how far the subscriptions table has read the tenant's partition. `unwanted`: subscriptions
        that are about to be disabled. `poisoned_from`: a job that was interrupted so often is given up."""
        self._subscriptions, self._read_to, self._sender, self._keyring = subscriptions, read_to, sender, keyring
        self._unwanted, self._poisoned_from = unwanted, poisoned_from
        self._clock, self._entropy, self._curve, self._policy = clock, entropy, curve, policy
        self.timeout_ms, self._connect_timeout_ms, self._max_age_ms = timeout_ms, connect_timeout_ms, max_age_ms
        self._user_agent = user_agent
        self._prepared: dict[str, _Prepared] = {}

    def may(self, row: Row, now_ms: int) -> Go | Dead | Deferred | Hold | Moved:
        """Whether the job is to be attempted now. Deferred: not now, nothing is spent, look again at `until_ms`."""
        job = row.job
        if job.reclaims >= self._poisoned_from:
            return Dead(DeadReason.POISONED)
        subscription = self._subscriptions.get(job.tenant, job.subscription)
        if subscription is None and self._read_to(job.tenant) >= job.subscriptions_offset:
            return Dead(DeadReason.SUBSCRIPTION_DELETED)
        since_ms = subscription.inactive_since_ms if subscription is not None else None
        overstays = overstayed(inactive_since_ms=since_ms, deferred_since_ms=row.deferred_ms or None, now_ms=now_ms)
        if overstays:
            return Dead(overstays)
        if subscription is None:
            return Deferred(now_ms + UNKNOWN_MS)
        if subscription.destination != job.destination:
            return Moved(subscription.destination, self._read_to(job.tenant))
        if subscription.receives and subscription.id not in self._unwanted:
            return Go(subscription)
        return Hold((now_ms if since_ms is None else since_ms) + SUSPENDED_MS_MAX)

    async def make(
        self, job: Job, subscription: Subscription, headers: tuple[tuple[str, bytes], ...], body: bytes
    ) -> Attempted:
        started_ms, began = self._clock.now_ms(), self._clock.monotonic_ms()
        answer = b""
        try:
            ready = self._prepare(subscription, started_ms)
        except (SecretUnavailable, ValueError) as error:
            result = not_tried("secret_unavailable", str(error))
            return self._attempted(job, result, b"", started_ms, began)
        if isinstance(ready, UrlProblem):  # the deployment's rules changed since it was verified
            result = unanswered("blocked_address", ready.detail)
        else:
            reply = await self._sender.send(
                self._request(ready, job, headers, body, started_ms),
                connect_timeout_ms=self._connect_timeout_ms,
                timeout_ms=ready.timeout_ms,
            )
            if isinstance(reply, Answer):
                result, answer = answered(reply.status, reply.retry_after), hide(reply.body, ready.hidden)
            else:
                result = unanswered(reply.kind, reply.detail)
        return self._attempted(job, result, answer, started_ms, began)

    def broken(self, job: Job, error: BaseException, started_ms: int, began: int) -> Attempted:
        """Our own fault kept the attempt from being made: not charged."""
        return self._attempted(job, not_tried("internal", repr(error)), b"", started_ms, began)

    def _attempted(self, job: Job, result: Result, answer: bytes, started_ms: int, began: int) -> Attempted:
        step = next_step(
            job,
            result,
            curve=self._curve,
            started_at_ms=started_ms,
            now_ms=self._clock.now_ms(),
            draw=self._entropy.draw(),
            max_age_ms=self._max_age_ms,
        )
        return Attempted(result, step, answer, started_ms, self._clock.monotonic_ms() - began)

    def _request(
        self, ready: _Prepared, job: Job, headers: tuple[tuple[str, bytes], ...], body: bytes, now_ms: int
    ) -> Request:
        ce = dict(headers)
        resource, event = ce.get("ce-resourcetype"), ce.get("ce-eventtype")
        event_type = f"{resource.decode()}.{event.decode()}" if resource and event else ce["ce-type"].decode()
        head = ready.head.build(
            headers=headers,
            event_type=event_type,
            delivery_id=job.delivery_id,
            attempt=job.attempt,
            event_id=event_id(job.tenant, job.topic, ce["ce-source"].decode(), ce["ce-id"].decode()),
            timestamp_s=now_ms // 1000,
            body=body,
        )
        return Request(ready.target, b"POST", ready.path, head, body)

    def _prepare(self, subscription: Subscription, now_ms: int) -> _Prepared | UrlProblem:
        """The static part of a subscription's requests, made once per revision. Secrets live in its signer only.
        Raises SecretUnavailable, or ValueError for a secret that is none."""
        ready = self._prepared.get(subscription.id)
        if ready is not None and ready.subscription is subscription and now_ms < ready.until_ms:
            return ready
        sink = subscription.sink
        if not isinstance(sink, WebhookSink):
            return UrlProblem("sink", "is no webhook")
        url = check_url(sink.url, allow_private=self._policy.allow_private, allow_cidrs=self._policy.allow_cidrs)
        if isinstance(url, UrlProblem):
            return url
        context = secret_context(subscription)
        secrets = [
            self._keyring.open(sealed, context=context).decode()
            for sealed in signing_secrets(subscription, now_ms=now_ms)
        ]
        until_ms = subscription.previous_secret_until_ms or 0
        headers = open_headers(self._keyring, subscription)
        ready = _Prepared(
            subscription,
            until_ms if until_ms > now_ms else 1 << 62,
            Target(url.scheme, url.host, url.port),
            url.path.encode(),
            WebhookHead(signer=Signer(secrets), user_agent=self._user_agent, static_headers=headers),
            min(self.timeout_ms, sink.timeout_ms),
            hidden(url.path, headers),
        )
        if len(self._prepared) >= PREPARED_MAX:
            self._prepared.clear()
        self._prepared[subscription.id] = ready
        return ready
