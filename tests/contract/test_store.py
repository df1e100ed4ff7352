"""The store in memory is one of tables: it passes what the simulation and the agents need of the real one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hub_app.domain.errors import StoreFailed
from tables.logs import made_anew, note_logs
from tables.memory import Family, Memory
from tables.shard import Identity, ShardStore
from tests.fakes.store import Disk, MemoryStore

FAMILIES = (Family("rows", buffer_bytes=128 << 10), Family("ids", lookups=True, buffer_bytes=128 << 10))
IDENTITY = Identity("cluster-1", 0, 1)
Open = Callable[..., Any]


@pytest.fixture(params=["rocksdb", "memory"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    asked: dict[str, Any] = {"plane": "inbox", "shard": 3, "families": FAMILIES, "identity": IDENTITY}
    if request.param == "memory":
        return partial(MemoryStore.open, Disk(), tmp_path / "inbox" / "3", **asked)
    return partial(ShardStore.open, tmp_path / "inbox" / "3", memory=Memory(), **asked)


def _write(store: Any, **rows: bytes) -> None:
    batch = store.batch()
    batch.put_many("rows", [(key.encode(), value) for key, value in rows.items()])
    store.write(batch)


def test_a_batch_is_written_in_its_order(open_store: Open) -> None:
    store = open_store()
    batch = store.batch()
    batch.put("rows", b"a", b"1")
    batch.delete("rows", b"a")
    batch.put("rows", b"b", b"1")
    batch.put("rows", b"b", b"2")
    batch.put_many("ids", [(b"%d" % n, b"") for n in range(8)])
    batch.delete_range("ids", b"2", b"5")
    batch.delete_many("ids", [b"7", b"none"])
    batch.set_offset("hub.facts", 7)
    assert store.get("rows", b"b") is None
    store.write(batch)
    assert store.multi_get("rows", [b"b", b"a", b"b"]) == [b"2", None, b"2"]
    assert [key for key, _ in store.scan("ids", b"", b"\xff", 100)] == [b"0", b"1", b"5", b"6"]
    assert (store.offset("hub.facts"), store.offset("hub.queue"), store.offsets()) == (7, None, {"hub.facts": 7})
    store.close()


def test_which_logs_a_folder_has_read(open_store: Open) -> None:
    """Nothing is said of a topic that was never noted, or whose id is unknown now."""
    store = open_store()
    assert made_anew(store, {"hub.facts": b"1" * 16}) == []
    note_logs(store, {})
    note_logs(store, {"hub.facts": b"1" * 16, "hub.deliveries": b"2" * 16})
    store.close()
    store = open_store()
    assert made_anew(store, {}) == made_anew(store, {"hub.facts": b"1" * 16, "hub.queue": b"3" * 16}) == []
    assert made_anew(store, {"hub.facts": b"1" * 16, "hub.deliveries": b"3" * 16}) == ["hub.deliveries"]
    assert (store.offsets(), store.opened_clean) == ({}, True)
    store.close()


def test_scans(open_store: Open) -> None:
    store = open_store()
    _write(store, **{str(n): b"" for n in range(10)})
    assert [key for key, _ in store.scan("rows", b"3", b"6", 100)] == [b"3", b"4", b"5"]
    assert [key for key, _ in store.scan("rows", b"3", b"6", 2)] == [b"3", b"4"]
    assert store.scan("rows", b"3", b"6", 0) == store.scan("rows", b"x", b"y", 5) == []
    assert store.last_before("rows", b"3", b"6") == (b"5", b"")
    assert store.last_before("rows", b"x", b"y") is None
    store.close()


def test_a_family_is_emptied(open_store: Open) -> None:
    store = open_store()
    _write(store, a=b"1")
    store.empty("rows")
    assert store.scan("rows", b"", b"\xff", 10) == []
    _write(store, b=b"2")
    assert store.get("rows", b"b") == b"2"
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_written_is_there_when_it_is_opened_again(open_store: Open, *, clean: bool) -> None:
    store = open_store()
    assert (store.fresh, store.opened_clean, store.aside) == (True, False, None)
    _write(store, a=b"1")
    store.close(clean=clean)
    store.close()
    again = open_store()
    assert (again.fresh, again.opened_clean, again.get("rows", b"a")) == (False, clean, b"1")
    again.close()


def test_one_at_a_time(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(StoreFailed):
        open_store()
    store.close()
    open_store().close()


def test_a_closed_store_fails(open_store: Open) -> None:
    store = open_store()
    batch = store.batch()
    store.close()
    for use in (
        partial(store.get, "rows", b"a"),
        partial(store.multi_get, "rows", [b"a"]),
        partial(store.scan, "rows", b"", b"\xff", 1),
        partial(store.write, batch),
        partial(store.empty, "rows"),
        partial(store.offset, "hub.facts"),
    ):
        with pytest.raises(StoreFailed, match="inbox/3"):
            use()
    with pytest.raises(KeyError):
        store.batch().put("rows", b"a", b"1")


@pytest.mark.parametrize(
    "identity", [Identity("cluster-2", 0, 1), Identity("cluster-1", 1, 1), IDENTITY._replace(schema_version=2)]
)
def test_one_of_another_identity_is_set_aside(open_store: Open, identity: Identity) -> None:
    store = open_store()
    _write(store, a=b"1")
    store.close()
    other = open_store(identity=identity)
    assert (other.aside is not None, other.fresh, other.get("rows", b"a")) == (True, True, None)
    other.close()


def test_set_aside_leaves_room_for_a_new_one(open_store: Open) -> None:
    store = open_store()
    _write(store, a=b"1")
    store.set_aside("damaged")
    again = open_store()
    assert again.get("rows", b"a") is None
    again.close()
