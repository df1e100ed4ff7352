"""What no file of this repository says."""

from __future__ import annotations

import re

from tests.house import _tree

BANNED = {
    "a path of somebody's machine": r"(?<![\w.])/work/|/home/\w+/|/root/",
    "a folder a user does not have": r"\.\./shared|\(design/",
    "a registry's host": r"(pypi|maven|npmjs|pythonhosted)\.(org|com)\b(?!/POM)|maven\.apache\.org(?!/POM)",
    "an unfinished thought": r"\b(TODO|FIXME|XXX|HACK)\b",
}
# A test that does not run proves nothing; one that patches time or a client proves something about the patch.
BANNED_IN_TESTS = {
    "a skipped test": r"pytest\.(skip|importorskip|xfail)|mark\.(skip|skipif|xfail)",
    "a patch": r"unittest\.mock|monkeypatch\.setattr|freezegun|time_machine",
}


def _found(patterns: dict[str, str], *, tests_only: bool) -> set[tuple[str, int, str]]:
    found = set()
    for path in _tree.tracked():
        if path.name in ("test_words.py", "jars.lock") or (tests_only and not _tree.name(path).startswith("tests/")):
            continue
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:  # not a text
            continue
        for number, line in enumerate(lines, 1):
            found |= {(_tree.name(path), number, why) for why, pattern in patterns.items() if re.search(pattern, line)}
    return found


def test_no_banned_words() -> None:
    assert _found(BANNED, tests_only=False) == set()


def test_no_skips_and_no_patches() -> None:
    assert _found(BANNED_IN_TESTS, tests_only=True) == set()


def test_documents_that_are_named_exist() -> None:
    """By their path from the root, or inside `docs/` by their name."""
    missing = set()
    for path in _tree.tracked():
        if path.suffix not in (".py", ".md", ".toml", ".yml", ".xml") or path.name == "test_words.py":
            continue
        for name in re.findall(r"[\w./-]+\.md\b", path.read_text("utf-8")):
            if not any((base / name).exists() for base in (_tree.ROOT, _tree.ROOT / "docs", path.parent)):
                missing.add((_tree.name(path), name))
    assert missing == set()
