"""What the demo publishes, who wants it, and so what must arrive. Pure: the same run and count make the same plan, in
the process that produces and in the one that reckons."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from hub_app.dev.facts import NewFact
from hub_app.domain.ids import event_id

TENANTS: Final = ("aurora", "boreal", "cometa")
DUPLICATE_SHARE: Final = 0.02
MALFORMED_SHARE: Final = 0.01
SYSTEM_SHARE: Final = 0.004


class Wish(NamedTuple):
    """A subscription that every tenant has: to which of the sink's endpoints, for what."""

    manner: str
    event_types: tuple[str, ...]
    timeout_ms: int
    what: str

    def path(self, tenant: str) -> str:
        return f"/{self.manner}/{tenant}"


# A healthy destination gets at most half of a worker's attempts at once, a failing one few: the shares are such that
# each is done in the time of a demo.
WISHES: Final = (
    Wish("good", ("*",), 5_000, "answers at once"),
    Wish("slow", ("payment.*",), 5_000, "answers after 300 to 800 ms"),
    Wish("flaky", ("loan_application.*",), 5_000, "fails twice, then works"),
    Wish("dead", ("account.closed",), 500, "always fails, or hangs"),
)


class Sort(NamedTuple):
    application: str
    resource: str
    event: str
    weight: int


SORTS: Final = (
    Sort("ledger", "transfer", "booked", 59),
    Sort("lender", "loan_application", "approved", 10),
    Sort("lender", "loan_application", "declined", 5),
    Sort("ledger", "account", "opened", 14),
    Sort("ledger", "payment", "settled", 6),
    Sort("ledger", "payment", "refunded", 3),
    Sort("ledger", "account", "closed", 3),
)
APPLICATIONS: Final = tuple(dict.fromkeys(sort.application for sort in SORTS))


class Kind(StrEnum):
    FACT = "fact"
    DUPLICATE = "duplicate"
    MALFORMED = "malformed"
    SYSTEM = "system"


class Planned(NamedTuple):
    """One record to be written; `reason` is that of its quarantine, where it belongs there."""

    kind: Kind
    fact: NewFact
    reason: str = ""


COLLISION: Final = "id_collision"
# Reason -> the headers that make an ordinary fact deserve it.
FAULTS: Final[dict[str, tuple[tuple[str, bytes | None], ...]]] = {
    "missing_attribute": (("ce-id", None),),
    "empty_attribute": (("ce-subject", b""),),
    "wrong_specversion": (("ce-specversion", b"0.3"),),
    "malformed_attribute": (("ce-time", b"yesterday"),),
    "not_utf8": (("ce-subject", b"\xff\xfe"),),
    "topic_mismatch": (("ce-source", b"somebody-else"),),
    "type_mismatch": (("ce-type", b"studio.lerian.ledger.transfer.vanished"),),
    "no_tenant": (("ce-tenantid", None),),
    COLLISION: (),
}


class Plan:
    """`run` makes ids unlike those of any other run; `suffix` the names of the applications, for a Kafka that others
    use too. `facts` counts the genuine ones, to which duplicates, malformed records and system events are added."""

    def __init__(self, run: str, facts: int, suffix: str = "") -> None:
        self.run, self.facts, self.suffix = run, facts, suffix
        self.sources = tuple(application + suffix for application in APPLICATIONS)
        dice = random.Random(f"{run} {facts}")
        genuine = [self._genuine(dice, number) for number in range(facts)]
        placed = [(float(number), Planned(Kind.FACT, fact)) for number, fact in enumerate(genuine)]
        placed += self._extra(dice, genuine)
        self.records: tuple[Planned, ...] = tuple(planned for _, planned in sorted(placed, key=lambda one: one[0]))

    def count(self, kind: Kind) -> int:
        return sum(planned.kind is kind for planned in self.records)

    def expected(self) -> dict[str, frozenset[str]]:
        """The events that each endpoint must be sent, by path of the endpoint."""
        genuine = [planned.fact for planned in self.records if planned.kind is Kind.FACT]
        return {
            wish.path(tenant): frozenset(
                webhook_id(fact) for fact in genuine if fact.tenant == tenant and wanted(wish.event_types, fact)
            )
            for tenant in TENANTS
            for wish in WISHES
        }

    def _genuine(self, dice: random.Random, number: int) -> NewFact:
        [sort] = dice.choices(SORTS, [sort.weight for sort in SORTS])
        body = {"number": number, "amount": f"{dice.randrange(1, 10**6) / 100:.2f}", "note": dice.randbytes(150).hex()}
        return NewFact(
            id=f"{self.run}-{number}",
            tenant=TENANTS[number % len(TENANTS)],
            source=sort.application + self.suffix,
            resource=sort.resource,
            event=sort.event,
            body=json.dumps(body).encode(),
        )

    def _extra(self, dice: random.Random, genuine: Sequence[NewFact]) -> Iterable[tuple[float, Planned]]:
        """Each somewhere after the fact it was made of, so that a repeat repeats what came before."""

        def somewhere() -> tuple[float, NewFact]:
            first = dice.randrange(len(genuine))
            return dice.uniform(first, len(genuine)), genuine[first]

        for _ in range(_share(len(genuine), DUPLICATE_SHARE)):
            place, fact = somewhere()
            yield place, Planned(Kind.DUPLICATE, fact)
        faults = list(FAULTS.items())
        for number in range(max(len(faults), _share(len(genuine), MALFORMED_SHARE))):
            place, fact = somewhere()
            reason, headers = faults[number % len(faults)]
            yield place, Planned(Kind.MALFORMED, _spoiled(fact, f"{self.run}-bad-{number}", reason, headers), reason)
        for number in range(_share(len(genuine), SYSTEM_SHARE)):
            place, fact = somewhere()
            marks: tuple[tuple[str, bytes | None], ...] = (("ce-systemevent", b"true"), ("ce-tenantid", None))
            yield place, Planned(Kind.SYSTEM, fact._replace(id=f"{self.run}-system-{number}", headers=marks))


def _share(count: int, share: float) -> int:
    return max(1, round(count * share))


def _spoiled(fact: NewFact, id: str, reason: str, headers: tuple[tuple[str, bytes | None], ...]) -> NewFact:
    if reason == COLLISION:  # the known id with another payload: two events that claim to be one
        return fact._replace(body=b'{"not":"the same"}')
    return fact._replace(id=id, headers=headers)


def webhook_id(fact: NewFact) -> str:
    """The `webhook-id` under which the fact arrives."""
    return event_id(fact.tenant, fact.source, fact.source, fact.id)


def wanted(event_types: Iterable[str], fact: NewFact) -> bool:
    """Whether one of the patterns the demo uses takes the fact: `*`, `<resource>.*` or `<resource>.<event>`."""
    return any(pattern in ("*", f"{fact.resource}.*", f"{fact.resource}.{fact.event}") for pattern in event_types)
