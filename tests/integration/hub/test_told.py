"""What people are told of a sink that fails, by a real deployment: operator events and health, at any worker."""

from __future__ import annotations

from typing import Any

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Api
from tests.integration.hub.conftest import MakeDeployment
from tests.support.sink import RecordingSink, Reply, Request
from tests.support.waiting import until


def test_a_breaker_opens_and_closes_and_people_are_told(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    hub = make_hub(backoff=",".join(["100ms"] * 7), breaker_failures="3", breaker_open="1s", breaker_open_max="1s")
    worker, other = hub.started(), hub.started()
    source, works = hub.source("told"), [False]

    def behave(_request: Request) -> Reply:
        return Reply(200 if works[0] else 500)

    api = hub.api(worker, source)
    elsewhere = Api(other.url, api.key)
    url = sink.behave(f"/{source}", behave)
    wish = {"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": url}, "verify": False}
    made = api.call("POST", "/v1/subscriptions", wish)
    works[0] = True
    assert api.call("POST", f"/v1/subscriptions/{made['id']}/verify")["verification_state"] == "active"
    works[0] = False
    health = f"/v1/subscriptions/{made['id']}/health"
    for one in (api, elsewhere):
        assert [one.call("GET", health)[name] for name in ("breaker", "streak")] == [None, None]
    hub.send([NewFact(id=source, tenant=source, source=source)])

    def told(one: Api, after: str = "start") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = one.call("GET", f"/v1/operator-events?after={after}")["operator_events"]
        return found

    def opened(one: Api) -> bool:
        return [row["kind"] for row in told(one)][:1] == ["breaker.opened"]

    for one in (api, elsewhere):
        until(lambda one=one: opened(one), lambda one=one: (told(one), one.call("GET", health)))  # type: ignore[misc]
        seen = one.call("GET", health)
        assert seen["breaker"]["state"] in ("open", "half_open")
        assert seen["breaker"]["failures"] >= 3
        assert seen["streak"]["window_percent"] == 0
        assert seen["streak"]["disables_at"] is None
    [first] = told(api)
    assert (first["destination"], "3 failures in a row" in first["detail"]) == (url, True)
    works[0] = True
    kinds = ["breaker.opened", "breaker.closed"]
    until(lambda: [row["kind"] for row in told(elsewhere)] == kinds, lambda: told(elsewhere), seconds=20)
    until(lambda: elsewhere.call("GET", health)["streak"] is None, lambda: elsewhere.call("GET", health))
    assert api.call("GET", health)["breaker"] is None
    assert told(hub.api(worker, f"{source}-other")) == []
    rows = Api(worker.url).call("GET", f"/admin/operator-events?tenant={source}")["operator_events"]
    assert [row["kind"] for row in rows] == kinds
