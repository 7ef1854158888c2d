"""The functions that stand in for thunder's own while the drop-in is installed, and what they do on failure.

A hook is one permanent function object. It reads the options at each call, so a module that still holds a
hook after `uninstall` (in a closure, say) gets thunder's own pass, as if nothing had ever been replaced.

Failing safely: when the optimizer raises, thunder's own pass runs on the same trace and the compile goes on.
One warning per distinct cause tells about it. Neither the exception nor the trace is kept, only the words of
the cause.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
import threading
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

from . import _state, report
from .errors import ShapetraceWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType


__all__ = ["HOOKS", "describe", "forget_causes", "tell_fallback"]

logger = logging.getLogger("shapetrace_rs")

# The package exports a function of the same name, which hides the module from `import a.b as c`.
_optimize: Any = importlib.import_module("shapetrace_rs.optimize")

_MOST_CAUSES = 64
_causes_told: set[tuple[str, str]] = set()


class _Thread(threading.local):
    """What one thread is doing: thunder's own pass may call hooked names, and must not come back here."""

    in_stock_pass: bool = False


_thread = _Thread()


def _dce(trace: Any, needed_proxies: set[Any] | None = None) -> Any:
    """Dead code elimination of a trace, by the optimizer that is installed.

    Args:
        trace: The trace to optimize; neither it nor its bound symbols are changed.
        needed_proxies: `Variable`s to keep besides the trace's outputs; all needed ones are added to it.

    Returns:
        A new trace.
    """
    options = _state.options
    if options is None or _thread.in_stock_pass:
        return _stock_dce(trace, needed_proxies)

    recordings = report.recordings
    call = None
    caller = sys._getframe(1)  # the cheap way: `inspect` reads source files
    if recordings is not None:
        call = report.open_call(recordings, caller, trace, needed_proxies)
    needed_before: set[Any] | None = None
    try:
        if needed_proxies is not None:
            needed_before = set(needed_proxies)
        source = _opened(trace, caller) if options.level == "full" and options.open_composites else trace
        result, statistics = _optimize.run(source, needed_proxies, options)
    except Exception as error:
        if options.strict:
            raise
        cause = describe(error)
    else:
        report.count(statistics)
        explanation = None
        if recordings is not None and call is not None:
            explanation = report.close_call(recordings, call, source, options, statistics, result=result)
        report.remember(caller, source, trace.get_provenance(), options, statistics, explanation)
        return result

    _restore(needed_proxies, needed_before)
    start_ns = time.perf_counter_ns()
    # Outside of the `except` block: when this raises too, thunder's error is the one to see, without a chain.
    result = _call_stock("dce", trace, needed_proxies)
    elapsed_ns = time.perf_counter_ns() - start_ns
    report.count_fallback(elapsed_ns)
    report.remember_fallback(caller, trace, options, cause, result, elapsed_ns)
    if recordings is not None and call is not None:
        report.close_fallback(recordings, call, options.level, cause, result, elapsed_ns)
    tell_fallback(cause, "thunder's own dead code elimination did the work instead", stacklevel=3)
    return result


def _opened(trace: Any, caller: FrameType) -> Any:
    """The trace with composites opened, if it is about to be given to executors of which one fuses."""
    code = caller.f_code
    if code.co_name != "transform_for_execution" or caller.f_globals.get("__name__") != "thunder.executors.passes":
        return trace
    from ._opening import one_fuses, open_composites

    # Not those of the compile: a prologue, or a region of another compiler, is given to fewer.
    executors = caller.f_locals.get("executors_list", ())
    return open_composites(trace, executors) if one_fuses(executors) else trace


def _dce_bsyms(bsyms: Sequence[Any], output: Any, needed_proxies: set[Any] | None = None) -> Any:
    """Dead code elimination of a list of bound symbols, as newer versions of thunder have it.

    Args:
        bsyms: The bound symbols; they are not changed.
        output: What the list of bound symbols is to produce.
        needed_proxies: `Variable`s to keep besides the output; all needed ones are added to it.

    Returns:
        The bound symbols that remain.
    """
    options = _state.options
    if options is None or _thread.in_stock_pass:
        return _call_stock("dce_bsyms", bsyms, output, needed_proxies)

    needed_before: set[Any] | None = None
    start_ns = time.perf_counter_ns()
    try:
        if needed_proxies is not None:
            needed_before = set(needed_proxies)
        result = _optimize.dce_bsyms(bsyms, output, needed_proxies)
    except Exception as error:
        if options.strict:
            raise
        cause = describe(error)
    else:
        report.count_bsyms(len(bsyms), len(result), time.perf_counter_ns() - start_ns)
        return result

    _restore(needed_proxies, needed_before)
    start_ns = time.perf_counter_ns()
    result = _call_stock("dce_bsyms", bsyms, output, needed_proxies)
    report.count_fallback(time.perf_counter_ns() - start_ns)
    tell_fallback(cause, "thunder's own dead code elimination did the work instead", stacklevel=3)
    return result


HOOKS: dict[str, Callable[..., Any]] = {"dce": _dce, "dce_bsyms": _dce_bsyms}
"""The hook for each function of `thunder.core.transform_common` that the drop-in replaces."""

for _name, _hook in HOOKS.items():
    # Tracebacks, profiles and `repr` should show the name that thunder's callers use.
    _hook.__name__ = _hook.__qualname__ = _name
del _name, _hook


def _restore(needed_proxies: set[Any] | None, needed_before: set[Any] | None) -> None:
    """Undo what a failed attempt may have added to the caller's set."""
    if needed_proxies is not None and needed_before is not None and needed_proxies != needed_before:
        needed_proxies.clear()
        needed_proxies.update(needed_before)


def _stock_dce(trace: Any, needed_proxies: set[Any] | None) -> Any:
    """Thunder's own pass; a recording of thunder itself may want to know about it."""
    recordings = report.recordings
    if recordings is None or _thread.in_stock_pass or not _state.top_frame().hooked:
        return _call_stock("dce", trace, needed_proxies)
    caller = sys._getframe(2)  # the cheap way: `inspect` reads source files
    call = report.open_stock_call(caller, trace)
    start_ns = time.perf_counter_ns()
    result = _call_stock("dce", trace, needed_proxies)
    report.close_stock_call(recordings, call, result, time.perf_counter_ns() - start_ns)
    return result


def _call_stock(name: str, *arguments: Any) -> Any:
    """Call one of thunder's own functions, with every hook that it reaches in this thread out of the way."""
    was_in_stock_pass = _thread.in_stock_pass
    _thread.in_stock_pass = True
    try:
        return _state.stock[name](*arguments)
    finally:
        _thread.in_stock_pass = was_in_stock_pass


def call_stock_dce(trace: Any, needed_proxies: set[Any] | None = None) -> Any:
    """Thunder's own pass, whatever is installed.

    Args:
        trace: The trace. Thunder's pass edits the subsymbols of its bound symbols in place.
        needed_proxies: As for `thunder.core.transform_common.dce`.

    Returns:
        What thunder's pass returns.
    """
    if "dce" not in _state.stock:
        module = importlib.import_module("thunder.core.transform_common")
        return module.dce(trace, needed_proxies)
    return _call_stock("dce", trace, needed_proxies)


def describe(error: Exception) -> str:
    """One line that names the cause of a failure.

    Args:
        error: What was raised. It is not kept.

    Returns:
        The kind of the error and its message, such as `"KeyError: 'a'"`.
    """
    logger.debug("The optimizer raised:\n%s", "".join(traceback.format_exception(error)))
    return traceback.format_exception_only(error)[0].strip()


def tell_fallback(cause: str, consequence: str, stacklevel: int) -> None:
    """Warn about a failure, once for each distinct cause.

    Two failures have the same cause when their kinds agree, and their messages but for numbers and quoted
    names.

    Args:
        cause: The line that `describe` gave.
        consequence: What happened instead, as a clause that goes behind the cause.
        stacklevel: As for `warnings.warn`, counted from the caller.
    """
    kind, _, message = cause.partition(":")
    key = (kind, re.sub(r"\d+|'[^']*'|\"[^\"]*\"|`[^`]*`", "#", message))
    with _state.lock:
        if key in _causes_told or len(_causes_told) >= _MOST_CAUSES:
            return
        _causes_told.add(key)
    text = (
        f"shapetrace_rs could not optimize a trace ({cause}); {consequence}. Further failures of this kind "
        "are counted but not reported. With strict=True they are raised."
    )
    logger.warning(text)
    warnings.warn(text, ShapetraceWarning, stacklevel=stacklevel + 1)


def forget_causes() -> None:
    """Warn again about causes that were already reported; `install` does this when it begins anew."""
    with _state.lock:
        _causes_told.clear()
