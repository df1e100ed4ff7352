"""Streaming Hub. `hub_app.app` is the Faust application, built on first use (PEP 562): `faust -A hub_app worker` works,
while `import hub_app.domain` loads neither Faust nor the environment."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hub_app import _siblings, composition

    _siblings.check()
    app = globals()["app"] = composition.app_from_environment()
    return app
