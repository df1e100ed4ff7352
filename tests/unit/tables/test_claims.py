"""The claim file: what a process leaves, and what of a damaged one is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tables.claims import Claim, ClaimFile

ONE, TWO = Claim(1, 0, 1_767_323_045_000), Claim(7, 4, 1_767_323_055_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Left by a process that had two jobs in hand, and had let a third go."""
    path = tmp_path / "claims"
    left = ClaimFile(path, 8)
    left.take(3, b"a" * 16, ONE)
    left.release(left.take(3, b"c" * 16, ONE))
    left.take(11, b"b" * 16, TWO)
    return path


def test_what_was_in_hand_is_there_for_the_next_process(path: Path) -> None:
    found = ClaimFile(path, 4)
    assert (found.left, found.damaged) == ({3: {b"a" * 16: ONE}, 11: {b"b" * 16: TWO}}, "")
    assert ClaimFile(path, 4).left == {}


def test_a_slot_that_is_not_what_was_written_is_left_out(path: Path) -> None:
    """A deadline of no sense would hold its job for ever."""
    data = bytearray(path.read_bytes())
    where = data.index(b"a" * 16)
    data[where + 22] ^= 0x40
    path.write_bytes(data)
    found = ClaimFile(path, 8)
    assert found.left == {11: {b"b" * 16: TWO}}
    assert found.damaged
    [aside] = path.parent.glob("claims.damaged.*")
    assert aside.read_bytes() == data


@pytest.mark.parametrize("data", [b"\xc1" * 4_096, bytes(range(256)) * 16, b"\xc1", b"no claims"])
def test_a_file_of_something_else_is_put_aside(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    found = ClaimFile(path, 8)
    assert found.left == {}
    assert found.damaged
    assert len(list(path.parent.glob("claims.damaged.*"))) == 1
    found.take(0, b"d" * 16, ONE)
    assert ClaimFile(path, 8).left == {0: {b"d" * 16: ONE}}


def test_a_folder_in_its_place_is_put_aside(path: Path) -> None:
    path.unlink()
    (path / "within").mkdir(parents=True)
    assert ClaimFile(path, 8).damaged
    assert path.is_file()
