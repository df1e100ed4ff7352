"""Kafka's own command-line tools, by short names."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from hub_app.dev.kafka.jars import Runtime
from hub_app.dev.kafka.node import TOOL_OPTIONS, log4j

PACKAGE = "org.apache.kafka.tools"


class Tool(NamedTuple):
    """A main class, and whether it talks to a broker (and so takes --bootstrap-server)."""

    main: str
    remote: bool = True


TOOLS = {
    "topics": Tool("TopicCommand"),
    "configs": Tool("ConfigCommand"),
    "groups": Tool("consumer.group.ConsumerGroupCommand"),
    "all-groups": Tool("GroupsCommand"),
    "offsets": Tool("GetOffsetShell"),
    "consume": Tool("consumer.ConsoleConsumer"),
    "produce": Tool("ConsoleProducer"),
    "perf-consume": Tool("ConsumerPerformance"),
    "perf-produce": Tool("ProducerPerformance"),
    "delete-records": Tool("DeleteRecordsCommand"),
    "transactions": Tool("TransactionsCommand"),
    "acls": Tool("AclCommand"),
    "quorum": Tool("MetadataQuorumCommand"),
    "log-dirs": Tool("LogDirsCommand"),
    "api-versions": Tool("BrokerApiVersionsCommand"),
    "dump": Tool("DumpLogSegments", remote=False),
}


def command(runtime: Runtime, bootstrap: str, arguments: tuple[str, ...]) -> list[str]:
    """The command line for `NAME ARGUMENTS…`. Raises ValueError for an unknown name, listing the known ones."""
    name, *rest = arguments or ("",)
    if (tool := TOOLS.get(name)) is None:
        raise ValueError(f"no tool named {name!r}; there are: {' '.join(TOOLS)}")
    where = ["--bootstrap-server", bootstrap] if tool.remote and "--bootstrap-server" not in rest else []
    options = (*TOOL_OPTIONS, f"-Dlog4j2.configurationFile={_logging(runtime)}")
    return runtime.command(f"{PACKAGE}.{tool.main}", *where, *rest, options=options)


def run(runtime: Runtime, bootstrap: str, arguments: tuple[str, ...], *, text: str = "", seconds: float = 60) -> str:
    """Run a tool with standard input `text` and return what it printed. Raises CalledProcessError, TimeoutExpired."""
    line = command(runtime, bootstrap, arguments)
    done = subprocess.run(line, check=False, input=text, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        failed = subprocess.CalledProcessError(done.returncode, line, done.stdout, done.stderr)
        failed.add_note(done.stdout + done.stderr)
        raise failed
    return done.stdout


def _logging(runtime: Runtime) -> Path:
    """Tools log warnings to standard error, so that their output can be piped."""
    path = runtime.archive.with_name("log4j2-tools.properties")
    if not path.exists():
        path.write_text(log4j("warn", "SYSTEM_ERR"))
    return path
