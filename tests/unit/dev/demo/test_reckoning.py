"""The summary's reckoning: balanced books hold, and each way to be wrong fails the check that is there for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hub_app.dev.demo.logs import Ledger, Place
from hub_app.dev.demo.plan import COLLISION, Kind, Plan, webhook_id
from hub_app.dev.demo.reckoning import Books, Intake, intake, reckon
from hub_app.dev.facts import topic_of

GOOD, DEAD = "/good/aurora", "/dead/aurora"


def _ledger(plan: Plan) -> Ledger:
    """What Kafka holds when all went well: everything for dead endpoints was given up."""
    ledger = Ledger()
    for number, (kind, fact, reason) in enumerate(plan.records):
        place = Place(topic_of(fact.source), 0, number)
        ledger.produced.add(place)
        if kind is Kind.SYSTEM:
            ledger.system.add(place)
        if kind in (Kind.FACT, Kind.DUPLICATE) or reason == COLLISION:
            ledger.admitted[place] = webhook_id(fact)
        if kind is Kind.MALFORMED:
            ledger.quarantined[place] = reason
    ledger.dead = {path: set(events) for path, events in plan.expected().items() if path.startswith("/dead")}
    ledger.dead_why = {"exhausted after 5 attempts, last 500": ledger.dead_count()}
    return ledger


def _books(plan: Plan) -> Books:
    expected = plan.expected()
    delivered = {path: events for path, events in expected.items() if not path.startswith("/dead")}
    stats = {
        path: {
            "requests": len(events) * (3 if path.startswith("/flaky") else 1),
            "delivered": len(delivered.get(path, ())),
            "repeats": 0,
            "refused": 0,
            "unsigned": 0,
        }
        for path, events in expected.items()
    }
    return Books(plan, _ledger(plan), delivered, stats, (0, 0))


@pytest.fixture
def books() -> Books:
    return _books(Plan("r1", 400))


def _failed(books: Books) -> set[str]:
    return {check.name for check in reckon(books) if not check.ok}


def test_balanced_books_hold(books: Books) -> None:
    assert _failed(books) == set()
    details = {check.name: check.detail for check in reckon(books)}
    assert details["records"] == "419 produced = 400 accepted + 8 duplicates + 9 quarantined + 2 dropped"


def test_intake_counts_each_record_once(books: Books) -> None:
    assert intake(books.ledger) == Intake(419, 400, 8, 9, 2)


def _one(places: Any) -> Any:
    return next(iter(places))


def _fact_lost_on_the_way_in(books: Books) -> Books:
    events = list(books.ledger.admitted.values())
    del books.ledger.admitted[next(p for p, event in books.ledger.admitted.items() if events.count(event) == 1)]
    return books


def _never_written(books: Books) -> Books:
    place = _one(books.ledger.system)
    books.ledger.produced.discard(place)
    books.ledger.system.discard(place)
    return books


def _quarantined_for_another_reason(books: Books) -> Books:
    place = next(p for p, reason in books.ledger.quarantined.items() if reason != COLLISION)
    books.ledger.quarantined[place] = "payload_too_large"
    return books


def _delivery_lost(books: Books) -> Books:
    return books._replace(delivered={**books.delivered, GOOD: books.delivered[GOOD] - {_one(books.delivered[GOOD])}})


def _dead_letter_lost(books: Books) -> Books:
    books.ledger.dead[DEAD].pop()
    return books


def _delivered_to_another_tenant(books: Books) -> Books:
    foreign = _one(books.delivered["/good/boreal"])
    return books._replace(delivered={**books.delivered, GOOD: books.delivered[GOOD] | {foreign}})


def _badly(name: str, count: int) -> Callable[[Books], Books]:
    def changed(books: Books) -> Books:
        return books._replace(stats={**books.stats, GOOD: {**books.stats[GOOD], name: count}})

    return changed


def _retried_too_little(books: Books) -> Books:
    return books._replace(stats={**books.stats, "/flaky/aurora": {**books.stats["/flaky/aurora"], "requests": 1}})


def _nothing_died(books: Books) -> Books:
    books.ledger.dead_why.clear()
    return books


def _unreadable(books: Books) -> Books:
    books.ledger.unreadable = 1
    return books


@pytest.mark.parametrize(
    ("spoil", "failed"),
    [
        (_fact_lost_on_the_way_in, {"records", "none lost on the way in", "as planned"}),
        (_never_written, {"records", "as planned"}),
        (_quarantined_for_another_reason, {"quarantined for what is wrong"}),
        (_delivery_lost, {"deliveries", "none lost on the way out"}),
        (_dead_letter_lost, {"deliveries", "none lost on the way out"}),
        (_delivered_to_another_tenant, {"deliveries", "none astray"}),
        (_badly("refused", 1), {"signed"}),
        (_badly("unsigned", 1), {"signed"}),
        (_badly("repeats", 100), {"repeats"}),
        (_retried_too_little, {"retried"}),
        (_nothing_died, {"given up"}),
        (_unreadable, {"given up"}),
        (lambda books: books._replace(statuses=(0, -9)), {"workers ended well"}),
    ],
)
def test_what_is_wrong_is_said(books: Books, spoil: Callable[[Books], Books], failed: set[str]) -> None:
    assert _failed(spoil(books)) == failed


def test_delivered_and_given_up_is_neither_lost_nor_hidden(books: Books) -> None:
    """An answer that was lost on its way: the sink took the event, the hub could not know."""
    event = _one(books.ledger.dead[DEAD])
    changed = books._replace(delivered={**books.delivered, DEAD: frozenset({event})})
    assert _failed(changed) == set()
    [detail] = [check.detail for check in reckon(changed) if check.name == "deliveries"]
    assert detail.endswith("dead-lettered - 1 both")


def test_the_lost_are_named_but_not_all(books: Books) -> None:
    spoiled = books._replace(delivered={**books.delivered, GOOD: frozenset()})
    [detail] = [check.detail for check in reckon(spoiled) if check.name == "none lost on the way out"]
    count = len(books.delivered[GOOD])
    assert detail.startswith(f"{count}: evt_")
    assert detail.count(" at /good/aurora") == 3
    assert detail.endswith(", …")
