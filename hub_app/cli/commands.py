"""What the commands say, as text and as JSON. Pure: settings in, text out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import orjson

from hub_app.cli.doctor.finding import Finding
from hub_app.settings import SettingProblem, Settings
from hub_app.topics import TopicSpec, internal_topics, tier_name

_INDENT = orjson.OPT_INDENT_2


def problem_lines(problems: Sequence[SettingProblem]) -> list[str]:
    """One line each, by name, with the accepted form."""
    return [str(problem) for problem in problems]


def settings_text(settings: Settings) -> str:
    rows = [(entry.name, entry.value or "-", entry.source, entry.meaning) for entry in settings.entries]
    return _columns(("NAME", "VALUE", "SOURCE", "MEANING"), rows)


def settings_json(settings: Settings) -> str:
    entries = [dataclasses.asdict(entry) for entry in settings.entries]
    return orjson.dumps({"settings": entries, "warnings": settings.warnings}, option=_INDENT).decode()


def topics_text(settings: Settings) -> str:
    rows = [
        (topic.name, str(topic.partitions), str(topic.replication), topic.config["cleanup.policy"], _kept(topic))
        for topic in _topics(settings)
    ]
    return _columns(("TOPIC", "PARTITIONS", "REPLICATION", "CLEANUP", "KEPT"), rows)


def topics_json(settings: Settings) -> str:
    return orjson.dumps([topic._asdict() for topic in _topics(settings)], option=_INDENT).decode()


def findings_lines(findings: Sequence[Finding]) -> list[str]:
    """One line each, and one more with the repair where something is broken."""
    width = max(len(finding.what) for finding in findings)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{'ok' if finding.well else 'BROKEN':6}  {finding.what.ljust(width)}  {finding.detail}")
        if finding.repair:
            lines.append(f"{'':6}  {'':{width}}  -> {finding.repair}")
    return lines


def _topics(settings: Settings) -> tuple[TopicSpec, ...]:
    return internal_topics(
        settings.topic_prefix,
        settings.shards,
        settings.topic_replication,
        settings.retentions,
        settings.backoff_caps_ms,
    )


def _kept(topic: TopicSpec) -> str:
    kept = topic.config.get("retention.ms")
    return "latest of each key" if kept is None else tier_name(int(kept))


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Left-aligned columns; the last one runs free."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head) - 1)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in table
    )
    return "\n".join(lines)
