"""Checks that a trace is what the optimizer, and thunder, take it to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _thunder
from .errors import InvalidTraceError
from .optimize import optimizer
from .options import OptimizeOptions

__all__ = ["Finding", "verify"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a trace.

    Attributes:
        kind: A stable name, such as `"undefined_value"`, `"not_isolated"` or `"return_not_last"`.
        message: What is wrong, in words.
        op: The bound symbol at fault; `None` if it is about the outputs of the trace.
        value: The name of the value at fault, where it is about one.
        scope: The bound symbol inside which it is; `None` for the top level.
        filename: The file of the user's program that the op comes from, if the trace knows it.
        line: The line in that file, if the trace knows it.
    """

    kind: str
    message: str
    op: Any
    value: str | None
    scope: Any
    filename: str | None
    line: int | None

    def __str__(self) -> str:
        """The finding in one line."""
        where = "the outputs" if self.op is None else self.op.sym.name
        inside = "" if self.scope is None else f" inside {self.scope.sym.name}"
        value = "" if self.value is None else f" {self.value}:"
        source = "" if self.filename is None else f" ({self.filename}:{self.line if self.line is not None else '?'})"
        return f"{where}{inside}:{value} {self.message}{source}"


def verify(trace: Any, *, optimized: bool = False) -> list[Finding]:
    """All that is wrong with a trace; an empty list if nothing is.

    Looked for are: a use without a definition before it in its scope, an op inside another that uses what its owner
    does not take, a return that is not the last op, and, with `optimized`, a value that is defined twice in a scope.
    Takes time linear in the size of the trace.

    Args:
        trace: A thunder trace; it is not changed. Its `args` and `kwargs` are its inputs. A trace without `args`
            has not said what its inputs are: every value that nothing defines is taken for one.
        optimized: Check the form that level `"full"` leaves behind.

    Returns:
        The findings, in the order of the trace.

    Raises:
        InvalidTraceError: What was passed is no trace.

    Examples:
        >>> for finding in verify(thunder.last_traces(jfn)[-1]):  # doctest: +SKIP
        ...     print(finding)
    """
    if not isinstance(trace, _thunder.trace_module().TraceCtx):
        message = f"expected a thunder trace, not {type(trace).__name__}"
        raise InvalidTraceError(message, hint="pass a TraceCtx, such as one of thunder.last_traces(jfn)")
    inputs = None if trace.args is None else (trace.args, trace.kwargs)
    found = optimizer(OptimizeOptions()).verify(trace.bound_symbols, inputs, optimized)
    findings = [_finding(*parts) for parts in found]
    if inputs is None:
        # A piece of a trace may take a number that an op inside it also makes for itself.
        findings = [finding for finding in findings if finding.scope is not None or finding.kind != "not_visible"]
    return findings


def _finding(kind: str, message: str, op: Any, value: str | None, scope: Any) -> Finding:
    # Ops inside another seldom know where they come from; the owner does.
    source = next((bsym for bsym in (op, scope) if bsym is not None and bsym.source_filename is not None), None)
    return Finding(
        kind=kind,
        message=message,
        op=op,
        value=value,
        scope=scope,
        filename=None if source is None else source.source_filename,
        line=None if source is None else getattr(source.source_positions, "lineno", None),
    )
