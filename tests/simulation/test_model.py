"""The model of the dispatch protocol: nothing is lost, and each rule is there for a reason."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.simulation import model
from tests.simulation.model_log import DELIVERIES, RETRY, Claim, Claimed, Outcome, Record
from tests.simulation.model_owner import Disk, Owner, Who
from tests.simulation.worlds import PLANTS, plant_found

FIRST = int(os.environ.get("MODEL_FIRST", "0"))
SEEDS = int(os.environ.get("MODEL_SEEDS", "400"))


def test_nothing_is_lost_in_random_worlds() -> None:
    failed = model.first_failure(range(FIRST, FIRST + SEEDS))
    assert failed is None, f"make sim WORLD=model SEEDS=1 FIRST={failed[0]}: {failed[1]}" if failed else ""


@pytest.mark.parametrize("broken", PLANTS["model"])
def test_every_break_of_a_rule_is_caught(broken: str) -> None:
    assert plant_found("model", broken) is not None, model.BREAKS[broken]


def test_a_seed_tells_the_same_again() -> None:
    assert [model.run(seed, "outcome_first") for seed in range(60)] == [
        model.run(seed, "outcome_first") for seed in range(60)
    ]


# -- what an owner makes of claims and outcomes in the log -------------------------------------------------------------
FIRST_CLAIM = Claimed({1: Claim((1, 0), 0, until=100, holder=-1)})
SECOND_CLAIM = Claimed({1: Claim((2, 0), 0, until=120, holder=-2)})
FIRST_FAILED = Outcome("failed", 1, (1, 0))


@pytest.fixture
def opened() -> Callable[..., Owner]:
    """An owner with an empty disk, after these entries in the attempts log; job 1 waits for its second attempt."""

    def open_after(*entries: Claimed | Outcome, broken: str | None = None) -> Owner:
        world = model.World(0)
        log = world.logs.shards[0]
        world.logs.append(0, DELIVERIES, Record(1, 1, 0))
        world.logs.append(0, RETRY, Record(1, 2, 0))
        for entry in entries:
            world.logs.tell(0, entry)
        assert (log.end(DELIVERIES), log.end(RETRY)) == (1, 1)
        return Owner(Who(0, 0, 99), world.logs, Disk(), world.random, world, broken)

    return open_after


@pytest.mark.parametrize(
    ("entries", "left_alone"),
    [
        ([FIRST_CLAIM, FIRST_FAILED], False),
        ([FIRST_CLAIM, FIRST_FAILED, SECOND_CLAIM], True),
        ([SECOND_CLAIM, FIRST_FAILED], True),  # the first attempt's owner was overtaken, and told late
        ([SECOND_CLAIM, FIRST_CLAIM], True),
        ([SECOND_CLAIM, Outcome("deferred", 1, (2, 0))], False),
        ([SECOND_CLAIM, Outcome("delivered", 1, (1, 0))], False),
    ],
)
def test_a_job_is_left_alone_while_somebody_has_it_in_hand(
    opened: Callable[..., Owner], entries: list[Claimed | Outcome], left_alone: bool
) -> None:
    assert (1 in opened(*entries).foreign) is left_alone


def test_late_words_about_a_job_in_other_hands_are_breaks(opened: Callable[..., Owner]) -> None:
    assert 1 not in opened(SECOND_CLAIM, FIRST_FAILED, broken="outcome_clears_any_claim").foreign
    assert opened(SECOND_CLAIM, FIRST_CLAIM, broken="last_claim_wins").foreign[1].at == (1, 0)
    assert opened(SECOND_CLAIM, FIRST_CLAIM).foreign[1].at == (2, 0)
