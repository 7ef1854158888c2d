"""The questions: what happened to this function, to this trace, in the latest compile.

What can be answered depends on what was kept:

* The numbers of the latest calls are always remembered, and so are weak references to the traces that came in.
* Thunder keeps some of those traces as long as the compiled function lives. For these the optimizer runs once more
  and says what happens to each op; the others are gone, unless somebody recorded with `details=True`.
* With `inputs` the function is compiled anew, and everything is recorded.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .. import _state, report
from .._thunder import trace_module
from ..options import OptimizeOptions
from ..report import CallRecord, CompileKey, Explanation, RecordedCall
from .data import Report, report_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..optimize import CallStatistics

__all__ = ["explain", "last_report"]

_ELIMINATION = "Dead Code Elimination"

_SOME_DETAILS = (
    "Not every trace of this compile still exists, so some calls are known by their numbers alone. To see all ops, "
    "pass inputs=(...) to compile once more, or compile inside record_calls(details=True)."
)
_AFTERWARDS = (
    "Nothing is remembered about the compile of this function: it was compiled without the drop-in, or long ago. "
    "The optimizer ran now, on the traces that thunder keeps; the times are of now, with what the traces have cached."
)
_COMPARED_AFTERWARDS = "Thunder's own pass was timed now, on copies of the traces that still exist, with their caches."
_RECOMPILED = "The function was compiled once more for this report, with the inputs that were given."


def explain(
    target: Any,
    *,
    inputs: Sequence[Any] | None = None,
    keywords: Mapping[str, Any] | None = None,
    compare: bool = False,
    **options: Any,
) -> Report:
    """What the optimizer did to a compiled function, or does to a trace.

    Args:
        target: What `thunder.jit` returned, or a trace.
        inputs: Positional arguments to call the function with: it is compiled once more and run, everything is
            recorded, and what thunder has compiled before is left as it was.
        keywords: Keyword arguments for that call.
        compare: Also time thunder's own pass on copies of the same traces.
        **options: The options of `install`, where the optimizer runs for this report. By default those that are
            installed.

    Returns:
        A report. Its `notes` say what it is made from.

    Raises:
        TypeError: The target is neither a trace nor a function that `thunder.jit` returned.
        ValueError: The function has not been called yet, and no inputs are given.

    Examples:
        >>> jfn = thunder.jit(fn)  # doctest: +SKIP
        >>> shapetrace_rs.explain(jfn, inputs=(x,)).save("report.html")  # doctest: +SKIP
    """
    chosen = OptimizeOptions(**options) if options else _state.current_options() or OptimizeOptions()
    if isinstance(target, trace_module().TraceCtx):
        call = _explained_now(target, CompileKey(name="a trace"), chosen, "", compare=compare)
        return report_of([(call, "afterwards")], title=_trace_title(target))

    import thunder

    data = thunder.compile_data(target)
    statistics = thunder.compile_stats(target)
    if data is None or statistics is None:
        message = f"expected a trace or what thunder.jit returned, not {type(target).__name__}"
        raise TypeError(message)
    if inputs is not None or keywords is not None:
        return _recompile(target, statistics, tuple(inputs or ()), dict(keywords or {}), chosen, compare=compare)
    if statistics.last_traces is None:
        message = "the function has not been called yet: call it, or pass inputs=(...) to compile it for the report"
        raise ValueError(message)

    calls = [
        call for call in report.remembered_calls() if call.key.function is not None and call.key.function() is data
    ]
    # A cache of several compiles is asked about the latest of them, as `thunder.last_traces` is.
    calls = [call for call in calls if call.key.number == calls[-1].key.number]
    if calls:
        return _with_details(calls, compare=compare)
    key = CompileKey(None, 0, _name(data))
    kept = [
        _explained_now(trace, key, chosen, kind, compare=compare) for kind, trace in _traces_before_elimination(target)
    ]
    return report_of([(call, "afterwards") for call in kept], title=key.name, notes=[_AFTERWARDS])


def last_report() -> Report | None:
    """What the optimizer did in the latest compile of this process, or in the latest call outside of any.

    Returns:
        A report, or `None` if the optimizer has not run yet. It tells of each op where the trace still exists or
        the compile was recorded with `details=True`.
    """
    calls = report.remembered_calls()
    if not calls:
        return None
    key = calls[-1].key
    if key.function is None:
        return _with_details(calls[-1:], compare=False)
    return _with_details([call for call in calls if call.key == key], compare=False)


def _with_details(calls: list[RecordedCall], *, compare: bool) -> Report:
    """A report of remembered calls, with the ops of those whose input still exists."""
    complete: list[RecordedCall] = []
    for call in calls:
        trace = None if call.trace is None else call.trace()
        if trace is None or call.options is None:
            complete.append(call)
            continue
        record = call.record
        explanation = call.explanation or _same_as_recorded(trace, call, call.options)
        if compare:
            thunder_ns, thunder_ops_out, _ = report.time_thunder(report.copy_trace(trace, "as found"), None)
            record = replace(record, thunder_ns=thunder_ns, thunder_ops_out=thunder_ops_out)
        complete.append(replace(call, record=record, explanation=explanation))
    notes = []
    if any(call.explanation is None and call.record.fallback is None for call in complete):
        notes.append(_SOME_DETAILS)
    if compare:
        notes.append(_COMPARED_AFTERWARDS)
    return report_of(complete, notes=notes)


def _same_as_recorded(trace: Any, call: RecordedCall, options: OptimizeOptions) -> Explanation | None:
    """What happens to each op now, if it is what happened then: the trace may have been edited since."""
    explanation = report.explain_call(trace, None, options)
    if explanation is None:
        return None
    record = call.record
    sizes = (record.ops_in + record.nested_in, record.ops_out + record.nested_out)
    now = (len(explanation.ops), sum(after is not None for _, after, _, _, _ in explanation.ops))
    return explanation if now == sizes else None


def _explained_now(trace: Any, key: CompileKey, options: OptimizeOptions, kind: str, *, compare: bool) -> RecordedCall:
    """Run the optimizer on a trace, and thunder's own pass on a copy."""
    from ..optimize import run

    thunder_ns, thunder_ops_out = None, None
    if compare:
        thunder_ns, thunder_ops_out, _ = report.time_thunder(report.copy_trace(trace, "as found"), None)
    _, statistics = run(trace, None, options)
    record = replace(
        _record(trace, options.level, statistics, kind), thunder_ns=thunder_ns, thunder_ops_out=thunder_ops_out
    )
    return RecordedCall(record, key, report.explain_call(trace, None, options), None, options)


def _record(trace: Any, level: str, statistics: CallStatistics, kind: str) -> CallRecord:
    """The numbers of a run that no compile asked for."""
    return CallRecord(
        module="shapetrace_rs",
        function=f"explain ({kind})" if kind else "explain",
        line=0,
        provenance=getattr(trace.get_provenance(), "pss", ""),
        **report.figures(level, statistics),
    )


def _recompile(
    target: Any,
    statistics: Any,
    inputs: tuple[Any, ...],
    keywords: dict[str, Any],
    options: OptimizeOptions,
    *,
    compare: bool,
) -> Report:
    """Compile once more with everything recorded. What thunder has compiled before comes back afterwards."""
    from ..install import enabled

    installing = (
        nullcontext()
        if _state.options == options
        else enabled(**{f.name: getattr(options, f.name) for f in fields(options)})
    )
    cache = statistics.interpreter_cache
    statistics.interpreter_cache = []
    try:
        with installing, report.record_calls(details=True, compare="as found" if compare else None) as recording:
            target(*inputs, **keywords)
    finally:
        statistics.interpreter_cache = cache
    made = recording.report()
    made.notes.insert(0, _RECOMPILED)
    return made


def _traces_before_elimination(target: Any) -> list[tuple[str, Any]]:
    """The traces that thunder keeps of a function and that went into dead code elimination next."""
    import thunder
    from thunder.core.prims import PrimIDs

    statistics = thunder.compile_stats(target)
    found = []
    for kind in ("prologue", "computation", "epilogue", "backward"):
        name = "last_traces" if kind == "computation" else f"last_{kind}_traces"
        traces = [trace for trace in getattr(statistics, name, None) or () if trace is not None]
        before = [
            trace
            for trace, following in pairwise(traces)
            if getattr(following.get_provenance(), "pss", "").startswith(_ELIMINATION)
        ]
        # Where thunder keeps no trace from behind the pass, the first one is the closest to the program. Traces with
        # `del` statements are finished: nothing eliminates anything from them.
        before = before or traces[:1]
        found += [(kind, trace) for trace in before if not any(op.sym.id is PrimIDs.DEL for op in trace.bound_symbols)]
    return found


def _name(data: Any) -> str:
    """What a compiled function is called."""
    return getattr(data.fn, "__qualname__", None) or type(data.fn).__qualname__


def _trace_title(trace: Any) -> str:
    """What a trace is called."""
    provenance = getattr(trace.get_provenance(), "pss", "")
    return f"a trace of {len(trace.bound_symbols)} ops" + (f", made by {provenance}" if provenance else "")
