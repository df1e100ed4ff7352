"""`hub dead-letters`, `hub operations`: what was given up, and bulk work with its progress."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from hub_app.cli.api import (
    Body,
    Client,
    Cursor,
    Id,
    Json,
    Limit,
    Once,
    Since,
    Until,
    about_one,
    group,
    parsed,
    segment,
    show,
)

DEAD_LETTERS: Final = "/v1/dead-letters"
OPERATIONS: Final = "/v1/operations"
LOOK_EVERY_S: Final = 0.5
Wait = Annotated[bool, typer.Option("--wait", help="Until it is over, saying how far it is.")]


def dead_letters(client: Client) -> typer.Typer:
    made = group("Deliveries given up.")

    @made.command("list")
    def list_(
        subscription: str | None = None,
        reason: str | None = None,
        type: str | None = None,
        state: str | None = None,
        since: Since = None,
        until: Until = None,
        cursor: Cursor = None,
        limit: Limit = 100,
        json: Json = False,
    ) -> None:
        """Oldest first; those that are dead, unless --state asks for others."""
        query = {"subscription": subscription, "reason": reason, "type": type, "state": state}
        query |= {"since": since, "until": until, "cursor": cursor}
        found = client.ask("GET", DEAD_LETTERS, query={**query, "limit": limit})
        columns = ("id", "died_at", "reason", "status", "event_type", "subscription")
        show(found, json=json, rows="dead_letters", columns=columns)

    @made.command()
    def redrive(id: Id, once: Once = None, json: Json = False) -> None:
        """Deliver it anew."""
        show(client.ask("POST", f"{DEAD_LETTERS}/{segment(id)}/redrive", once=once), json=json)

    @made.command("redrive-many")
    def redrive_many(body: Body, once: Once = None, wait: Wait = False, json: Json = False) -> None:
        """By a filter: '{"reason": "exhausted", "dry_run": true}'."""
        begun = client.ask("POST", f"{DEAD_LETTERS}/redrive", body=parsed(body), once=once)
        show(follow(client, begun) if wait else begun, json=json)

    about_one(made, client, "show", "GET", DEAD_LETTERS, "", "With its event.")
    about_one(made, client, "discard", "DELETE", DEAD_LETTERS, "", "Take it off the list.")
    return made


def operations(client: Client) -> typer.Typer:
    made = group("Replays and redrives of many.")

    @made.command("list")
    def list_(cursor: Cursor = None, limit: Limit = 100, json: Json = False) -> None:
        """Oldest first."""
        found = client.ask("GET", OPERATIONS, query={"cursor": cursor, "limit": limit})
        show(found, json=json, rows="operations", columns=("id", "kind", "state", "looked_at", "made", "created_at"))

    @made.command()
    def wait(id: Id, json: Json = False) -> None:
        """Until it is over, saying how far it is."""
        show(follow(client, client.ask("GET", f"{OPERATIONS}/{segment(id)}")), json=json)

    about_one(made, client, "show", "GET", OPERATIONS, "", "How far it is.")
    about_one(made, client, "cancel", "DELETE", OPERATIONS, "", "What was made stands.")
    return made


def follow(client: Client, operation: dict[str, Any]) -> dict[str, Any]:
    """The operation when it is over. Each time it has got on, a line on standard error."""
    said = ""
    while True:
        line = f"{operation['state']}: {operation['looked_at']} looked at, {operation['made']} made"
        if line != said:
            typer.echo(line, err=True)
            said = line
        if operation["state"] != "running":
            return operation
        time.sleep(LOOK_EVERY_S)
        operation = client.ask("GET", f"{OPERATIONS}/{segment(operation['id'])}")
