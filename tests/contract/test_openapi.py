"""The API against its own document: thousands of made-up requests, good and bad, over real HTTP. No answer of 500 or
above, none that the document does not name, and every body of the shape that it promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from hub_app.web.openapi import document
from hub_app.web.routes import table
from tests.fakes.workers import ADMIN_KEY, Deployment, Worker
from tests.support.openapi_world import World, prepared
from tests.support.served import Served, served

CASES_MIN: Final = 2_000
LINE_CHARS_MAX: Final = 8_000
EXAMPLES: Final = {GenerationMode.POSITIVE: 14, GenerationMode.NEGATIVE: 6}
EXAMPLES_WITH_BODY: Final = {GenerationMode.POSITIVE: 120, GenerationMode.NEGATIVE: 115}
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture
async def hub() -> AsyncIterator[Deployment]:
    deployment = Deployment()
    yield deployment
    await deployment.close()


@pytest.fixture
async def worker(hub: Deployment) -> Worker:
    return await hub.worker()


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Served, World]]:
    with served(prepared) as made:
        yield made


def test_the_document_is_valid(world: tuple[Served, World]) -> None:
    described = document(table(world[0].worker.deps), "0")
    for schema in described["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    ids = [op["operationId"] for path in described["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))


def test_nothing_surprises(world: tuple[Served, World], record_property: Any) -> None:
    hub, known = world
    schema = schemathesis.openapi.from_dict(document(table(hub.worker.deps), "0"))
    statuses: Counter[int] = Counter()
    with_body = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        key = ADMIN_KEY if operation.path.startswith("/admin") else known.key
        before = statuses.total()
        for mode, examples in (EXAMPLES_WITH_BODY if operation.body else EXAMPLES).items():
            _examine(operation, mode, examples, hub.worker.url, key, known.parts, statuses)
        with_body += statuses.total() - before if operation.body else 0
    record_property("answers", dict(statuses))
    assert with_body >= CASES_MIN
    assert {200, 201, 204, 400, 404, 422} <= statuses.keys()


def _examine(
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    examples: int,
    url: str,
    key: str,
    parts: Mapping[str, list[Any]],
    statuses: Counter[int],
) -> None:
    """Half of the good requests are about something that is there."""
    label, positive = operation.label, mode is GenerationMode.POSITIVE

    @seed(20_260_101)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), pick=st.integers(0, 1 << 16))
    def ask(case: Any, pick: int) -> None:
        if positive and pick % 2:
            for name in case.path_parameters or {}:
                there = parts.get(f"{operation.path}:{name}") or parts.get(name)
                if there:
                    case.path_parameters[name] = there[pick % len(there)]
        if positive and "wait" in (case.query or {}):
            case.query["wait"] = 0  # what waits is tested elsewhere
        answer = case.call(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=20)
        if len(answer.request.url or "") > LINE_CHARS_MAX:
            return  # the server's own bound on a request's line, before any route
        statuses[answer.status_code] += 1
        checks = CHECKS if answer.status_code != 413 else CHECKS[:-1]  # it counts that as accepted
        case.validate_response(answer, checks=checks)

    try:
        ask()
    except Exception as error:
        error.add_note(f"{label}, {mode}")
        raise


async def test_the_document_is_served_without_a_key(hub: Deployment, worker: Worker) -> None:
    reply = await hub.ask(worker, "GET", "/openapi.json")
    assert (reply.status, reply.json) == (200, document(table(worker.deps), "0.0.0"))


async def test_the_explorer_takes_nothing_from_elsewhere(hub: Deployment) -> None:
    shows = await hub.worker(SWAGGER_ENABLED="true")
    reply = await hub.ask(shows, "GET", "/docs")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    text = reply.body.decode()
    assert "http://" not in text
    assert "https://" not in text
    hides = await hub.worker(SWAGGER_ENABLED="false")
    assert (await hub.ask(hides, "GET", "/docs")).status == 404
