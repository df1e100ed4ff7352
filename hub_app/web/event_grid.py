"""The data plane of Azure Event Grid namespaces, as its public clients speak it (docs/queues.md).

Publishing is done where it is asked for; receiving and settling in the worker that owns the tenant's shard. A receive
that has locked something is always answered with 200: its client would repeat anything else, and the lock would be
nobody's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from hub_app.domain.errors import Fenced
from hub_app.domain.ids import tenant_key
from hub_app.domain.limits import PUBLISH_BYTES_MAX
from hub_app.domain.publishing import Unfit, binary, is_json_type, structured
from hub_app.domain.queue_tokens import read
from hub_app.domain.subscription import Subscription
from hub_app.ports import SecretUnavailable
from hub_app.telemetry import Event
from hub_app.topics import partition_for
from hub_app.web.auth import PUBLISH as MAY_PUBLISH
from hub_app.web.auth import RECEIVE as MAY_RECEIVE
from hub_app.web.auth import Caller, require
from hub_app.web.deps import WebDeps
from hub_app.web.event_grid_ask import Receiving, Settling, query_of, receiving, settling, within_deadline
from hub_app.web.event_grid_errors import Refusal, bad_request, not_found, refusal_of, refused, too_large
from hub_app.web.event_grid_path import PUBLISH, RECEIVE, Nowhere, Place, parse_path
from hub_app.web.event_grid_view import received_json, settled_json
from hub_app.web.forwarding import Carried, at_owner, is_carried, wrong_owner
from hub_app.web.presence import Presence, gone
from hub_app.web.problems import Problem, json_response
from hub_app.web.rates import PULL
from hub_app.web.serve import Serve
from hub_app.web.strict_json import BODY_BYTES_MAX, read_body

VERSIONS: Final = ("2023-11-01", "2024-06-01")
ROUTE: Final = "/t"
TOKENS_BYTES_MAX: Final = BODY_BYTES_MAX
_STRUCTURED: Final = ("application/cloudevents+json", "application/cloudevents-batch+json")

Answer = web.StreamResponse | Problem | Refusal


class EventGrid:
    def __init__(self, deps: WebDeps, serve: Serve) -> None:
        self._deps, self._serve, self._presence = deps, serve, Presence()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Every request below `/t`; refusals have the form of Event Grid."""

        async def made() -> web.StreamResponse:
            return _response(await self._answer(request))

        return _response(await self._serve.caught(made, ROUTE))

    async def _answer(self, request: web.Request) -> Answer:
        place = parse_path(request.rel_url.raw_path)
        publishes = isinstance(place, Place) and place.operation == PUBLISH
        body = await read_body(request, bytes_max=PUBLISH_BYTES_MAX if publishes else TOKENS_BYTES_MAX)
        if isinstance(body, Problem):
            return body
        caller = await self._caller(request.headers)
        if isinstance(caller, Problem):
            return caller
        if isinstance(place, Nowhere):
            return not_found(place.what)
        if request.method != "POST":
            return Refusal(405, "MethodNotAllowed", "Only POST is allowed here.", {"Allow": "POST"})
        lacking = require(caller, MAY_PUBLISH if publishes else MAY_RECEIVE)
        if lacking is not None:
            return lacking
        if caller.tenant != place.tenant:
            return not_found("tenant")
        query = query_of(request)
        if query.get("api-version") not in VERSIONS:
            return bad_request(f"api-version must be one of {', '.join(VERSIONS)}.")
        if publishes:
            return await self._publish(request, caller, place, body)
        return await self._at_owner(request, caller, place, query, body)

    async def _caller(self, headers: Mapping[str, str]) -> Caller | Problem:
        """`SharedAccessKey <key>` is the same key, as `Bearer` has it."""
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "sharedaccesskey":
            headers = {"Authorization": f"Bearer {key}"}
        return await self._serve.authenticator.caller(headers)

    # -- publish -------------------------------------------------------------------------------------------------------
    async def _publish(self, request: web.Request, caller: Caller, place: Place, body: bytes) -> Answer:
        granted = self._serve.rates.take(PULL, caller.key_id)
        if isinstance(granted, Problem):
            return granted
        content_type = request.headers.get("Content-Type")
        media = (content_type or "").partition(";")[0].strip().lower()
        headers = [
            (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in request.raw_headers
        ]
        is_binary = any(name.lower() == "ce-specversion" for name, _ in headers) and media not in _STRUCTURED
        if is_binary:
            event = binary(headers, content_type, body, place.tenant)
            events = event if isinstance(event, Unfit) else [event]
        elif media and not is_json_type(media):
            return Refusal(415, "UnsupportedMediaType", f"Content-Type must be {' or '.join(_STRUCTURED)}.")
        else:
            events = structured(body, place.tenant)
        unfit = (
            events
            if isinstance(events, Unfit)
            else await self._deps.publisher.publish(place.tenant, place.topic, events)
        )
        if unfit is not None:
            return too_large(unfit.detail) if unfit.too_large else bad_request(unfit.detail)
        return json_response({})

    # -- receive and settle --------------------------------------------------------------------------------------------
    async def _at_owner(
        self, request: web.Request, caller: Caller, place: Place, query: Mapping[str, str], body: bytes
    ) -> Answer:
        asked = receiving(query) if place.operation == RECEIVE else settling(place, query, request, body)
        if isinstance(asked, Refusal | Problem):
            return asked
        shard = partition_for(tenant_key(place.tenant), self._deps.settings.shards)
        is_receive = isinstance(asked, Receiving)
        wait_ms = asked.wait_ms if isinstance(asked, Receiving) else 0
        carried = Carried(
            request.method, request.raw_path, request.headers, body, wait_ms, _nothing if is_receive else None
        )

        async def local() -> web.StreamResponse | Problem:
            try:
                return _response(await self._local(request, caller, place, shard, asked))
            except Fenced:
                if is_carried(request.headers):
                    return wrong_owner()
                raise

        if not is_receive:
            return await at_owner(self._deps, shard, carried, local)
        waiting = asyncio.ensure_future(at_owner(self._deps, shard, carried, local))
        try:
            with self._presence.watched(request, waiting.cancel):
                return await waiting
        except asyncio.CancelledError:
            if gone(request):
                return _nothing()  # nobody reads it
            waiting.cancel()
            raise

    async def _local(
        self, request: web.Request, caller: Caller, place: Place, shard: int, asked: Receiving | Settling
    ) -> Answer:
        granted = self._serve.rates.take(PULL, caller.key_id)
        if isinstance(granted, Problem):
            return granted
        queues = self._deps.subscriptions.queues(place.tenant)
        subscription = queues.get((place.topic, place.queue))
        if subscription is None:
            known = any(topic == place.topic for topic, _ in queues)
            return not_found("event subscription" if known else "topic")
        try:
            if isinstance(asked, Settling):
                return await self._settle(shard, subscription, asked)
            return await self._receive(request, shard, subscription, asked)
        except SecretUnavailable:
            return Refusal(503, "ServiceUnavailable", "This deployment holds no key for the queue's tokens.")

    async def _receive(
        self, request: web.Request, shard: int, subscription: Subscription, asked: Receiving
    ) -> web.Response:
        deps = self._deps
        if deps.stopping():
            return _nothing()
        events = await deps.queues.receive(
            shard,
            subscription,
            most=asked.most,
            wait_ms=within_deadline(request, asked.wait_ms),
            connected=lambda: not gone(request),
        )
        try:
            return json_response({"value": [received_json(event) for event in events]})
        except Exception as error:  # the events come again when their locks are over
            deps.log.error(Event.REQUEST_FAILED, error=error, route=ROUTE)
            return _nothing()

    async def _settle(self, shard: int, subscription: Subscription, asked: Settling) -> web.Response:
        results = await self._deps.queues.settle(
            shard,
            subscription,
            asked.operation,
            [read(token) for token in asked.tokens],
            delay_ms=asked.delay_ms,
        )
        return json_response(settled_json(asked.tokens, results))


def _response(answer: Answer) -> web.StreamResponse:
    if isinstance(answer, Problem):
        answer = refusal_of(answer)
    return refused(answer) if isinstance(answer, Refusal) else answer


def _nothing() -> web.Response:
    return json_response({"value": []})
