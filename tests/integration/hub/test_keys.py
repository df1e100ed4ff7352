"""Keys and secrets over two workers: what is made works everywhere at once, what ends has ended in a second."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from standardwebhooks import Webhook

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Api, Worker
from tests.integration.hub.conftest import MakeDeployment
from tests.support.sink import RecordingSink
from tests.support.waiting import until

EVERYWHERE_S = 1.0


def status(worker: Worker, key: str) -> int:
    request = urllib.request.Request(worker.url + "/v1/events?limit=1", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_keys_and_secrets_everywhere_in_a_second(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    hub = make_hub()
    workers = [hub.started(), hub.started()]
    hub.wait_owners(*workers)
    source = hub.source("keys")
    admin = Api(workers[0].url)
    for number in range(3):
        made = admin.call("POST", f"/admin/tenants/{source}/keys", {"scopes": ["receive"], "name": str(number)})
        assert [status(worker, made["key"]) for worker in workers] == [200, 200]
        admin.call("DELETE", f"/admin/tenants/{source}/keys/{made['id']}")
        ended = time.monotonic()
        until(lambda key=made["key"]: [status(w, key) for w in workers] == [401, 401], made["id"], seconds=10)  # type: ignore[misc]
        assert time.monotonic() - ended < EVERYWHERE_S

    # A secret that was rotated signs beside the one before, whichever worker sends, from the next delivery on.
    api, path = hub.api(workers[1], source), f"/{source}"
    one = api.subscribe(sink.url(path))
    rotated = api.call("POST", f"/v1/subscriptions/{one['id']}/secret:rotate", {"overlap": "1h"})
    time.sleep(EVERYWHERE_S)  # the bound itself: from here on it must hold
    facts = [NewFact(id=f"{source}-{n}", tenant=source, source=source, body=b'{"n": %d}' % n) for n in range(5)]
    hub.send(facts)
    until(lambda: len(sink.requests(path)) >= len(facts), lambda: sink.requests(path))
    for request in sink.requests(path):
        headers = {name.lower(): value for name, value in request.headers}
        assert headers["webhook-signature"].count("v1,") == 2
        for secret in (one["secret"], rotated["secret"]):
            Webhook(secret).verify(request.body, headers)
    # Ended at once: only the newest signs.
    last = api.call("POST", f"/v1/subscriptions/{one['id']}/secret:rotate", {"overlap": "0s"})
    time.sleep(EVERYWHERE_S)
    before = len(sink.requests(path))
    hub.send([NewFact(id=f"{source}-last", tenant=source, source=source)])
    until(lambda: len(sink.requests(path)) > before, lambda: sink.requests(path))
    request = sink.requests(path)[-1]
    headers = {name.lower(): value for name, value in request.headers}
    assert headers["webhook-signature"].count("v1,") == 1
    Webhook(last["secret"]).verify(request.body, headers)
