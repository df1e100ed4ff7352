"""The tree of errors: every class says whose fault it is, and when it strikes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hub_app.domain import errors
from hub_app.domain.errors import FolderInUse, HubError, OutcomeUnknown, Refused, SettingsRefused


def tree(root: type[HubError]) -> Iterator[type[HubError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


@pytest.mark.parametrize("error", [error for error in tree(HubError) if error.__module__ == errors.__name__])
def test_every_class_answers(error: type[HubError]) -> None:
    assert error.fault in {"operator", "kafka", "hub", "nobody"}
    assert error.phase in {"before", "during", "after"}
    assert error.__doc__
    assert error.__name__ in (errors.__doc__ or "")


def test_the_exit_status_of_a_refusal() -> None:
    assert SettingsRefused.exit_status == Refused.exit_status == 78
    assert FolderInUse.exit_status == 75


def test_only_an_abandoned_send_strikes_after() -> None:
    assert [error for error in tree(HubError) if error.phase == "after"] == [OutcomeUnknown]
