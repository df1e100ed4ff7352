"""What an attempt came to, for every status and failure kind."""

from __future__ import annotations

import pytest

from hub_app.domain.classify import FAILURE_KINDS, OURS, answered, not_tried, too_large, unanswered
from hub_app.domain.delivery import Result, ResultKind


@pytest.mark.parametrize("status", range(200, 600))
def test_every_final_status(status: int) -> None:
    result = answered(status, "7")
    if status < 300:
        assert result == Result(ResultKind.DELIVERED, status)
    else:
        assert result == Result(ResultKind.FAILED, status, f"http_{status}", "", "7")


@pytest.mark.parametrize("kind", sorted(FAILURE_KINDS))
def test_every_failure_is_charged(kind: str) -> None:
    assert unanswered(kind, "why") == Result(ResultKind.FAILED, None, kind, "why")


def test_an_unknown_failure_is_charged_too() -> None:
    assert unanswered("novel").kind is ResultKind.FAILED


@pytest.mark.parametrize("kind", sorted(OURS))
def test_our_own_faults_are_not_charged(kind: str) -> None:
    assert unanswered(kind, "why") == not_tried(kind, "why") == Result(ResultKind.NOT_CHARGED, None, kind, "why")


def test_too_large() -> None:
    assert too_large("300000 bytes") == Result(ResultKind.TOO_LARGE, None, "payload_too_large", "300000 bytes")
