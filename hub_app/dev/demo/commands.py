"""Commands that look into the hub's topics with Kafka's own tools, as a person would type them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from hub_app.domain.ids import SEP
from hub_app.topics import Names

HEADERS = "--formatter-property print.headers=true --formatter-property print.key=true"
NEXT_HEADER = re.compile(r",(?=[a-z][a-z-]*:)")
VALUE_CHARS_MAX = 90


class Look(NamedTuple):
    """`arguments` are those of `make kafka-tool ARGS="…"`."""

    what: str
    arguments: str


class HasTool(Protocol):
    """A Kafka with its tools at hand (`kafka.Cluster`, `kafka.External`)."""

    def tool(self, *arguments: str, text: str = "", seconds: float = 60) -> str: ...


def looks(names: Names, tier: str) -> tuple[Look, ...]:
    """Ways to look at retries, attempts and dead letters. The first shows a dead letter, the second one that waits."""

    def consume(topic: str, records: int) -> str:
        return f"consume --topic {topic} --from-beginning --max-messages {records} --timeout-ms 10000 {HEADERS}"

    return (
        Look("a dead letter: why, when, after how many attempts, and the event as it came", consume(names.dlq, 1)),
        Look(f"a delivery on its way through the tier of {tier}", consume(names.retry(tier), 1)),
        Look("outcomes of attempts, and claims", consume(names.attempts, 5)),
        Look("how many records each partition holds", f"offsets --topic-partitions {names.dlq},{names.retry(tier)}"),
        Look("what the hub has read and committed", "groups --describe --all-groups"),
    )


def published(kafka: str | None) -> str:
    """A command that publishes one fact of the tenant `mine`."""
    attributes = {
        "specversion": "1.0",
        "id": "$(date +%s%N)",
        "source": "lender",
        "type": "studio.lerian.lender.loan_application.approved",
        "time": "$(date -u +%FT%TZ)",
        "schemaversion": "1.0.0",
        "resourcetype": "loan_application",
        "eventtype": "approved",
        "tenantid": "mine",
        "datacontenttype": "application/json",
    }
    headers = ",".join(f"ce-{name}:{value}" for name, value in attributes.items())
    look = Look("", "produce --topic lerian.streaming.lender --reader-property parse.headers=true")
    return f"""printf '%s\\t%s\\n' "{headers}" '{{"amount":1250}}' \\\n    | {typed(look, kafka)}"""


def typed(look: Look, kafka: str | None) -> str:
    """The whole command; `kafka` where it is not the development Kafka of this checkout."""
    where = f"KAFKA_BROKERS={kafka} " if kafka else ""
    return f'{where}make kafka-tool ARGS="{look.arguments}"'


def run(kafka: HasTool, look: Look) -> Iterator[str]:
    """What the command prints, a line a header."""
    for line in kafka.tool(*shlex.split(look.arguments)).splitlines():
        headers, tab, rest = line.partition("\t")
        if not tab:
            yield line
            continue
        yield from NEXT_HEADER.split(headers)
        key, _, value = rest.partition("\t")
        yield f"key: {key.replace(SEP, ' U+001F ')}"
        yield f"value: {value[:VALUE_CHARS_MAX]}{'…' if len(value) > VALUE_CHARS_MAX else ''}"
