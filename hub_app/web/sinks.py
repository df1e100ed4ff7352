"""What came of attempts: the log of a subscription, its health, the state of a delivery. The dispatch shard of tenant
and destination knows it; the worker that serves the tenant asks the one that has that shard, over one hop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from aiohttp import web

from agents.dispatch_shard import DispatchShard
from hub_app.domain.autodisable import fires_at_ms, window_percent
from hub_app.domain.breaker import CLOSED, state_at
from hub_app.domain.delivery import OutcomeKind
from hub_app.domain.errors import Fenced
from hub_app.domain.ids import delivery_id, destination_key
from hub_app.domain.instants import rfc3339
from hub_app.domain.subscription import Subscription
from hub_app.topics import partition_for
from hub_app.web.auth import MANAGE, Authenticator, require
from hub_app.web.deps import Reply, WebDeps
from hub_app.web.describe import Query
from hub_app.web.forwarding import HOP, LOOK_AGAIN_S, MOVE_MS_MAX, wrong_owner
from hub_app.web.paging import LIMIT, LIMIT_DEFAULT
from hub_app.web.problems import Problem, json_response, not_found
from hub_app.web.pull import SEQ_MAX, parse_seq
from hub_app.web.queries import parse_queries
from hub_app.web.serve import Ask
from hub_app.web.shapes import Text, Whole
from tables.history import Attempt

INTERNAL: Final = "/internal/sinks"
ASK_MS: Final = 5_000
LAST_MAX: Final = 10
BACKLOG_ROWS_MAX: Final = 2_000
COUNTED_MAX: Final = 1_000
ATTEMPTS: Final = (
    Query("cursor", Text(pattern="[0-9a-f]{30}", meaning="the `next` of the answer before"), "the page after"),
    LIMIT,
    Query("seq", Whole(low=0, high=SEQ_MAX), "of this event only"),
)


class Sinks:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._authenticator = Authenticator(deps)

    # -- routes ----------------------------------------------------------------------------------------------------
    async def attempts(self, ask: Ask) -> web.Response | Problem:
        """Newest first."""
        found = self._deps.subscriptions.get(ask.tenant, ask.part("id"))
        if found is None:
            return not_found("subscription")
        query = parse_queries(ask.request, ATTEMPTS)
        return query if isinstance(query, Problem) else json_response(await self.look(ask, found, "attempts", query))

    async def health(self, ask: Ask) -> web.Response | Problem:
        found = self._deps.subscriptions.get(ask.tenant, ask.part("id"))
        return not_found("subscription") if found is None else json_response(await self.look(ask, found, "health", {}))

    async def internal(self, request: web.Request) -> web.Response | Problem:
        """Asked by another worker, with its caller's own key; the tenant is the key's, whatever the query says."""
        caller = await self._authenticator.caller(request.headers)
        if isinstance(caller, Problem):
            return caller
        refused = require(caller, MANAGE)
        if refused is not None or caller.tenant is None:
            return refused or not_found("route")
        what, query = request.match_info["what"], dict(request.query)
        destination, subscription = query.pop("destination", ""), query.pop("subscription", "")
        shard = self._deps.sinks.shard(self._shard_of(caller.tenant, destination))
        if shard is None:
            return wrong_owner()
        if what not in _LOOKS:
            return not_found("route")
        return json_response(self._local(shard, caller.tenant, destination, subscription, what, query))

    # -- asking ----------------------------------------------------------------------------------------------------
    async def look(self, ask: Ask, of: Subscription, what: str, query: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of whoever has the shard. Raises Fenced when nobody has it for two seconds."""
        deps, number = self._deps, self._shard_of(of.tenant, of.destination)
        texts = {name: str(value) for name, value in query.items()}
        give_up_at_ms = deps.clock.monotonic_ms() + MOVE_MS_MAX
        while True:
            shard = deps.sinks.shard(number)
            if shard is not None:
                return self._local(shard, of.tenant, of.destination, of.id, what, texts)
            url = await deps.sinks.url_of(number)
            if url is not None and url != deps.settings.http_advertised_url:
                asked = urlencode({"destination": of.destination, "subscription": of.id, **texts})
                headers = {"Authorization": ask.request.headers.get("Authorization", ""), HOP: "1"}
                reply = await deps.peers.send("GET", f"{url}{INTERNAL}/{what}?{asked}", headers, b"", ASK_MS)
                if isinstance(reply, Reply) and reply.status == 200:
                    found: dict[str, Any] = orjson.loads(reply.body)
                    return found
            if deps.clock.monotonic_ms() >= give_up_at_ms or deps.stopping():
                raise Fenced("the sink's shard is not open anywhere")
            await deps.sleep(LOOK_AGAIN_S)

    def _shard_of(self, tenant: str, destination: str) -> int:
        return partition_for(destination_key(tenant, destination), self._deps.settings.shards)

    # -- looking ---------------------------------------------------------------------------------------------------
    def _local(
        self,
        shard: DispatchShard,
        tenant: str,
        destination: str,
        subscription: str,
        what: str,
        query: Mapping[str, str],
    ) -> dict[str, Any]:
        if what == "attempts":
            return self._attempts(shard, tenant, subscription, query)
        if what == "delivery":
            return self._delivery(shard, tenant, subscription, parse_seq(query.get("seq", "")) or 0)
        return self._health(shard, tenant, destination, subscription)

    def _attempts(
        self, shard: DispatchShard, tenant: str, subscription: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        settings = self._deps.settings
        attempts, more = shard.history.newest(
            subscription,
            bytes.fromhex(query.get("cursor", "")),
            limit=int(query.get("limit", LIMIT_DEFAULT)),
            since_ms=self._deps.clock.now_ms() - settings.attempts_retention_ms,
            seq=int(query["seq"]) if "seq" in query else None,
        )
        shown = [_shown(one) for one in attempts if one.tenant == tenant]
        return {"attempts": shown, "next": attempts[-1].place.hex() if more and attempts else None}

    def _delivery(self, shard: DispatchShard, tenant: str, subscription: str, seq: int) -> dict[str, Any]:
        """The ordinary delivery of an event, and every attempt at any delivery of it, newest first."""
        id = delivery_id(tenant, seq, subscription)
        [row] = shard.table.rows([id])
        attempts, _ = shard.history.newest(subscription, b"", limit=COUNTED_MAX, seq=seq)
        shown = [one for one in attempts if one.tenant == tenant]
        ended = next((one.kind for one in shown if one.delivery_id == id and one.kind in _ENDS), None)
        state = ended or ("unknown" if row is None else "attempting" if id in shard.in_hand else "waiting")
        next_at = rfc3339(row.due_ms) if row is not None and row.due_ms and state == "waiting" else None
        return {"state": state, "next_at": next_at, "attempts": [_shown(one) for one in shown]}

    def _health(self, shard: DispatchShard, tenant: str, destination: str, subscription: str) -> dict[str, Any]:
        now_ms = self._deps.clock.now_ms()
        since_ms = now_ms - self._deps.settings.health_window_ms
        attempts, _ = shard.history.newest(subscription, b"", limit=COUNTED_MAX, since_ms=since_ms)
        own = [one for one in attempts if one.tenant == tenant]
        counts = {kind: sum(one.kind == kind for one in own) for kind in _COUNTED}
        rows = shard.table.earliest(tenant, destination, from_ms=0, limit=BACKLOG_ROWS_MAX)
        due = [at_ms for id, at_ms, value in rows if shard.table.row(id, value).job.subscription == subscription]
        in_hand = sum(row.job.subscription == subscription for row in shard.in_hand.values())
        return {
            "destination": destination,
            "breaker": self._breaker(tenant, destination, now_ms),
            "streak": self._streak(tenant, destination, subscription, now_ms),
            "counts": counts,
            "counted_since": rfc3339(own[-1].at_ms) if own else None,
            "last": [_shown(one) for one in own[:LAST_MAX]],
            "backlog": len(due),
            "backlog_is_more": len(rows) == BACKLOG_ROWS_MAX,
            "attempting": in_hand,
            "oldest_due": rfc3339(due[0]) if due and due[0] else None,
        }

    def _breaker(self, tenant: str, destination: str, now_ms: int) -> dict[str, Any] | None:
        sink = self._deps.held_against((tenant, destination))
        if sink is None or sink.breaker == CLOSED:
            return None
        breaker = sink.breaker
        return {
            "state": state_at(breaker, now_ms).value,
            "failures": breaker.failures,
            "opened_at": rfc3339(breaker.opened_at_ms) if breaker.open_ms else None,
            "until": rfc3339(breaker.until_ms) if breaker.until_ms else None,
        }

    def _streak(self, tenant: str, destination: str, subscription: str, now_ms: int) -> dict[str, Any] | None:
        sink, policy = self._deps.held_against((tenant, destination)), self._deps.disabling
        failing = sink.failing.get(subscription) if sink is not None else None
        if failing is None:
            return None
        disables_at_ms = fires_at_ms(failing.streak, policy) if policy is not None else None
        return {
            "first_failure": rfc3339(failing.streak.first_ms),
            "last_failure": rfc3339(failing.streak.last_ms),
            "window_percent": window_percent(failing.streak, now_ms=now_ms, policy=policy) if policy else None,
            "warned_percent": failing.warned,
            "disables_at": rfc3339(disables_at_ms) if disables_at_ms is not None else None,
            "disable_wanted": failing.wanted,
        }


_LOOKS: Final = ("attempts", "health", "delivery")
_ENDS: Final = (OutcomeKind.DELIVERED.value, OutcomeKind.DEAD.value)
_COUNTED: Final = (OutcomeKind.DELIVERED.value, OutcomeKind.FAILED.value, OutcomeKind.DEAD.value)


def _shown(attempt: Attempt) -> dict[str, Any]:
    return {
        "delivery_id": attempt.delivery_id.hex(),
        "seq": attempt.seq,
        "series": attempt.series or None,
        "attempt": attempt.number,
        "outcome": attempt.kind,
        "at": rfc3339(attempt.at_ms),
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
        "error": attempt.error or None,
        "reason": attempt.reason or None,
        "next_at": rfc3339(attempt.next_at_ms) if attempt.next_at_ms else None,
        "answer": attempt.answer.decode("utf-8", "replace"),
    }
