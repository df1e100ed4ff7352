"""What a shard's offsets say before it is opened (docs/protocol.md, "Offsets that do not fit"). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Found(NamedTuple):
    """Of one topic partition: the group's committed offset (None: none), and the log's begin and end."""

    committed: int | None
    begin: int
    end: int


class Truncation(NamedTuple):
    """The log is not the one this shard knew: it ends below what was committed, or (committed -1) it holds records, the
    shard has a folder here, and the group knows nothing of it. A broker forgets a group's offsets with a topic."""

    topic: str
    committed: int
    end: int


class Ruling(NamedTuple):
    """`commit`: what the owner commits before it reads; `truncated`: what the listener is told first; `stopped`: why
    the shard may not be opened (empty: it may)."""

    commit: Mapping[str, int]
    truncated: tuple[Truncation, ...]
    stopped: str


def judge(found: Mapping[str, Found], *, group: str, shard: int, on_disk: bool) -> Ruling:
    """Commits 0 for a topic that has no committed offset and whose log starts at 0; no committed offset and a log that
    starts later stops the shard; a committed offset past the end is lowered to the end."""
    commit: dict[str, int] = {}
    truncated = []
    for topic, (committed, begin, end) in sorted(found.items()):
        if committed is None and begin > 0:
            text = f"no committed offset for {topic}/{shard}, whose log starts at {begin}: what was read is unknown"
            return Ruling({}, (), f"{text}; {repair(group, topic, shard)}")
        if committed is None:
            commit[topic] = 0
            if on_disk and end > 0:
                truncated.append(Truncation(topic, -1, end))
        elif committed > end:
            commit[topic] = end
            truncated.append(Truncation(topic, committed, end))
    return Ruling(commit, tuple(truncated), "")


def judge_starts(found: Mapping[str, Found], starts: Mapping[str, int], *, group: str, shard: int) -> str:
    """Why reading may not begin at `starts`; empty when it may. A start past the end is the opener's mistake (its
    folder belongs to another log), one below the beginning means that records were deleted unread."""
    for topic, place in sorted(found.items()):
        start = starts.get(topic)
        if start is None:
            return f"the opening named no start for {topic}/{shard}"
        if start < place.begin:
            text = f"records {start} to {place.begin - 1} of {topic}/{shard} were deleted before they were read"
            return f"{text}; {repair(group, topic, shard)}"
        if start > place.end:
            return f"the opening wants to read {topic}/{shard} from {start}, past its end {place.end}"
    return ""


def repair(group: str, topic: str, shard: int) -> str:
    """What to run, in words and as a command."""
    return (
        "to go on from the earliest record, stop every worker and run: kafka-consumer-groups.sh --bootstrap-server "
        f"BROKER --group {group} --topic {topic}:{shard} --reset-offsets --to-earliest --execute"
    )
