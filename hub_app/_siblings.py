"""`agents` and `tables` are top-level packages here, and names of packages on PyPI too. Whoever installed one of those
beside us must hear it in one clear line, not as an AttributeError deep inside the start."""

from __future__ import annotations

import importlib
import importlib.util

OWNER = "streaming-hub"
NAMES = ("agents", "tables")


def check() -> None:
    """Import both siblings. Raises ImportError that names the intruder and its file."""
    for name in NAMES:
        found = importlib.util.find_spec(name)
        where = (found.origin or list(found.submodule_search_locations or ())) if found else None
        if where is None:
            raise ImportError(f"the package {name!r} of {OWNER} is missing: install {OWNER} again", name=name)
        problem: Exception | None = None
        try:
            owner = getattr(importlib.import_module(name), "OWNER", None)
        except Exception as error:  # an intruder may fail in any way
            owner, problem = None, error
        if owner != OWNER:
            raise ImportError(
                f"the package {name!r} at {where} is not the one of {OWNER}: another distribution provides that name; "
                f"install {OWNER} in a virtual environment of its own",
                name=name,
            ) from problem
