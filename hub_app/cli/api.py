"""The commands over the HTTP API: what a person asks of a running hub. Where it is stands in HUB_URL, the key in
HUB_API_KEY (an administrator's for `hub keys`). Exit status 1 when the hub refuses, 69 when it cannot be reached."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
import orjson
import typer
from rich.console import Console
from rich.table import Column, Table

URL_DEFAULT: Final = "http://127.0.0.1:8080"
EX_REFUSED: Final = 1
EX_UNAVAILABLE: Final = 69
TIMEOUT_S: Final = 40.0
WIDTH_PIPED: Final = 200

Json = Annotated[bool, typer.Option("--json", help="The JSON of the answer instead of a table.")]
Limit = Annotated[int, typer.Option(help="Rows at most.")]
Id = Annotated[str, typer.Argument(help="Its id.")]
Body = Annotated[str, typer.Argument(help="JSON, as the API takes it; - reads it from standard input.")]
Cursor = Annotated[str | None, typer.Option(help="The `next` of the page before.")]
Once = Annotated[str | None, typer.Option("--once", help="An idempotency key: done once under it.")]
Since = Annotated[str | None, typer.Option(help="At this instant or later (RFC 3339).")]
Until = Annotated[str | None, typer.Option(help="Before this instant (RFC 3339).")]


class Client:
    """One question each; ends the command where the hub does not give what was asked for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._url = environ.get("HUB_URL", URL_DEFAULT).rstrip("/")
        self._key = environ.get("HUB_API_KEY", "")

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, Any] | None = None,
        once: str | None = None,
        if_match: str | None = None,
    ) -> Any:
        """The JSON of a 2xx answer. Query parameters that are None are left out. `once`: an idempotency key."""
        sent = {name: value for name, value in (query or {}).items() if value is not None}
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        headers |= {"Idempotency-Key": once} if once is not None else {}
        headers |= {"If-Match": if_match} if if_match is not None else {}
        try:
            answer = httpx.request(method, self._url + path, json=body, params=sent, headers=headers, timeout=TIMEOUT_S)
        except httpx.HTTPError as error:
            typer.echo(f"{self._url}: {type(error).__name__}: is a hub running there? (HUB_URL)", err=True)
            raise typer.Exit(EX_UNAVAILABLE) from None
        if answer.is_success:
            return orjson.loads(answer.content) if answer.content else None
        typer.echo(_refusal(answer), err=True)
        raise typer.Exit(EX_REFUSED)


def _refusal(answer: httpx.Response) -> str:
    """Status, and every error with its place."""
    try:
        problem = orjson.loads(answer.content)
        lines = [f"{answer.status_code} {problem['title']}: {problem['detail']}"]
        lines += [f"  {error['pointer'] or '(body)'}: {error['detail']}" for error in problem.get("errors", ())]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return f"{answer.status_code}: not an answer of a hub"
    return "\n".join(lines)


def parsed(text: str) -> object:
    """A body given as an argument, or on standard input."""
    try:
        return orjson.loads(sys.stdin.read() if text == "-" else text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"not JSON: {error}") from None


def show(value: Any, *, json: bool, rows: str = "", columns: tuple[str, ...] = (), cursor: str = "cursor") -> None:
    """`rows`: the member that holds the list; without it the value is one thing. `cursor`: what its `next` goes by."""
    if json or value is None:
        typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
        return
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH_PIPED)
    if rows:
        first = Column(
            columns[0].upper(), no_wrap=True, min_width=max([0, *(len(_text(r[columns[0]])) for r in value[rows])])
        )
        table = Table(first, *[Column(name.upper(), overflow="fold") for name in columns[1:]], box=None, pad_edge=False)
        for row in value[rows]:
            table.add_row(*(_text(row.get(name)) for name in columns))
        console.print(table)
        if value.get("next"):
            console.print(f"more: --{cursor} {value['next']}")
        return
    table = Table("FIELD", "VALUE", box=None, pad_edge=False, show_header=False)
    for name, field in value.items():
        table.add_row(name, _text(field))
    console.print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def group(about: str) -> typer.Typer:
    return typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None)


def about_one(made: typer.Typer, client: Client, name: str, method: str, root: str, rest: str, about: str) -> None:
    """A command that takes an id, and asks one question about it."""

    def command(id: Id, json: Json = False) -> None:
        show(client.ask(method, f"{root}/{segment(id)}{rest}"), json=json)

    made.command(name, help=about)(command)


def segment(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")
