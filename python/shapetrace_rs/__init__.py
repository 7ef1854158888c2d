"""A Rust optimizer for the traces of lightning-thunder, in place of its dead code elimination.

Four ways to use it:

* `install()` and `uninstall()`, or `with enabled():`, for everything that thunder compiles in this process;
* `OptimizeTransform` for one function: `thunder.jit(fn, transforms=[shapetrace_rs.OptimizeTransform()])`;
* `dce`, `dce_bsyms` and `optimize`, on traces that you have in hand;
* `python -m shapetrace_rs run script.py`, for a program that is not to be edited.

Beside these, `save` and `load` keep traces as files, and `explain`, `verify` and `record_calls` tell what happened.

Importing the package imports neither thunder nor torch; the first use does, and says so if they are missing or do not
fit. What works on files alone (`python -m shapetrace_rs stat`, `show`, `opt`, `verify`, `diff`) never needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    InternalError,
    InvalidTraceError,
    MissingReturnError,
    ShapetraceError,
    ShapetraceWarning,
    TraceFileError,
    UnsupportedVersionError,
)
from .explain import CallReport, OpReport, PassReport, Report, explain, last_report
from .files import dumps, dumps_text, load, loads, save
from .install import enabled, install, installed, uninstall
from .optimize import CallStatistics, dce, dce_bsyms, optimize
from .options import OptimizeOptions
from .report import CallRecord, Counters, Recording, counters, record_calls, record_stock_calls
from .verifier import Finding, verify
from .versions import installed_version

if TYPE_CHECKING:
    from .transform import OptimizeTransform

__all__ = [
    "CallRecord",
    "CallReport",
    "CallStatistics",
    "Counters",
    "Finding",
    "InternalError",
    "InvalidTraceError",
    "MissingReturnError",
    "OpReport",
    "OptimizeOptions",
    "OptimizeTransform",
    "PassReport",
    "Recording",
    "Report",
    "ShapetraceError",
    "ShapetraceWarning",
    "TraceFileError",
    "UnsupportedVersionError",
    "__version__",
    "counters",
    "dce",
    "dce_bsyms",
    "dumps",
    "dumps_text",
    "enabled",
    "explain",
    "install",
    "installed",
    "last_report",
    "load",
    "loads",
    "optimize",
    "record_calls",
    "record_stock_calls",
    "save",
    "uninstall",
    "verify",
]

__version__ = installed_version("shapetrace-rs") or "0+unknown"


def __getattr__(name: str) -> Any:
    """Import what needs thunder when it is first asked for."""
    if name == "OptimizeTransform":
        from .transform import OptimizeTransform

        return OptimizeTransform
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
