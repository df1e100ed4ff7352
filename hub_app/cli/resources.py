"""`hub subscriptions`, `hub events`, `hub dead-letters`, `hub operations`, `hub keys`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from hub_app.cli.api import Body, Client, Id, Json, Limit, parsed, segment, show

SUBSCRIPTIONS: Final = "/v1/subscriptions"
DEAD_LETTERS: Final = "/v1/dead-letters"
Tenant = Annotated[str, typer.Argument(help="The tenant.")]
Cursor = Annotated[str | None, typer.Option(help="The `next` of the page before.")]


def add_resources(app: typer.Typer, environ: Mapping[str, str]) -> None:
    client = Client(environ)
    for name, made in (
        ("subscriptions", _subscriptions(client)),
        ("events", _events(client)),
        ("dead-letters", _dead_letters(client)),
        ("operations", _operations(client)),
        ("keys", _keys(client)),
    ):
        app.add_typer(made, name=name)


def _group(about: str) -> typer.Typer:
    return typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None)


def _subscriptions(client: Client) -> typer.Typer:
    group = _group("What a tenant wants, and where it wants it.")

    @group.command("list")
    def list_(cursor: Cursor = None, limit: Limit = 100, json: Json = False) -> None:
        """All of the tenant's."""
        found = client.ask("GET", SUBSCRIPTIONS, query={"cursor": cursor, "limit": limit})
        show(
            found,
            json=json,
            rows="subscriptions",
            columns=("id", "name", "enabled", "verification_state", "destination"),
        )

    @group.command()
    def create(body: Body, json: Json = False) -> None:
        """Make one; its secret is shown this once."""
        show(client.ask("POST", SUBSCRIPTIONS, body=parsed(body)), json=json)

    @group.command()
    def change(id: Id, body: Body, json: Json = False) -> None:
        """Change what the body names."""
        show(client.ask("PATCH", f"{SUBSCRIPTIONS}/{segment(id)}", body=parsed(body)), json=json)

    _add_trials(group, client)
    for name, method, rest, about in (
        ("show", "GET", "", "One of them."),
        ("delete", "DELETE", "", "Delete it; jobs that wait end."),
        ("verify", "POST", "/verify", "Probe the sink, enable."),
        ("rotate", "POST", "/secret:rotate", "A new secret, shown this once; the old one stays valid for a day."),
        ("test", "POST", "/test", "Send a test event once."),
        ("health", "GET", "/health", "Breaker, streak, counts, what waits."),
    ):
        _about_one(group, client, name, method, SUBSCRIPTIONS, rest, about)
    return group


def _add_trials(group: typer.Typer, client: Client) -> None:
    @group.command()
    def replay(id: Id, body: Body, json: Json = False) -> None:
        """Deliver past events anew: '{"from_seq": 1}'."""
        show(client.ask("POST", f"{SUBSCRIPTIONS}/{segment(id)}/replay", body=parsed(body)), json=json)

    @group.command()
    def preview(body: Body, json: Json = False) -> None:
        """What a draft would receive."""
        show(client.ask("POST", f"{SUBSCRIPTIONS}:preview", body=parsed(body)), json=json)

    @group.command()
    def attempts(id: Id, limit: Limit = 20, cursor: Cursor = None, json: Json = False) -> None:
        """Newest first."""
        query = {"limit": limit, "cursor": cursor}
        found = client.ask("GET", f"{SUBSCRIPTIONS}/{segment(id)}/attempts", query=query)
        show(
            found,
            json=json,
            rows="attempts",
            columns=("at", "seq", "attempt", "outcome", "status", "duration_ms", "error"),
        )


def _events(client: Client) -> typer.Typer:
    group = _group("Events by seq.")

    @group.command("list")
    def list_(after: str | None = None, limit: Limit = 20, wait: int = 0, json: Json = False) -> None:
        """In their order."""
        found = client.ask("GET", "/v1/events", query={"after": after, "limit": limit, "wait": wait})
        show(found, json=json, rows="events", columns=("seq", "receivedat", "type", "source", "id"))

    _about_one(group, client, "show", "GET", "/v1/events", "", "One event.")

    @group.command()
    def why(id: Id, json: Json = False) -> None:
        """Who receives it, what keeps the others from it, and what came of it."""
        found = client.ask("GET", f"/v1/events/{segment(id)}/why")
        show(found, json=json, rows="subscriptions", columns=("subscription", "name", "matched", "why_not", "delivery"))

    return group


def _dead_letters(client: Client) -> typer.Typer:
    group = _group("Deliveries given up.")

    @group.command("list")
    def list_(
        subscription: str | None = None,
        reason: str | None = None,
        state: str | None = None,
        cursor: Cursor = None,
        limit: Limit = 100,
        json: Json = False,
    ) -> None:
        """Oldest first."""
        query = {"subscription": subscription, "reason": reason, "state": state, "cursor": cursor, "limit": limit}
        found = client.ask("GET", DEAD_LETTERS, query=query)
        show(
            found,
            json=json,
            rows="dead_letters",
            columns=("id", "died_at", "reason", "status", "event_type", "subscription"),
        )

    @group.command("redrive-many")
    def redrive_many(body: Body, json: Json = False) -> None:
        """By a filter: '{"reason": "exhausted", "dry_run": true}'."""
        show(client.ask("POST", f"{DEAD_LETTERS}/redrive", body=parsed(body)), json=json)

    _about_one(group, client, "show", "GET", DEAD_LETTERS, "", "With its event.")
    _about_one(group, client, "redrive", "POST", DEAD_LETTERS, "/redrive", "Deliver it anew.")
    _about_one(group, client, "discard", "DELETE", DEAD_LETTERS, "", "Take it off the list.")
    return group


def _operations(client: Client) -> typer.Typer:
    group = _group("Replays and redrives of many.")

    @group.command("list")
    def list_(cursor: Cursor = None, limit: Limit = 100, json: Json = False) -> None:
        """Oldest first."""
        found = client.ask("GET", "/v1/operations", query={"cursor": cursor, "limit": limit})
        show(found, json=json, rows="operations", columns=("id", "kind", "state", "looked_at", "made", "created_at"))

    _about_one(group, client, "show", "GET", "/v1/operations", "", "How far it is.")
    _about_one(group, client, "cancel", "DELETE", "/v1/operations", "", "What was made stands.")
    return group


def _keys(client: Client) -> typer.Typer:
    group = _group("API keys of a tenant; for administrators.")

    @group.command("list")
    def list_(tenant: Tenant, json: Json = False) -> None:
        """All of a tenant's."""
        found = client.ask("GET", f"/admin/tenants/{segment(tenant)}/keys")
        show(found, json=json, rows="keys", columns=("id", "name", "scopes", "created_at"))

    @group.command()
    def create(tenant: Tenant, scope: list[str], name: str = "", json: Json = False) -> None:
        """Make one, with scopes out of publish, receive, manage; it is shown this once."""
        made = client.ask("POST", f"/admin/tenants/{segment(tenant)}/keys", body={"name": name, "scopes": scope})
        show(made, json=json)

    @group.command()
    def delete(tenant: Tenant, id: Id, json: Json = False) -> None:
        """It opens nothing from then on."""
        show(client.ask("DELETE", f"/admin/tenants/{segment(tenant)}/keys/{segment(id)}"), json=json)

    return group


def _about_one(group: typer.Typer, client: Client, name: str, method: str, root: str, rest: str, about: str) -> None:
    def command(id: Id, json: Json = False) -> None:
        show(client.ask(method, f"{root}/{segment(id)}{rest}"), json=json)

    group.command(name, help=about)(command)
