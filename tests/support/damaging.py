"""Ways in which a RocksDB folder, or a row in it, goes bad. Each takes a closed folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rocksdict import Options, Rdict, WriteBatch

Damage = Callable[[Path], None]


def flip(path: Path, start: int, count: int = 64) -> None:
    """Turns every bit of some bytes over."""
    data = bytearray(path.read_bytes())
    data[start : start + count] = bytes(byte ^ 0xFF for byte in data[start : start + count])
    path.write_bytes(data)


def flip_tables(folder: Path) -> None:
    """The first block of every table file, which only reading it finds."""
    for path in tables(folder):
        flip(path, 4, 8)


def remove_tables(folder: Path) -> None:
    for path in tables(folder):
        path.unlink()


def empty_current(folder: Path) -> None:
    (folder / "CURRENT").write_bytes(b"")


def halve_manifest(folder: Path) -> None:
    (path,) = folder.glob("MANIFEST-*")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def tables(folder: Path) -> list[Path]:
    """The table files; AssertionError when there is none to damage."""
    found = sorted(folder.glob("*.sst"))
    assert found
    return found


def garble(family: str, key: bytes | None = None) -> Damage:
    """Puts bytes of no sense in the place of every row of a family, or under `key`."""

    def damage(folder: Path) -> None:
        families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(folder))}
        database = Rdict(str(folder), Options(raw_mode=True), column_families=families)
        table, handle, batch = database.get_column_family(family), database.get_column_family_handle(family), None
        batch = WriteBatch(raw_mode=True)
        keys = [key] if key is not None else list(table.keys())
        assert keys, f"no row in {family}"
        for each in keys:
            batch.put(each, b"\xfb" + os.urandom(40), handle)
        database.write(batch)
        table.close()
        del handle, batch
        database.close()

    return damage


FILES: dict[str, Damage] = {
    "tables flipped": flip_tables,
    "tables gone": remove_tables,
    "CURRENT empty": empty_current,
    "MANIFEST halved": halve_manifest,
}
