"""The optimizer on traces and lists of bound symbols: the functions with thunder's own signatures, and more.

`run` does the work; the others choose options and keep the statistics to themselves.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _core, _state, _thunder
from ._core import CallStatistics
from .errors import InternalError, InvalidTraceError
from .options import OptimizeOptions

__all__ = ["CallStatistics", "dce", "dce_bsyms", "optimize", "run"]

logger = logging.getLogger("shapetrace_rs")

_DEFAULTS = OptimizeOptions()


def dce(trace: Any, needed_proxies: set[Any] | None = None) -> Any:
    """Dead code elimination of a trace, at the options that are installed (or the defaults).

    Args:
        trace: A thunder trace. Neither it nor its bound symbols are changed.
        needed_proxies: `Variable`s to keep besides the outputs of the trace. Everything that the remaining ops read
            is added to the set, as thunder's own `dce` does.

    Returns:
        A new trace. Ops that did not change are the very same objects.

    Raises:
        InvalidTraceError: What was passed is no trace, or a trace that cannot be optimized.
        MissingReturnError: The trace has ops but no return, and `needed_proxies` is not given.
    """
    return run(trace, needed_proxies, _state.current_options() or _DEFAULTS)[0]


def dce_bsyms(bsyms: Sequence[Any], output: Any, needed_proxies: set[Any] | None = None) -> list[Any]:
    """Dead code elimination of a list of bound symbols, at the options that are installed (or the defaults).

    Args:
        bsyms: The bound symbols. They are not changed.
        output: What the list is to produce: a proxy, or any structure with proxies in it.
        needed_proxies: As for `dce`.

    Returns:
        The bound symbols that are left; those that did not change are the very same objects.

    Raises:
        InvalidTraceError: Something in the list is no bound symbol.
    """
    if not bsyms:
        return []
    return optimizer(_state.options or _DEFAULTS).run_list(bsyms, () if output is None else output, needed_proxies)


def optimize(trace: Any, needed_proxies: set[Any] | None = None, **options: Any) -> Any:
    """Optimize one trace with options of its own, whatever is installed.

    Args:
        trace: A thunder trace. Neither it nor its bound symbols are changed.
        needed_proxies: As for `dce`.
        **options: The fields of `OptimizeOptions`.

    Returns:
        A new trace.

    Raises:
        InvalidTraceError: What was passed is no trace, or a trace that cannot be optimized.
        MissingReturnError: The trace has ops but no return, and `needed_proxies` is not given.
        TypeError: There is no such option.
    """
    return run(trace, needed_proxies, OptimizeOptions(**options))[0]


def run(trace: Any, needed_proxies: set[Any] | None, options: OptimizeOptions) -> tuple[Any, CallStatistics]:
    """Optimize one trace and say what was done.

    Args:
        trace: A thunder trace. Neither it nor its bound symbols are changed.
        needed_proxies: As for `dce`.
        options: What to do.

    Returns:
        The new trace, and the statistics of the call.

    Raises:
        InvalidTraceError: What was passed is no trace, or a trace that cannot be optimized; with `strict`, also a
            trace that the verifier finds broken.
        MissingReturnError: The trace has ops but no return, and `needed_proxies` is not given.
        InternalError: The optimizer has a fault; with `strict`, also when the verifier finds one in its answer.
    """
    start_ns = time.perf_counter_ns()
    thunder_trace = _thunder.trace_module()
    if not isinstance(trace, thunder_trace.TraceCtx):
        message = f"expected a thunder trace, not {type(trace).__name__}"
        raise InvalidTraceError(message, hint="pass a TraceCtx; for a list of bound symbols there is dce_bsyms")
    bound_symbols, statistics = optimizer(options).run(trace.bound_symbols, None, needed_proxies)
    result = thunder_trace.from_trace(trace)
    result.bound_symbols = bound_symbols
    for bound_symbol in statistics.only_hands_back:
        _warn_about_forgotten_tag(bound_symbol)
    for bound_symbol in statistics.kept_for_effect:
        _thunder.make_runnable(bound_symbol)
    milliseconds = (time.perf_counter_ns() - start_ns) // 1_000_000
    # thunder's tests and users look for this text.
    provenance = thunder_trace.TraceProvenance(f"Dead Code Elimination (took {milliseconds} milliseconds)")
    result.set_provenance(provenance)
    if options.strict or _core.debug_build:
        _check(trace, result, options)
    return result, statistics


def _check(before: Any, after: Any, options: OptimizeOptions) -> None:
    """Raise if what is left of a trace cannot run, because it came in broken or because it was broken here.

    thunder's own transforms leave ops that read what nothing defines. Those that nobody needs are gone now; those
    inside a claimed op are never run, which is worth a line in the log and no more.
    """
    from .verifier import verify

    findings = verify(after, optimized=options.level == "full")
    if not findings:
        return
    came_in = {_fault(finding) for finding in verify(before)}
    for finding in findings:
        if _fault(finding) not in came_in:
            message = f"the optimizer broke the trace: {finding}"
            raise InternalError(message)
        if finding.scope is None:
            op = None if finding.op is None else finding.op.sym.name
            message = f"the trace was broken before it was optimized: {finding}"
            raise InvalidTraceError(message, op, finding.value, "look at the pass that made the trace")
        logger.warning("the trace was broken before it was optimized: %s", finding)


def _fault(finding: Any) -> tuple[str, str | None]:
    """What is wrong, whichever way: when a dead definition goes, a use before it becomes a use without any."""
    uses = ("undefined_value", "used_before_definition", "not_visible", "not_isolated")
    return ("use" if finding.kind in uses else finding.kind, finding.value)


def optimizer(options: OptimizeOptions) -> _core.Optimizer:
    """The native optimizer for these options; one for each that is in use.

    Args:
        options: What it is to do.

    Returns:
        An optimizer that keeps its memory from call to call.
    """
    global _latest  # noqa: PLW0603 (one attribute, replaced as a whole, is safe between threads)
    latest = _latest
    if latest is not None and latest[0] is options:
        return latest[1]
    try:
        made = _optimizer(options)
    except TypeError:
        # `effects` may be a mapping or a set, which cannot be a key.
        made = _make_optimizer(options)
    _latest = (options, made)
    return made


def _make_optimizer(options: OptimizeOptions) -> _core.Optimizer:
    return _core.Optimizer(
        _thunder.host(),
        level=options.level,
        keep_random=options.keep_random,
        keep_shape_numbers=options.keep_shape_numbers,
        floor_division=options.floor_division and _thunder.floor_division_can_run(),
        effects=_effect_predicate(options),
    )


_optimizer = functools.lru_cache(maxsize=8)(_make_optimizer)

_latest: tuple[OptimizeOptions, _core.Optimizer] | None = None
"""What the last call had. The same options come again and again, and to look for them costs as much as three ops."""


def _effect_predicate(options: OptimizeOptions) -> Callable[[Any], bool | None] | None:
    effects = options.effects
    if effects is None or callable(effects):
        return effects
    # Asked, not copied: what the caller adds later counts from then on.
    if isinstance(effects, Mapping):
        return lambda bound_symbol: effects.get(bound_symbol.sym.name)
    return lambda bound_symbol: True if bound_symbol.sym.name in effects else None


def _warn_about_forgotten_tag(bound_symbol: Any) -> None:
    positions = bound_symbol.source_positions
    line = getattr(positions, "lineno", None)
    logger.warning(
        "removed %s (%s:%s): it only hands back its argument and is not tagged as having an effect; if it changes "
        "its argument in place, tag its symbol with OpTags.DONT_DCE or pass effects={%r: True}",
        bound_symbol.sym.name,
        bound_symbol.source_filename or "unknown file",
        line if line is not None else "?",
        bound_symbol.sym.name,
    )
