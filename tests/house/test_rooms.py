"""The rooms: each is under the law, the domain is pure, and importing has no effects."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import _tree

# The parts of the standard library that compute and do nothing else.
# fmt: off
PURE = {
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "collections.abc", "dataclasses", "datetime",
    "email.utils", "enum", "fnmatch", "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools", "json",
    "json.decoder", "math", "operator", "re", "string", "struct", "types", "typing", "unicodedata", "urllib.parse",
    "zlib",
}
# fmt: on
# Where a pure module has a door to the outside.
CLOCKS = {"now", "utcnow", "today", "localtime"}
EFFECTS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
# Not rooms: the package itself, the workbench, and the guard at the door.
OUTSIDE_THE_LAW = {"hub_app.dev", "hub_app._siblings", "hub_app.__main__"}


def _domain() -> list[Path]:
    return [path for path in _tree.modules() if _tree.name(path).startswith("hub_app/domain/")]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree.tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def test_every_room_is_under_the_law() -> None:
    contracts = tomllib.loads((_tree.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "rooms"]
    lawful = {room.strip("() ") for layer in layers for room in layer.replace("|", ":").split(":")}
    rooms = {".".join(Path(_tree.name(path)).with_suffix("").parts[:2]) for path in _tree.modules()}
    assert {room for room in rooms if room.startswith("hub_app.")} - {"hub_app.__init__"} <= lawful | OUTSIDE_THE_LAW


def test_the_domain_imports_only_pure_parts_of_the_standard_library() -> None:
    impure = {
        (_tree.name(path), module)
        for path in _domain()
        for module in _imports(path)
        if module not in PURE and not module.startswith("hub_app.domain")
    }
    assert impure == set()


def test_the_domain_asks_for_no_clock_and_touches_nothing() -> None:
    found = set()
    for path in _domain():
        for node in ast.walk(_tree.tree(path)):
            match node:
                case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
                    found.add((_tree.name(path), node.lineno, name))
                case ast.Call(func=ast.Name(id=name)) if name in EFFECTS:
                    found.add((_tree.name(path), node.lineno, name))
    assert found == set()


DOMAIN_ALONE = """
import importlib, pkgutil, sys
before = set(sys.modules)
import hub_app.domain
for module in pkgutil.walk_packages(hub_app.domain.__path__, "hub_app.domain."):
    importlib.import_module(module.name)
loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*sorted(loaded))
print(*sorted(name for name in sys.modules if name.startswith("hub_app.") and not name.startswith("hub_app.domain")))
"""

NO_EFFECTS = """
import importlib, os, pkgutil, sys, threading
root, names = sys.argv[1], sys.argv[2:]
touched = []

def ours(frame):
    # The innermost frame that is neither the standard library's nor frozen: who really did it.
    while frame is not None:
        file = frame.f_code.co_filename
        if "site-packages" in file:
            return False
        if file.startswith(root):
            return True
        frame = frame.f_back
    return False

def hook(event, arguments):
    writes = event == "open" and isinstance(arguments[1], str) and set("wax+") & set(arguments[1])
    if writes or event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.mkdir", "os.remove", "os.rename"):
        if ours(sys._getframe(1)):
            touched.append((event, arguments[0]))

sys.addaudithook(hook)
environment = dict(os.environ)
for name in names:
    importlib.import_module(name)
assert not touched, touched
assert threading.active_count() == 1, threading.enumerate()
assert dict(os.environ) == environment
"""


def _python(program: str, *arguments: str) -> str:
    command = [sys.executable, "-B", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=_tree.ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_domain_loads_nothing_else() -> None:
    third_party, other_rooms = _python(DOMAIN_ALONE).split("\n")[:2]
    assert third_party == "hub_app"
    assert other_rooms == ""


def test_importing_any_module_touches_nothing() -> None:
    """No file written, no connection, no process, no thread, no environment variable."""
    paths = [path.relative_to(_tree.ROOT).with_suffix("") for path in _tree.modules() if path.name != "__main__.py"]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    assert _python(NO_EFFECTS, str(_tree.ROOT), *names) == ""


@pytest.mark.parametrize("statement", ["import hub_app", "import agents, tables", "import hub_app.ports"])
def test_the_door_loads_no_faust(statement: str) -> None:
    assert _python(f"import sys; {statement}; print('faust' in sys.modules)") == "False\n"
