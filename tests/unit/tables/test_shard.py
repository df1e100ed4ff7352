"""The store of one shard: what comes back, what ends, what is set aside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest
from rocksdict import AccessType, Options, Rdict

from hub_app.domain.errors import StoreFailed, StoreFull
from tables.memory import Family, Memory
from tables.shard import Identity, ShardStore

FAMILIES = (Family("rows", buffer_bytes=128 << 10), Family("ids", lookups=True, buffer_bytes=128 << 10))
IDENTITY = Identity("cluster-1", 0, 1)
Open = Callable[..., ShardStore]


def _open(folder: Path, identity: Identity = IDENTITY, families: tuple[Family, ...] = FAMILIES) -> ShardStore:
    # A budget of its own each time: a block that is cached would hide what became of the file.
    return ShardStore.open(folder, plane="inbox", shard=3, families=families, memory=Memory(), identity=identity)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "inbox" / "3"


@pytest.fixture
def store_at(folder: Path) -> Open:
    return partial(_open, folder)


def _fill(store: ShardStore, batches: int = 40) -> None:
    """Batch n: ten rows, ten ids, offset n + 1. So rows == 10 * offset, or something is missing."""
    for number in range(batches):
        batch = store.batch()
        batch.put_many("rows", ((b"%06d" % (number * 10 + i), os.urandom(300)) for i in range(10)))
        batch.put_many("ids", ((b"%06d" % (number * 10 + i), os.urandom(8)) for i in range(10)))
        batch.set_offset("hub.facts", number + 1)
        store.write(batch)


def _is_whole(store: ShardStore) -> bool:
    offset = store.offset("hub.facts") or 0
    return all(len(store.scan(name, b"", b"\xff", 100_000)) == 10 * offset for name in ("rows", "ids"))


# -- reading and writing -----------------------------------------------------------------------------------------------
def test_rows_and_offsets_of_a_batch_come_back_after_reopening(store_at: Open) -> None:
    store = store_at()
    batch = store.batch()
    batch.put("rows", b"a", b"1")
    batch.put_many("rows", [(b"b", b"2"), (b"c", b"3")])
    batch.set_offset("hub.facts", 7)
    assert len(batch) == 4
    store.write(batch)
    store.close()
    store = store_at()
    assert store.multi_get("rows", [b"c", b"none", b"a"]) == [b"3", None, b"1"]
    assert (store.offset("hub.facts"), store.offset("hub.queue"), store.offsets()) == (7, None, {"hub.facts": 7})
    store.close()


def test_scans_are_bounded_on_both_sides_and_in_number(store_at: Open) -> None:
    store = store_at()
    batch = store.batch()
    batch.put_many("rows", ((b"%d" % i, b"") for i in range(10)))
    store.write(batch)
    assert [key for key, _ in store.scan("rows", b"3", b"6", 100)] == [b"3", b"4", b"5"]
    assert [key for key, _ in store.scan("rows", b"3", b"6", 2)] == [b"3", b"4"]
    assert store.scan("rows", b"3", b"6", 0) == store.scan("rows", b"x", b"y", 5) == []
    assert store.last_before("rows", b"3", b"6") == (b"5", b"")
    assert store.last_before("rows", b"x", b"y") is None
    store.close()


def test_deletes_of_one_of_many_and_of_a_range(store_at: Open) -> None:
    store = store_at()
    batch = store.batch()
    batch.put_many("rows", ((b"%d" % i, b"") for i in range(10)))
    store.write(batch)
    batch = store.batch()
    batch.delete("rows", b"0")
    batch.delete_many("rows", [b"1", b"2"])
    batch.delete_range("rows", b"5", b"8")
    store.write(batch)
    assert [key for key, _ in store.scan("rows", b"", b"\xff", 100)] == [b"3", b"4", b"8", b"9"]
    store.close()


def test_an_emptied_family_is_empty_and_takes_new_rows(store_at: Open) -> None:
    store = store_at()
    _fill(store, 5)
    store.empty("ids")
    assert store.get("ids", b"000001") is None
    batch = store.batch()
    batch.put("ids", b"new", b"row")
    store.write(batch)
    store.close()
    store = store_at()
    assert store.scan("ids", b"", b"\xff", 100) == [(b"new", b"row")]
    assert len(store.scan("rows", b"", b"\xff", 100)) == 50
    store.close()


# -- ending ------------------------------------------------------------------------------------------------------------
def _nothing(store: ShardStore) -> object:
    return None


def _unwritten_batch(store: ShardStore) -> object:
    batch = store.batch()
    batch.put("rows", b"k", b"v")
    return batch


def _empty(store: ShardStore) -> object:
    return store.empty("ids")


def _refused_write(store: ShardStore) -> object:
    """A batch that names a family as it was before it was emptied, and the exception with its frames."""
    batch = store.batch()
    batch.put("ids", b"k", b"v")
    store.empty("ids")
    with pytest.raises(StoreFailed) as caught:
        store.write(batch)
    return caught


USES: dict[str, Callable[[ShardStore], object]] = {
    "nothing": _nothing,
    "get": lambda store: store.get("rows", b"a"),
    "multi-get": lambda store: store.multi_get("ids", [b"a", b"b"]),
    "half a scan": lambda store: store.scan("rows", b"", b"\xff", 3),
    "a whole scan": lambda store: store.scan("rows", b"", b"\xff", 10_000),
    "last before": lambda store: store.last_before("rows", b"", b"\xff"),
    "offsets": lambda store: (store.offsets(), store.behind_log({})),
    "a batch that is kept": _unwritten_batch,
    "an emptied family": _empty,
    "a refused write": _refused_write,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_closing_gives_the_folder_back_whatever_was_done(store_at: Open, use: Callable[[ShardStore], object]) -> None:
    store = store_at()
    _fill(store, 3)
    kept = use(store)
    store.close()
    again = store_at()
    assert again.aside is None
    again.close()
    again.close()
    del kept


def test_a_closed_store_refuses_and_says_which_it_is(store_at: Open) -> None:
    store = store_at()
    store.close()
    for use in (lambda: store.get("rows", b"a"), lambda: store.write(store.batch()), lambda: store.empty("ids")):
        with pytest.raises(StoreFailed, match="inbox/3") as caught:
            use()
        assert not caught.value.damaged


def test_whether_the_last_owner_closed_it_is_remembered(store_at: Open) -> None:
    store = store_at()
    assert not store.opened_clean  # a new one: whatever was before it, it was not closed well
    store.close()
    store = store_at()
    assert store.opened_clean
    store.close(clean=False)
    store = store_at()
    assert not store.opened_clean
    store.close()


# -- belonging ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Identity("cluster-2", 0, 1), "other-cluster"),
        (Identity("cluster-1", 1, 1), "epoch-changed"),
        (Identity("cluster-1", 0, 0), "schema-too-new"),
        (Identity("cluster-1", 0, 2), "schema-too-old"),
    ],
)
def test_a_store_that_does_not_belong_is_set_aside_whole(
    store_at: Open, folder: Path, other: Identity, reason: str
) -> None:
    store = store_at()
    _fill(store, 3)
    store.close()
    fresh = store_at(other)
    assert (fresh.aside, fresh.offsets(), fresh.opened_clean) == (reason, {}, False)
    fresh.close()
    (aside,) = [path for path in folder.parent.iterdir() if path != folder]
    assert aside.name.startswith(f"3.{reason}.")
    kept = _open(aside)
    assert _is_whole(kept)
    assert kept.offset("hub.facts") == 3
    kept.close()


def test_a_store_with_families_of_another_version_is_set_aside(store_at: Open) -> None:
    store_at(families=(*FAMILIES, Family("of-tomorrow"))).close()
    fresh = store_at()
    assert fresh.aside == "other-families"
    fresh.close()


def test_a_family_more_than_before_is_added(store_at: Open) -> None:
    store_at().close()
    more = store_at(families=(*FAMILIES, Family("new")))
    assert (more.aside, more.scan("new", b"", b"\xff", 1)) == (None, [])
    more.close()


@pytest.mark.parametrize(
    ("starts", "reason"),
    [({}, None), ({"hub.facts": 3}, None), ({"hub.facts": 4}, "offset-deleted"), ({"hub.queue": 9}, None)],
)
def test_a_store_whose_next_offset_was_deleted_from_the_log_is_behind(
    store_at: Open, starts: dict[str, int], reason: str | None
) -> None:
    store = store_at()
    _fill(store, 3)
    assert store.behind_log(starts) == reason
    store.close()


def test_setting_aside_twice_in_a_second_keeps_both(store_at: Open, folder: Path) -> None:
    paths = {store_at().set_aside("damaged") for _ in range(3)}
    assert len(paths) == 3
    assert all(path.is_dir() for path in paths)
    assert not folder.exists()


# -- damage ------------------------------------------------------------------------------------------------------------
_KILLED = """
import os, sys
from pathlib import Path
from tests.unit.tables.test_shard import _fill, _open
store = _open(Path(sys.argv[1]))
_fill(store, 100)
store.close()
store = _open(Path(sys.argv[1]))
_fill(store, 200)
os._exit(9)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a process that wrote 200 batches and ended without closing anything."""
    folder = tmp_path_factory.mktemp("killed") / "3"
    done = subprocess.run([sys.executable, "-c", _KILLED, str(folder)], check=False, timeout=60)
    assert done.returncode == 9
    return folder


def _in_use(folder: Path, kind: str) -> Path:
    """A file of that kind. Not every table file counts: some were in the making, or about to be removed."""
    if kind != "*.sst":
        (path,) = folder.glob(kind)
        return path
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(folder))}
    reader = Rdict(str(folder), Options(raw_mode=True), families, AccessType.read_only(error_if_log_file_exist=False))
    names = [file["name"] for file in reader.live_files()]
    reader.close()
    return folder / max(names).lstrip("/")


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "flipped":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :])
    elif how == "removed":
        path.unlink()
    else:
        path.write_bytes(data[: int(len(data) * float(how))])


def test_a_killed_process_loses_nothing_that_was_written(store_at: Open, folder: Path, killed: Path) -> None:
    copytree(killed, folder)
    store = store_at()
    assert (store.aside, store.offset("hub.facts"), store.opened_clean) == (None, 200, False)
    assert _is_whole(store)
    store.close()


@pytest.mark.parametrize("how", ["0", "0.5", "0.93", "flipped", "removed"])
@pytest.mark.parametrize("kind", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_damaged_files_end_in_a_fresh_store_and_the_old_one_is_kept(
    store_at: Open, folder: Path, killed: Path, kind: str, how: str
) -> None:
    copytree(killed, folder)
    _damage(_in_use(folder, kind), how)
    store = store_at()
    try:
        readable = _is_whole(store)
    except StoreFailed as failure:  # a block that only reading finds
        assert failure.damaged
        store.set_aside("damaged")
        store = store_at()
        readable = _is_whole(store)
    assert readable
    assert store.offsets() == {}
    store.close()
    assert [path.name[:10] for path in folder.parent.iterdir() if path != folder] == ["3.damaged."]


@pytest.mark.parametrize("how", ["0", "0.3", "0.5", "0.9", "flipped", "removed"])
@pytest.mark.parametrize("which", [-1, -2, -3])
def test_a_damaged_write_ahead_log_never_leaves_rows_out_under_a_newer_offset(
    store_at: Open, folder: Path, killed: Path, which: int, how: str
) -> None:
    copytree(killed, folder)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 4
    _damage(logs[which], how)
    store = store_at()
    assert _is_whole(store)
    assert (store.offset("hub.facts") or 0) < 200 or (which, how) == (-3, "removed")
    store.close()


def test_files_without_a_current_are_not_taken_for_a_new_store(store_at: Open, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "000004.sst").write_bytes(b"somebody's rows")
    fresh = store_at()
    assert fresh.aside == "damaged"
    fresh.close()


# -- no room -----------------------------------------------------------------------------------------------------------
_FULL = """
import resource, sys
from pathlib import Path
from hub_app.domain.errors import StoreFull
from tests.unit.tables.test_shard import _fill, _open
folder = Path(sys.argv[1])
store = _open(folder)
_fill(store, 3)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
try:
    _fill(store, 1_000)
except StoreFull as full:
    print(full.shard, full.damaged)
store.close()
resource.setrlimit(resource.RLIMIT_FSIZE, before)
store = _open(folder)
print(store.aside, len(store.scan("rows", b"", b"\\xff", 100_000)) >= 10 * store.offset("hub.facts"))
"""


def test_no_room_is_told_apart_and_the_store_lives_on_once_there_is_some(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(folder)], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:2] == ["inbox/3 False", "None True"]


def test_a_folder_that_cannot_be_made_is_one_clear_failure(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("a file where the folder should be")
    with pytest.raises(StoreFailed, match="inbox/3") as caught:
        _open(tmp_path / "inbox" / "3")
    assert not isinstance(caught.value, StoreFull)


def test_idle_stores_do_not_eat_the_budget_of_the_busy_ones(tmp_path: Path) -> None:
    """24 stores of 8 families, each with a megabyte: the large buffers are written out, whoever they belong to."""
    memory = Memory(block_cache_bytes=8 << 20, write_buffer_bytes=6 << 20)
    families = tuple(Family(f"f{i}", lookups=i % 2 == 0) for i in range(8))
    stores = [
        ShardStore.open(
            tmp_path / str(i), plane="dispatch", shard=i, families=families, memory=memory, identity=IDENTITY
        )
        for i in range(24)
    ]
    for store in stores:
        for number in range(100):
            batch = store.batch()
            batch.put_many(f"f{number % 8}", ((os.urandom(16), os.urandom(1_000)) for _ in range(10)))
            store.write(batch)
    assert _comes_down_to(memory, 12 << 20)
    assert memory.used_bytes() < 16 << 20
    for store in stores:
        assert len(store.scan("f0", b"", b"\xff" * 17, 1_000)) == 130
        store.close()


def _comes_down_to(memory: Memory, bound_bytes: int) -> bool:
    """Waits for the background, which may be slow; every write of the hub's looks again."""
    return any(memory.buffered_bytes() <= bound_bytes or memory.relieve() or time.sleep(0.01) for _ in range(2_000))
