"""Modules named thunder and torch that may be found but not imported, where the real ones are not installed.

Importing `shapetrace_rs` looks whether the two are there and imports neither. With these in their place, all that
needs no trace of thunder's can be tried in a small environment, and an import that slips in is an error.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

NAMES = ("thunder", "torch")


def missing() -> bool:
    """Whether thunder or torch is not installed."""
    return any(importlib.util.find_spec(name) is None for name in NAMES)


def write_to(directory: Path) -> None:
    """Write the two modules; whoever has the directory on its path can find them."""
    for name in NAMES:
        source = f"raise AssertionError('nothing here may import {name}')\n"
        (directory / f"{name}.py").write_text(source, encoding="utf-8")
