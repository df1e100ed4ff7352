"""`hub …`: what an operator asks at a terminal. Exit status: 0 well, 64 wrong usage, 78 wrong settings (sysexits)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import typer

from hub_app.cli.api import EX_REFUSED, EX_UNAVAILABLE, show
from hub_app.cli.commands import findings_lines, problem_lines, settings_json, settings_text, topics_json, topics_text
from hub_app.cli.doctor import examine
from hub_app.cli.kafka import now_ms, sample_headers
from hub_app.cli.kafka import send as send_fact
from hub_app.cli.listen import make_server
from hub_app.cli.resources import add_resources
from hub_app.settings import Settings, parse

EX_USAGE: Final = 64
EX_CONFIG: Final = 78
TYPER_USAGE: Final = 2

Json = Annotated[bool, typer.Option("--json", help="One JSON value instead of a table.")]


def build(environ: Mapping[str, str]) -> typer.Typer:
    """The commands, over one environment."""
    app = typer.Typer(
        name="hub",
        help="Streaming Hub at a terminal.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
    )

    def read() -> Settings:
        settings = parse(environ, hostname=socket.gethostname(), terminal=sys.stderr.isatty())
        if isinstance(settings, Settings):
            return settings
        typer.echo("\n".join(problem_lines(settings)), err=True)
        raise typer.Exit(EX_CONFIG)

    @app.command()
    def settings(json: Json = False) -> None:
        """Every setting: name, value (secrets hidden), where it comes from, what it means."""
        found = read()
        typer.echo(settings_json(found) if json else settings_text(found))
        for warning in found.warnings:
            typer.echo(f"warning: {warning}", err=True)

    @app.command()
    def topics(json: Json = False) -> None:
        """The topics this deployment needs, as they are made at start."""
        found = read()
        typer.echo(topics_json(found) if json else topics_text(found))

    _add_tools(app, read)
    add_resources(app, environ)
    return app


def _add_tools(app: typer.Typer, read: Callable[[], Settings]) -> None:
    """What speaks to Kafka, or listens, by itself."""

    @app.command()
    def send(source: str, type: str, data: str = "{}", tenant: str = "default", json: Json = False) -> None:
        """Publish a sample fact, as a producer would: hub send lender loan_application.approved."""
        found = read()
        try:
            headers = sample_headers(source, tenant, type, now_ms=now_ms())
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        try:
            topic, partition, offset = asyncio.run(send_fact(found, source, headers, data.encode()))
        except Exception as error:
            typer.echo(
                f"not sent: {error.__class__.__name__}: is there a broker, and a topic of this source? (hub doctor)",
                err=True,
            )
            raise typer.Exit(EX_UNAVAILABLE) from None
        id = dict(headers)["ce-id"].decode()
        show({"id": id, "topic": topic, "partition": partition, "offset": offset}, json=json)

    @app.command()
    def doctor(json: Json = False) -> None:
        """What this deployment stands on: disk, broker, topics, permissions, clock, keys, sinks; and what to repair."""
        findings = asyncio.run(examine(read()))
        if json:
            show({"findings": [finding._asdict() for finding in findings]}, json=True)
        else:
            typer.echo("\n".join(findings_lines(findings)))
        if not all(finding.well for finding in findings):
            raise typer.Exit(EX_REFUSED)

    @app.command()
    def listen(
        port: int = 9000, host: str = "127.0.0.1", secret: str = "", fail_every: int = 0, status: int = 500
    ) -> None:
        """A receiver for trying out: says what comes, verifies with --secret, fails every n-th with --fail-every."""
        server = make_server(host, port, secret=secret, fail_every=fail_every, status=status, say=typer.echo)
        typer.echo(f"listening on http://{host}:{server.server_port}/")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> None:
    """Entry point of the `hub` script; always ends by SystemExit."""
    command = typer.main.get_command(build(environ))
    try:
        command.main(None if arguments is None else list(arguments), prog_name="hub")
    except SystemExit as end:
        sys.exit(EX_USAGE if end.code == TYPER_USAGE else end.code)
