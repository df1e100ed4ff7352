"""The document names every route and every kind of problem, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from hub_app.web.routes import table
from tests.fakes.workers import Deployment, Worker

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "http-api.md").read_text("utf-8")


async def test_every_route_is_documented_with_its_scope(hub: Deployment, worker: Worker) -> None:
    found = re.findall(r"^\| `(\S+) ([^`?]+)(?:\?[^`]*)?` \| (\S+) \|", DOCUMENT, re.MULTILINE)
    keyed = {
        (method, path, scope) for method, path, scope in found if scope in ("publish", "receive", "manage", "admin")
    }
    assert keyed == {(route.method, route.path, route.scope) for route in table(worker.deps)}


def test_every_kind_of_problem_is_documented() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "hub_app" / "web").glob("*.py"))
    slugs = set(re.findall(r'Problem\(\s*\d+,\s*"([a-z-]+)"', code)) | set(re.findall(r'conflict\("([a-z-]+)"', code))
    assert len(slugs) > 15
    assert {slug for slug in slugs if f"`{slug}`" not in DOCUMENT} == set()
