"""Admission: first, re-read, duplicate, collision; and the window by broker time."""

from __future__ import annotations

import pytest

from hub_app.domain.admission import DIGEST_BYTES, Admission, Known, admit, digest, within_window
from hub_app.domain.limits import HOUR_MS

WINDOW = 168 * HOUR_MS
AT = 1_767_323_045_000
MARK, OTHER = b"m" * 16, b"o" * 16


@pytest.mark.parametrize(
    ("known", "seq", "mark", "at_ms", "expected"),
    [
        (None, 7, MARK, AT, Admission.FIRST),
        (Known(7, MARK, AT), 7, MARK, AT, Admission.REREAD),
        (Known(7, MARK, AT), 8, MARK, AT + 1, Admission.DUPLICATE),
        (Known(7, MARK, AT), 8, OTHER, AT + 1, Admission.COLLISION),
        # At the window's edge: strictly less than the window apart is a repeat.
        (Known(7, MARK, AT), 8, MARK, AT + WINDOW - 1, Admission.DUPLICATE),
        (Known(7, MARK, AT), 8, MARK, AT + WINDOW, Admission.FIRST),
        (Known(7, MARK, AT), 8, OTHER, AT + WINDOW - 1, Admission.COLLISION),
        (Known(7, MARK, AT), 8, OTHER, AT + WINDOW, Admission.FIRST),
        # The record itself again is that, however late (a rebuild) and whatever a digest says.
        (Known(7, MARK, AT), 7, MARK, AT + 2 * WINDOW, Admission.REREAD),
        # A record older than what is remembered was first in its day.
        (Known(100, MARK, AT + WINDOW), 7, MARK, AT, Admission.REREAD),
        (Known(100, OTHER, AT + WINDOW), 7, MARK, AT, Admission.REREAD),
        # A broker's clock that stepped back does not make a repeat new.
        (Known(7, MARK, AT), 8, MARK, AT - HOUR_MS, Admission.DUPLICATE),
        # A new epoch: the same offset again is a later seq.
        (Known((1 << 40) | 5, MARK, AT), (2 << 40) | 5, MARK, AT + 1, Admission.DUPLICATE),
    ],
)
def test_decisions(known: Known | None, seq: int, mark: bytes, at_ms: int, expected: Admission) -> None:
    assert admit(known, seq=seq, digest=mark, at_ms=at_ms, window_ms=WINDOW) is expected


def test_the_window_is_symmetric() -> None:
    assert within_window(AT, AT, 1)
    assert not within_window(AT, AT, 0)
    assert within_window(AT + 9, AT, 10)
    assert not within_window(AT + 10, AT, 10)


def test_a_digest_covers_type_and_payload() -> None:
    mark = digest("a.b", b"c")
    assert len(mark) == DIGEST_BYTES
    assert mark == digest("a.b", b"c")
    assert len({mark, digest("a.", b"bc"), digest("a.bc", b""), digest("a.b", b"C"), digest("", b"a.bc")}) == 5
    assert digest("1\x1f", b"x") != digest("1", b"\x1fx")
