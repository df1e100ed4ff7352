"""Whether the books balance: the producer's plan against Kafka's logs and the sink's ledger. Pure.

The hub's own counters are shown while it runs and are not believed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from hub_app.dev.demo.logs import Ledger
from hub_app.dev.demo.plan import COLLISION, Kind, Plan

SHOWN_MAX = 3


class Check(NamedTuple):
    """One line of the summary."""

    name: str
    ok: bool
    detail: str


class Books(NamedTuple):
    """Everything that is compared. `delivered`: what each endpoint took, by its path; `stats`: its counters, as
    `/_stats` of the sink has them; `statuses`: how each worker ended (0 is well)."""

    plan: Plan
    ledger: Ledger
    delivered: Mapping[str, frozenset[str]]
    stats: Mapping[str, Mapping[str, int | None]]
    statuses: tuple[int, ...]


class Intake(NamedTuple):
    """The records of the producers' topics, each counted once."""

    produced: int
    accepted: int
    duplicates: int
    quarantined: int
    dropped: int


def intake(ledger: Ledger) -> Intake:
    """`accepted` are events; a further record of the same event is a duplicate, or a collision, which is in quarantine.
    What is in no topic of the hub, and says it is a system event, was dropped."""
    collided = {place for place, reason in ledger.quarantined.items() if reason == COLLISION}
    admitted = {place: event for place, event in ledger.admitted.items() if place not in collided}
    accepted = len(set(admitted.values()))
    dropped = ledger.system - ledger.admitted.keys() - ledger.quarantined.keys()
    return Intake(
        len(ledger.produced), accepted, len(admitted) - accepted, len(ledger.quarantined.keys()), len(dropped)
    )


def reckon(books: Books) -> list[Check]:
    """Every check, in the order of the journey."""
    return [*_taken_in(books.plan, books.ledger), *_sent_out(books), *_well_behaved(books)]


def _taken_in(plan: Plan, ledger: Ledger) -> Iterator[Check]:
    counted = intake(ledger)
    written = counted.accepted + counted.duplicates + counted.quarantined + counted.dropped
    yield Check(
        "records",
        counted.produced == len(plan.records) == written,
        f"{counted.produced} produced = {counted.accepted} accepted + {counted.duplicates} duplicates"
        f" + {counted.quarantined} quarantined + {counted.dropped} dropped",
    )
    without = ledger.produced - ledger.admitted.keys() - ledger.quarantined.keys() - ledger.system
    yield Check("none lost on the way in", not without, _some(map(str, without)) or "each is in hub.facts or set aside")
    planned = (plan.count(Kind.FACT), plan.count(Kind.DUPLICATE), plan.count(Kind.MALFORMED), plan.count(Kind.SYSTEM))
    yield Check(
        "as planned", planned == counted[1:], "{} facts, {} again, {} malformed, {} of the system".format(*planned)
    )
    wanted = Counter(planned.reason for planned in plan.records if planned.kind is Kind.MALFORMED)
    reasons = Counter(ledger.quarantined.values())
    shown = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    yield Check("quarantined for what is wrong", reasons == wanted, shown)


def _sent_out(books: Books) -> Iterator[Check]:
    """Every accepted fact of each subscription is delivered or dead-lettered, and nothing else is."""
    lost, strange, ended, delivered, dead, both = [], [], 0, 0, 0, 0
    for path, expected in books.plan.expected().items():
        took, died = books.delivered.get(path, frozenset()), books.ledger.dead.get(path, set())
        lost += [f"{event} at {path}" for event in expected - took - died]
        strange += [f"{event} at {path}" for event in (took | died) - expected]
        ended += len(expected)
        delivered, dead, both = delivered + len(took), dead + len(died), both + len(took & died)
    balance = f"{ended} deliveries = {delivered} delivered + {dead} dead-lettered"
    yield Check("deliveries", not lost and not strange, balance + (f" - {both} both" if both else ""))
    yield Check("none lost on the way out", not lost, _some(lost) or "each was delivered or dead-lettered")
    yield Check("none astray", not strange, _some(strange) or "no tenant got what it did not ask for")


def _well_behaved(books: Books) -> Iterator[Check]:
    def total(name: str, manner: str = "") -> int:
        return sum(one.get(name) or 0 for path, one in books.stats.items() if path.startswith(f"/{manner}"))

    forged, unsigned = total("refused"), total("unsigned")
    requests = total("requests")
    yield Check(
        "signed", not forged and not unsigned, f"{requests} requests, {forged + unsigned} without a good signature"
    )
    flaky, tries = total("delivered", "flaky"), total("requests", "flaky")
    yield Check("retried", tries >= 3 * flaky > 0, f"{flaky} deliveries to flaky endpoints took {tries} requests")
    why = "; ".join(f"{count} {why}" for why, count in sorted(books.ledger.dead_why.items()))
    yield Check("given up", bool(why) and not books.ledger.unreadable, why or "no dead letter was seen")
    yield Check("repeats", total("repeats") <= requests // 100, f"{total('repeats')} deliveries came twice")
    ended = ", ".join(map(str, books.statuses))
    yield Check("workers ended well", not any(books.statuses), f"exit status {ended}")


def _some(names: Iterable[str]) -> str:
    """The first few, and how many there are; empty for none."""
    found = sorted(names)
    return f"{len(found)}: {', '.join(found[:SHOWN_MAX])}{', …' if len(found) > SHOWN_MAX else ''}" if found else ""
