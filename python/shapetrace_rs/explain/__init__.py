"""What the optimizer did to a program: as a table, as data, and as a page to read in a browser.

    with shapetrace_rs.enabled(), shapetrace_rs.record_calls(details=True) as recording:
        jfn = thunder.jit(fn)
        jfn(x)
    recording.report().save("report.html")

`explain(jfn)` and `last_report()` need no preparation, and know what they can know without it.
"""

from __future__ import annotations

from .ask import explain, last_report
from .data import REASONS, CallReport, OpReport, PassReport, Report

__all__ = ["REASONS", "CallReport", "OpReport", "PassReport", "Report", "explain", "last_report"]
