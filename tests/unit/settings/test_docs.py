"""The document and the table say the same."""

from __future__ import annotations

from pathlib import Path

from hub_app.settings.fields import FIELDS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_every_setting_is_documented_with_its_default_and_meaning() -> None:
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith(("| `", "| ★"))]
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    expected = []
    for field in FIELDS:
        default = f"`{field.default}`" if field.default else "empty"
        if field.in_local is not None:
            default = f"{default} (`{field.in_local}` in `local`)"
        expected.append((f"{'★ ' if field.full else ''}`{field.name}`", default, field.meaning))
    assert rows == expected
