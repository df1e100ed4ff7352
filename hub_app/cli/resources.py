"""`hub subscriptions`, `hub events`: what a tenant wants, and what there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from hub_app.cli.admin import add_administration
from hub_app.cli.api import Body, Client, Cursor, Id, Json, Limit, Once, about_one, group, parsed, segment, show
from hub_app.cli.letters import dead_letters, follow, operations

SUBSCRIPTIONS: Final = "/v1/subscriptions"
IfMatch = Annotated[str | None, typer.Option(help="Only to the state with this ETag.")]
Wait = Annotated[bool, typer.Option("--wait", help="Until it is over, saying how far it is.")]


def add_resources(app: typer.Typer, environ: Mapping[str, str]) -> None:
    client = Client(environ)
    for name, made in (
        ("subscriptions", _subscriptions(client)),
        ("events", _events(client)),
        ("dead-letters", dead_letters(client)),
        ("operations", operations(client)),
    ):
        app.add_typer(made, name=name)
    add_administration(app, client)


def _subscriptions(client: Client) -> typer.Typer:
    made = group("What a tenant wants, and where it wants it.")

    @made.command("list")
    def list_(cursor: Cursor = None, limit: Limit = 100, json: Json = False) -> None:
        """All of the tenant's."""
        found = client.ask("GET", SUBSCRIPTIONS, query={"cursor": cursor, "limit": limit})
        columns = ("id", "name", "enabled", "verification_state", "disabled_reason", "destination")
        show(found, json=json, rows="subscriptions", columns=columns)

    @made.command()
    def create(body: Body, once: Once = None, json: Json = False) -> None:
        """Make one; its secret is shown this once."""
        show(client.ask("POST", SUBSCRIPTIONS, body=parsed(body), once=once), json=json)

    @made.command()
    def change(id: Id, body: Body, if_match: IfMatch = None, json: Json = False) -> None:
        """Change what the body names."""
        path = f"{SUBSCRIPTIONS}/{segment(id)}"
        show(client.ask("PATCH", path, body=parsed(body), if_match=if_match), json=json)

    @made.command()
    def rotate(id: Id, overlap: str = "24h", if_match: IfMatch = None, json: Json = False) -> None:
        """A new secret, shown this once; the old one stays valid for --overlap (0s to 7d)."""
        path = f"{SUBSCRIPTIONS}/{segment(id)}/secret:rotate"
        show(client.ask("POST", path, body={"overlap": overlap}, if_match=if_match), json=json)

    _add_trials(made, client)
    for name, method, rest, about in (
        ("show", "GET", "", "One of them."),
        ("delete", "DELETE", "", "Delete it; jobs that wait end."),
        ("verify", "POST", "/verify", "Probe the sink, enable."),
        ("health", "GET", "/health", "Breaker, streak, counts, what waits."),
    ):
        about_one(made, client, name, method, SUBSCRIPTIONS, rest, about)
    return made


def _add_trials(made: typer.Typer, client: Client) -> None:
    @made.command()
    def replay(id: Id, body: Body, once: Once = None, wait: Wait = False, json: Json = False) -> None:
        """Deliver past events anew: '{"from_seq": 1}'; '{"from": "2026-01-02T00:00:00Z", "dry_run": true}' counts."""
        begun = client.ask("POST", f"{SUBSCRIPTIONS}/{segment(id)}/replay", body=parsed(body), once=once)
        show(follow(client, begun) if wait else begun, json=json)

    @made.command()
    def preview(body: Body, json: Json = False) -> None:
        """What a draft would receive."""
        show(client.ask("POST", f"{SUBSCRIPTIONS}:preview", body=parsed(body)), json=json)

    @made.command()
    def test(id: Id, data: Annotated[str, typer.Option(help="JSON.")] = "", json: Json = False) -> None:
        """Send a test event once."""
        body = {"data": parsed(data)} if data else None
        show(client.ask("POST", f"{SUBSCRIPTIONS}/{segment(id)}/test", body=body), json=json)

    @made.command()
    def attempts(id: Id, seq: int | None = None, limit: Limit = 20, cursor: Cursor = None, json: Json = False) -> None:
        """Newest first; --seq: at one event."""
        query = {"limit": limit, "cursor": cursor, "seq": seq}
        found = client.ask("GET", f"{SUBSCRIPTIONS}/{segment(id)}/attempts", query=query)
        columns = ("at", "seq", "attempt", "outcome", "status", "duration_ms", "error")
        show(found, json=json, rows="attempts", columns=columns)


def _events(client: Client) -> typer.Typer:
    made = group("Events by seq.")

    @made.command("list")
    def list_(
        after: str | None = None,
        type: list[str] | None = None,
        origin: list[str] | None = None,
        limit: Limit = 20,
        wait: int = 0,
        json: Json = False,
    ) -> None:
        """In their order; --type and --origin may be given several times."""
        query = {"after": after, "limit": limit, "wait": wait, "type": type or None, "origin": origin or None}
        found = client.ask("GET", "/v1/events", query=query)
        show(found, json=json, rows="events", columns=("seq", "receivedat", "type", "source", "id"), cursor="after")

    about_one(made, client, "show", "GET", "/v1/events", "", "One event.")

    @made.command()
    def why(id: Id, cursor: Cursor = None, limit: Limit = 20, json: Json = False) -> None:
        """Who receives it, what keeps the others from it, and what came of it."""
        found = client.ask("GET", f"/v1/events/{segment(id)}/why", query={"cursor": cursor, "limit": limit})
        show(found, json=json, rows="subscriptions", columns=("subscription", "name", "matched", "why_not", "delivery"))

    return made
