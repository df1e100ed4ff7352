"""What the documents name is there: files, functions and tests by their path, targets of make, metrics, settings."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from hub_app.domain.filters import OPERATORS
from hub_app.domain.signing import Signer, secret_text
from hub_app.settings.fields import FIELDS
from hub_app.telemetry.metrics import Metrics
from tests.house import _tree
from tests.simulation import model

DOCUMENTS = [path for path in _tree.tracked() if path.suffix == ".md"]
OPERATIONS = _tree.ROOT / "docs" / "operations.md"
PROTOCOL = _tree.ROOT / "docs" / "protocol.md"
HTTP_API = _tree.ROOT / "docs" / "http-api.md"
REFERENCE = re.compile(r"`((?:hub_app|agents|tables|tests)/[\w/.-]*)(?:::([\w.]+))?`")
NOT_YET = "not filled yet"
# Settings that the code reads under another name, or that are asked for only while settings are judged.
READ_AS = {
    "http_listen": "http_host",
    "kek_ref": "keks",
    "dev_kek": "keks",
    "rate_limit_max": "rate_limit",
    "rate_limit_window_s": "rate_limit",
    "rate_limit_writes_max": "rate_limit_writes",
    "rate_limit_writes_window_s": "rate_limit_writes",
    "rate_limit_reads_max": "rate_limit_reads",
    "rate_limit_reads_window_s": "rate_limit_reads",
    "allow_insecure_kafka": "kafka_tls_enabled",
    "dlq_retention_ms": "retentions",
    "dead_letter_retention_ms": "retentions",
    "attempts_retention_ms": "retentions",
}


def _defined(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Names that a module or class defines, each with its own body."""
    found: dict[str, list[ast.stmt]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node.body
        elif isinstance(node, ast.Assign):
            found |= {target.id: [] for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = []
    return found


def _is_there(path: Path, name: str) -> bool:
    if not name:
        return path.exists()
    if path.suffix != ".py" or not path.is_file():
        return False
    body = _tree.tree(path).body
    for part in name.split("."):
        inside = _defined(body)
        if part not in inside:
            return False
        body = inside[part]
    return True


def test_files_functions_and_tests_that_documents_name_exist() -> None:
    missing = {
        (_tree.name(document), f"{path}::{name}" if name else path)
        for document in DOCUMENTS
        for path, name in REFERENCE.findall(document.read_text("utf-8"))
        if not _is_there(_tree.ROOT / path, name)
    }
    assert missing == set()


def test_sections_that_code_and_documents_name_exist() -> None:
    """`docs/protocol.md, "Crash"` names a heading that begins so."""
    missing = set()
    for path in (path for path in _tree.tracked() if path.suffix in (".py", ".md")):
        for document, section in re.findall(r"([\w/-]+\.md), \"([A-Z][^\"\n]*)\"", path.read_text("utf-8")):
            found = next(base / document for base in (_tree.ROOT, _tree.ROOT / "docs") if (base / document).exists())
            if f"\n## {section}" not in found.read_text("utf-8"):
                missing.add((_tree.name(path), document, section))
    assert missing == set()


def test_every_rule_that_the_model_can_leave_out_has_its_place_in_the_protocol() -> None:
    lines = [line for line in PROTOCOL.read_text("utf-8").splitlines() if line.startswith("Model: ")]
    assert sorted(name for line in lines for name in re.findall(r"`(\w+)`", line)) == sorted(model.BREAKS)


def test_targets_of_make_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (_tree.ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {name for document in DOCUMENTS for name in re.findall(r"\bmake ([a-z-]+)\b", _code_of(document))}
    assert named and named <= targets


def _code_of(document: Path) -> str:
    """Inline code and indented or fenced blocks: prose may "make sure"."""
    text = document.read_text("utf-8")
    blocks = re.findall(r"^(?: {4}.*|```[\s\S]*?^```)$", text, re.MULTILINE)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])


def _rows(document: Path, start: str) -> list[tuple[str, ...]]:
    """Cells of table rows whose first cell begins so."""
    lines = [line for line in document.read_text("utf-8").splitlines() if line.startswith(f"| {start}")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def test_every_metric_is_documented_with_its_labels_and_whether_it_is_filled() -> None:
    """A metric is filled when some module says `metrics.<attribute>`."""
    metrics, filled = Metrics(), _attributes(of={"metrics", "_metrics"})
    expected = [
        (f"`{family.name}`", family.kind, " ".join(family.label_names) or "none", attribute in filled)
        for attribute, family in vars(metrics).items()
        if attribute != "registry"
    ]
    rows = _rows(OPERATIONS, "`hub_")
    assert [(name, kind, labels, NOT_YET not in meaning) for name, kind, labels, meaning in rows] == expected


def test_settings_without_an_effect_are_documented_as_such() -> None:
    line = next(
        line for line in OPERATIONS.read_text("utf-8").splitlines() if line.startswith("Without an effect yet:")
    )
    read = _attributes(of=None)
    idle = {field.name for field in FIELDS if READ_AS.get(field.attribute, field.attribute) not in read}
    assert set(re.findall(r"`([A-Z_]+)`", line)) == idle


@cache
def _accesses() -> tuple[tuple[str, str], ...]:
    """(of what, attribute) for every access in the shipped code but the settings' own and the workbench."""

    def found() -> Iterator[tuple[str, str]]:
        for path in _tree.modules():
            if not _tree.name(path).startswith(("hub_app/settings/", "hub_app/dev/")):
                for node in ast.walk(_tree.tree(path)):
                    if isinstance(node, ast.Attribute):
                        of = node.value
                        yield getattr(of, "id", getattr(of, "attr", "")), node.attr

    return tuple(found())


def _attributes(of: set[str] | None) -> set[str]:
    return {attribute for name, attribute in _accesses() if of is None or name in of}


@pytest.fixture
def verify() -> Callable[..., bool]:
    """The function that the document gives to receivers."""
    [code] = re.findall(r"```python\n(.*?)```", HTTP_API.read_text("utf-8"), re.DOTALL)
    names: dict[str, Callable[..., bool]] = {}
    exec(compile(code, str(HTTP_API), "exec"), names)
    return names["verify"]


def _signed(secrets: list[str], body: bytes, at_s: int) -> dict[str, str]:
    lines = Signer(secrets).headers("evt_1", at_s, body).decode().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_the_verification_for_receivers_verifies(verify: Callable[..., bool]) -> None:
    old, new, body, now_s = secret_text(b"o" * 24), secret_text(b"n" * 32), b'{"a":1.0 }', int(time.time())
    assert verify(new, _signed([new], body, now_s), body)
    assert verify(old, _signed([new, old], body, now_s), body)
    assert not verify(old, _signed([new], body, now_s), body)
    assert not verify(new, _signed([new], body, now_s), body + b" ")
    assert not verify(new, _signed([new], body, now_s - 301), body)


def test_every_filter_operator_is_documented_with_what_it_takes() -> None:
    found = {
        name: takes.strip("` ").partition("`")[0]
        for line in HTTP_API.read_text("utf-8").splitlines()
        if re.match(r"\| `[A-Z][A-Za-z ]+` \|", line)
        for names, takes in [line.split("|")[1:3]]
        for name in names.strip("` ").split(" ")
    }
    assert found == {name: operator.field.replace("none", "nothing") for name, operator in OPERATORS.items()}
