"""The optimizer as a thunder transform, for one function: `thunder.jit(fn, transforms=[...])`.

Where it runs, and why there:

* Before the prologue is compiled, on the prologue, the computation and the epilogue. Autograd comes later, so
  what is removed from the computation never gets a backward either.
* On the final computation and backward traces, at level `"full"` only. There the `del` statements are taken
  out first and made again behind, since a `del` uses the values that it deletes: it would keep every one of
  them alive, and deleting a value that is no longer made is an error when the trace runs. A trace in which
  nothing can be removed is handed back as it is.

At level `"compat"` the final traces stay untouched. Thunder's own pass finds nothing there (it ran already,
on the same ops), and it would drop the ops without results that earlier transforms put in for profiling and
debugging. Fused ops are never looked into at that point: their compiled code exists already.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from . import _hooks, report
from .options import OptimizeOptions
from .versions import check_versions

if "thunder" not in sys.modules:
    check_versions()

from thunder.core.prims import PrimIDs
from thunder.core.trace import from_trace
from thunder.core.transform_common import Transform
from thunder.executors.passes import del_last_used

__all__ = ["OptimizeTransform"]

_optimize: Any = importlib.import_module("shapetrace_rs.optimize")

_CLEARING_OP = "clear_mutable_collection"


class OptimizeTransform(Transform):  # type: ignore[misc]  # (thunder has no types)
    """Runs the optimizer on the traces of one compiled function.

    It works beside the drop-in or without it. Without it, thunder's own pass still runs between its other
    steps, so the compile gains less time than with `install`; the traces come out equally clean at the two
    points named above.

    When the optimizer fails, the trace in question is used as it was and a warning names the cause; with
    `strict=True` the error is raised.
    """

    def __init__(self, **options: Any) -> None:
        """Make a transform.

        Args:
            **options: The keyword arguments of `shapetrace_rs.install`.

        Raises:
            TypeError: There is no option of that name.
            ValueError: An option has a value that it cannot have.
        """
        self.options = OptimizeOptions(**options)

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        """Optimize the three traces of a program before thunder goes on with them.

        Args:
            prologue_trace: The trace that checks and unpacks the inputs.
            computation_trace: The trace of the computation, still without its backward.
            epilogue_trace: The trace that writes back to Python objects, or `None`.
            **kwargs: What else thunder passes; not used.

        Returns:
            The three optimized traces.
        """
        del kwargs
        return (
            self._optimized(prologue_trace),
            self._optimized(computation_trace),
            None if epilogue_trace is None else self._optimized(epilogue_trace),
        )

    def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
        """Optimize a trace that the executors have worked on; thunder calls it for the backward trace too.

        Args:
            computation_trace: The trace, with `del` statements.
            **kwargs: What else thunder passes; not used.

        Returns:
            The optimized trace with new `del` statements, or the very same object when there was nothing to
            remove.
        """
        del kwargs
        if self.options.level == "compat":
            return computation_trace
        clears_collections = False
        bare_trace = from_trace(computation_trace)
        bare_bound_symbols = []
        for bsym in computation_trace.bound_symbols:
            if bsym.sym.name == _CLEARING_OP:
                clears_collections = True
            elif bsym.sym.id is not PrimIDs.DEL:
                bare_bound_symbols.append(bsym)
        bare_trace.bound_symbols = bare_bound_symbols
        bare_trace.set_provenance(computation_trace.get_provenance())

        optimized = self._optimized(bare_trace)
        unchanged = len(optimized.bound_symbols) == len(bare_bound_symbols) and all(
            after is before for after, before in zip(optimized.bound_symbols, bare_bound_symbols, strict=True)
        )
        if unchanged:
            return computation_trace
        return del_last_used(optimized, clear_mutable_collections=clears_collections)

    def __repr__(self) -> str:
        """The transform as thunder shows it in the list of transforms."""
        return f"{type(self).__module__}.{type(self).__name__}({self.options})"

    def _optimized(self, trace: Any) -> Any:
        """The optimized trace, or the trace itself when the optimizer fails and that is not to be raised."""
        recordings = report.recordings
        call = None
        caller = sys._getframe(1)  # the cheap way: `inspect` reads source files
        if recordings is not None:
            call = report.open_call(recordings, caller, trace, None)
        try:
            result, statistics = _optimize.run(trace, None, self.options)
        except Exception as error:
            if self.options.strict:
                raise
            cause = _hooks.describe(error)
        else:
            report.count(statistics)
            explanation = None
            if recordings is not None and call is not None:
                explanation = report.close_call(recordings, call, trace, self.options, statistics, result=result)
            report.remember(caller, trace, trace.get_provenance(), self.options, statistics, explanation)
            return result
        report.count_fallback(0)
        report.remember_fallback(caller, trace, self.options, cause, trace, 0)
        if recordings is not None and call is not None:
            report.close_fallback(recordings, call, self.options.level, cause, trace, 0)
        _hooks.tell_fallback(cause, "the trace is used as it was", stacklevel=2)
        return trace
