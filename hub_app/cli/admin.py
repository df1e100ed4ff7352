"""`hub operator-events`, `hub keys`, `hub dlq`, `hub quarantine`: what operators ask; most of it with an
administrator's key."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hub_app.cli.api import (
    EX_REFUSED,
    Client,
    Cursor,
    Id,
    Json,
    Limit,
    Once,
    Since,
    Until,
    group,
    segment,
    show,
)

TOLD: Final = ("at", "kind", "subscription", "destination", "detail")
QUARANTINE: Final = "/admin/quarantine"
PAGES_MAX: Final = 1_000
Tenant = Annotated[str, typer.Argument(help="The tenant.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Of this tenant only.")]
Source = Annotated[str | None, typer.Option(help="Of this producer only.")]
Class = Annotated[str | None, typer.Option("--class", help="Of this class of errors, or reason, only.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="name=text: a header is set to it.")]
Unset = Annotated[list[str] | None, typer.Option("--unset", help="A header goes.")]


def add_administration(app: typer.Typer, client: Client) -> None:
    for name, made in (
        ("operator-events", _operator_events(client)),
        ("keys", _keys(client)),
        ("dlq", _dlq(client)),
        ("quarantine", _quarantine(client)),
    ):
        app.add_typer(made, name=name)


def _operator_events(client: Client) -> typer.Typer:
    made = group("What happened to subscriptions and sinks.")

    @made.command("list")
    def list_(
        after: str | None = None,
        kind: str | None = None,
        subscription: str | None = None,
        limit: Limit = 100,
        json: Json = False,
    ) -> None:
        """A tenant's own, oldest first."""
        query = {"after": after, "kind": kind, "subscription": subscription, "limit": limit}
        found = client.ask("GET", "/v1/operator-events", query=query)
        show(found, json=json, rows="operator_events", columns=TOLD, cursor="after")

    @made.command("all")
    def all_(
        tenant: OfTenant = None,
        kind: str | None = None,
        since: Since = None,
        until: Until = None,
        cursor: Cursor = None,
        limit: Limit = 100,
        json: Json = False,
    ) -> None:
        """Everybody's; for administrators."""
        query = {"tenant": tenant, "kind": kind, "since": since, "until": until, "cursor": cursor, "limit": limit}
        found = client.ask("GET", "/admin/operator-events", query=query)
        show(found, json=json, rows="operator_events", columns=("tenant", *TOLD))

    return made


def _keys(client: Client) -> typer.Typer:
    made = group("API keys of a tenant; for administrators.")

    @made.command("list")
    def list_(tenant: Tenant, cursor: Cursor = None, limit: Limit = 100, json: Json = False) -> None:
        """All of a tenant's."""
        query = {"cursor": cursor, "limit": limit}
        found = client.ask("GET", f"/admin/tenants/{segment(tenant)}/keys", query=query)
        show(found, json=json, rows="keys", columns=("id", "name", "scopes", "created_at"))

    @made.command()
    def create(tenant: Tenant, scope: list[str], name: str = "", once: Once = None, json: Json = False) -> None:
        """Make one, with scopes out of publish, receive, manage; it is shown this once."""
        body = {"name": name, "scopes": scope}
        show(client.ask("POST", f"/admin/tenants/{segment(tenant)}/keys", body=body, once=once), json=json)

    @made.command()
    def delete(tenant: Tenant, id: Id, json: Json = False) -> None:
        """It opens nothing from then on."""
        show(client.ask("DELETE", f"/admin/tenants/{segment(tenant)}/keys/{segment(id)}"), json=json)

    return made


def _dlq(client: Client) -> typer.Typer:
    made = group("What producers gave up, as observed; for administrators.")
    columns = ("id", "at", "topic", "tenant", "error_class", "error_message", "retries")

    @made.command("list")
    def list_(
        source: Source = None,
        tenant: OfTenant = None,
        class_: Class = None,
        since: Since = None,
        until: Until = None,
        cursor: Cursor = None,
        limit: Limit = 50,
        json: Json = False,
    ) -> None:
        """Partition by partition; a page may be short with more to come."""
        query = _filters(source, tenant, class_, since, until, cursor, limit)
        show(client.ask("GET", "/admin/dlq", query=query), json=json, rows="dead_letters", columns=columns)

    @made.command("show")
    def show_(id: Id, source: Source = None, json: Json = False) -> None:
        """One, with its payload's beginning; --source makes the search shorter."""
        query: dict[str, Any] = {"source": source, "limit": 1_000}
        for _ in range(PAGES_MAX):
            found = client.ask("GET", "/admin/dlq", query=query)
            row = next((row for row in found["dead_letters"] if row["id"] == id), None)
            if row is not None or found["next"] is None:
                break
            query["cursor"] = found["next"]
        _one(row, id, json=json)

    return made


def _quarantine(client: Client) -> typer.Typer:
    made = group("Records that were not admitted; for administrators.")

    @made.command("list")
    def list_(
        source: Source = None,
        tenant: OfTenant = None,
        class_: Class = None,
        since: Since = None,
        until: Until = None,
        cursor: Cursor = None,
        limit: Limit = 50,
        json: Json = False,
    ) -> None:
        """Partition by partition; a page may be short with more to come."""
        found = client.ask("GET", QUARANTINE, query=_filters(source, tenant, class_, since, until, cursor, limit))
        show(found, json=json, rows="records", columns=("id", "at", "reason", "topic", "tenant", "detail"))

    @made.command("show")
    def show_(id: Id, json: Json = False) -> None:
        """One, with all its headers and its payload's beginning."""
        found = client.ask("GET", QUARANTINE, query={"cursor": id, "limit": 1})["records"]
        _one(next((row for row in found if row["id"] == id), None), id, json=json)

    @made.command()
    def ingest(id: Id, set: Set = None, unset: Unset = None, value: Path | None = None, json: Json = False) -> None:
        """Repair it and let it in: --set ce-tenantid=acme --unset ce-subject --value payload.json."""
        headers: dict[str, str | None] = dict.fromkeys(unset or ())
        for text in set or ():
            name, sign, rest = text.partition("=")
            if not sign:
                raise typer.BadParameter(f"{text}: expected name=text")
            headers[name] = rest
        body: dict[str, object] = {"headers": headers} if headers else {}
        if value is not None:
            body["value_base64"] = base64.b64encode(value.read_bytes()).decode()
        show(client.ask("POST", f"{QUARANTINE}/{segment(id)}/ingest", body=body), json=json)

    return made


def _filters(
    source: str | None,
    tenant: str | None,
    class_: str | None,
    since: str | None,
    until: str | None,
    cursor: str | None,
    limit: int,
) -> dict[str, object]:
    query = {"source": source, "tenant": tenant, "class": class_, "since": since, "until": until}
    return {**query, "cursor": cursor, "limit": limit}


def _one(row: dict[str, Any] | None, id: str, *, json: bool) -> None:
    if row is None:
        typer.echo(f"there is no {id}", err=True)
        raise typer.Exit(EX_REFUSED)
    show(row, json=json)
