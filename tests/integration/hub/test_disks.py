"""Disks that lie and disks that are full: what is on them is a working copy, and nothing is committed beyond it."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Api, Worker
from tests.integration.hub.conftest import MakeDeployment
from tests.support.damaging import flip_tables, garble
from tests.support.deployment import SHARDS, Deployment, facts
from tests.support.sink import RecordingSink, Reply, webhook_id
from tests.support.stream import repeats
from tests.support.waiting import until

TENANTS = [f"tenant-{i}" for i in range(12)]  # some in every shard
FILE_BYTES_MAX = 512 << 10


# -- damage ------------------------------------------------------------------------------------------------------------
def flip(path: Path) -> None:
    """A few bytes in the midst of a file."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    path.write_bytes(data)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


DAMAGE: tuple[Callable[[Path], None], ...] = (
    lambda folder: [flip(path) for path in folder.glob("*.sst")] and None,
    lambda folder: halve(largest(folder, "MANIFEST-*")),
    lambda folder: (folder / "CURRENT").write_text("MANIFEST-999999\n") and None,
    lambda folder: [path.unlink() for path in folder.glob("*.sst")] and None,
)


def test_damaged_folders_are_set_aside_and_rebuilt(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    """Every shard of both planes at once, in four ways; with deliveries made and deliveries waiting."""
    hub = make_hub(
        instance_id="one", backoff=",".join(["4s"] * 9), dispatch_timeout="1s", dispatch_connect_timeout="1s"
    )
    worker = hub.started()
    good, later = f"/{hub.run_id}/good", f"/{hub.run_id}/later"
    mended: list[bool] = []
    sink.behave(later, lambda request: Reply(200 if mended else 503))
    for tenant in TENANTS:
        api = hub.api(worker, tenant)
        api.subscribe(sink.url(good), "loan_application.*")
        api.subscribe(sink.url(later), "account.*")
    source = hub.source("damage")
    done = facts(source, 3_000, tenants=TENANTS, body=b'{"text":"' + b"x" * 700 + b'"}')
    waiting = [fact._replace(id=f"w-{fact.id}", resource="account") for fact in done[:120]]
    hub.send([*done, *waiting])
    sink.wait_for(good, map(webhook_id, done))
    sink.wait_for(later, map(webhook_id, waiting))
    assert worker.stop() == 0
    for plane in ("inbox", "dispatch"):
        for shard, damage in enumerate(DAMAGE):
            damage(worker.data / plane / str(shard))
    worker.start().wait_ready()
    mended.append(True)
    more = facts(source, 300, tenants=TENANTS, start=10_000)
    hub.send([*done[:500], *more])  # the first are known, also to the rebuilt ones
    sink.wait_for(good, map(webhook_id, more))
    until(lambda: delivered(hub, waiting) == len(waiting), lambda: delivered(hub, waiting), seconds=45)
    assert repeats(sink, good, [webhook_id(fact) for fact in [*done, *more]]) == 0
    for tenant in TENANTS:
        mine = {fact.id for fact in [*done, *waiting, *more] if fact.tenant == tenant}
        assert set(pulled(hub, worker, tenant)) == mine
    for plane in ("inbox", "dispatch"):
        aside = {int(path.name.split(".")[0]) for path in (worker.data / plane).glob("*.damaged.*")}
        assert aside == set(range(SHARDS)), plane
    assert worker.get("/readyz")[0] == 200


def test_rows_of_no_sense_and_damage_that_shows_while_it_runs(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    """RocksDB opens such folders. Deliveries wait; the claim file is bad too."""
    hub = make_hub(
        instance_id="one", backoff=",".join(["4s"] * 9), dispatch_timeout="1s", dispatch_connect_timeout="1s"
    )
    worker = hub.started()
    later, mended = f"/{hub.run_id}/later", list[bool]()
    sink.behave(later, lambda request: Reply(200 if mended else 503))
    apis = [hub.api(worker, tenant) for tenant in TENANTS]
    for api in apis:
        api.subscribe(sink.url(later))
    sent = facts(hub.source("rows"), 600, tenants=TENANTS, body=b'{"text":"' + b"x" * 700 + b'"}')
    hub.send(sent)
    sink.wait_for(later, map(webhook_id, sent))
    assert worker.stop() == 0
    garble("due")(worker.data / "dispatch" / "0")
    garble("offsets", f"{hub.prefix}deliveries".encode())(worker.data / "dispatch" / "1")
    garble("offsets", f"{hub.prefix}facts".encode())(worker.data / "inbox" / "0")
    (worker.data / "claims").write_bytes(b"\xc1" * 64)
    worker.start().wait_ready()
    assert worker.metric("hub_shards_set_aside_total") == 3
    for shard in (1, 2):
        flip_tables(worker.data / "inbox" / str(shard))
    until(lambda: all_pulled(apis, len(sent)), worker.log_tail, seconds=40)
    until(lambda: worker.get("/readyz")[0] == 200, lambda: worker.get("/readyz"))
    mended.append(True)
    until(lambda: delivered(hub, sent) == len(sent), lambda: delivered(hub, sent), seconds=45)
    aside = sorted(path.parent.name + path.name.split(".")[0] for path in worker.data.glob("*/*.damaged.*"))
    assert aside == ["dispatch0", "dispatch1", "inbox0", "inbox1", "inbox2"]
    log = worker.log_path.read_text()
    assert (log.count("shard_set_aside"), log.count("claims_set_aside")) == (5, 1)


def all_pulled(apis: list[Api], count: int) -> bool:
    """Whether the tenants' pages hold everything. A page that meets damage is refused; the next finds it mended."""
    found = 0
    for api in apis:
        try:
            found += len(api.call("GET", "/v1/events?after=start&limit=500")["events"])
        except RuntimeError:
            return False
    return found == count


def delivered(hub: Deployment, wanted: list[NewFact]) -> int:
    ids = {fact.id.encode() for fact in wanted}
    found = {
        headers["ce-id"]
        for headers in (dict(r.headers) for r in hub.records("attempts"))
        if headers.get("hub-outcome") == b"delivered"
    }
    return len(ids & found)


def pulled(hub: Deployment, worker: Worker, tenant: str) -> Iterator[str]:
    """Ids in the order of their seq, each once."""
    api, after = hub.api(worker, tenant), "start"
    while True:
        page = api.call("GET", f"/v1/events?after={after}&limit=500")
        yield from (event["id"] for event in page["events"])
        if not page["events"]:
            return
        after = page["next"]


# -- no room -----------------------------------------------------------------------------------------------------------
def limit_files(worker: Worker, size: int) -> None:
    """No file of the worker may grow past `size`: what a full disk is to RocksDB, and needs no privilege."""
    _, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_a_full_disk_stops_the_shard_and_nothing_is_lost(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    hub = make_hub(instance_id="one", dispatch_timeout="1s", dispatch_connect_timeout="1s")
    worker = hub.started()
    path = f"/{hub.run_id}"
    for tenant in TENANTS:
        hub.api(worker, tenant).subscribe(sink.url(path))
    source = hub.source("full")
    before = facts(source, 200, tenants=TENANTS)
    hub.send(before)
    sink.wait_for(path, map(webhook_id, before))
    limit_files(worker, FILE_BYTES_MAX)
    made = facts(source, 3_000, tenants=TENANTS, start=1_000, body=b'{"text":"' + b"x" * 4_000 + b'"}')
    hub.send(made)
    until(lambda: full(worker), lambda: worker.get("/readyz"))
    assert worker.get("/healthz")[0] == 200
    behind = {shard: hub.lag("inbox", "facts", shard) for shard in range(SHARDS)}
    assert any(behind.values())
    limit_files(worker, resource.RLIM_INFINITY)
    sink.wait_for(path, map(webhook_id, made), seconds=90)
    until(lambda: worker.get("/readyz")[0] == 200, lambda: worker.get("/readyz"))
    assert worker.alive()
    for tenant in TENANTS:
        mine = {fact.id for fact in [*before, *made] if fact.tenant == tenant}
        ids = list(pulled(hub, worker, tenant))
        assert len(ids) == len(set(ids))
        assert set(ids) == mine
    until(lambda: not any(hub.lag("inbox", "facts", shard) for shard in range(SHARDS)), "everything is committed")


def full(worker: Worker) -> list[str]:
    """Shards that say that there is no room."""
    status, text = worker.get("/readyz")
    found = json.loads(text)["reasons"] if status == 503 else []
    return [reason["name"] for reason in found if "File too large" in reason["detail"]]
