"""What the optimizer did: counters for the whole process, and a recorder of single calls.

Counting is always on and costs a few additions a call. Recording is on inside `with record_calls()`; when it
is off a call pays one comparison with `None`.

How thunder's pass is timed (`compare`). The pass runs on a copy of the very trace that the optimizer got,
because it edits its input. A bound symbol caches what was read from it (its flattened arguments, for
example), so it matters which of these caches the copy has. `"as found"` gives the copy the caches that the
originals had before either pass ran: what thunder's pass would have met at this point, except for caches that
its own earlier calls would have filled. `"cold"` gives it none, as if every bound symbol were new. Copying is
outside of the measured time. The garbage collector runs as it does in the process; thunder's pass may pay for
collections that it sets off.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from .optimize import CallStatistics

__all__ = ["CallRecord", "Counters", "Recording", "counters", "record_calls", "record_stock_calls"]

Caches = Literal["as found", "cold"]


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the process began.

    Attributes:
        calls: Calls that the optimizer did, without those that fell back.
        ops_removed: Top-level ops that it removed.
        nested_ops_removed: Ops that it removed inside other ops.
        seconds: Time that it took.
        fallbacks: Calls in which it failed and thunder's own pass did the work.
        fallback_seconds: Time that thunder's own pass took for those.
    """

    calls: int = 0
    ops_removed: int = 0
    nested_ops_removed: int = 0
    seconds: float = 0.0
    fallbacks: int = 0
    fallback_seconds: float = 0.0


@dataclass(slots=True)
class _Totals:
    """What `Counters` is made from; changed in place, since a call may be done in microseconds."""

    calls: int = 0
    ops_removed: int = 0
    nested_ops_removed: int = 0
    elapsed_ns: int = 0
    fallbacks: int = 0
    fallback_ns: int = 0


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of dead code elimination.

    Attributes:
        module: The module that called it.
        function: The function in that module.
        line: The line of the call.
        provenance: What made the input trace, in thunder's words; empty when the trace does not say.
        level: The level at which it ran, or `"stock"` for thunder's own pass.
        ops_in: Top-level ops of the input.
        ops_out: Top-level ops of the result.
        nested_in: Ops inside other ops, of the input.
        nested_out: Ops inside other ops, of the result.
        removed: How many ops went for which reason.
        read_ns: Time to read the trace into the compact form.
        passes_ns: Time of the passes.
        apply_ns: Time to make a trace from the answer.
        total_ns: Time of the whole call.
        fallback: The cause for which thunder's own pass did the work, or `None`.
        thunder_ns: Time of thunder's pass on a copy of the same trace, or `None` when it was not compared.
        thunder_ops_out: Top-level ops that thunder's pass leaves, or `None`.
        overhead_ns: Time that recording and comparing cost besides; it is no part of a compile.
    """

    module: str
    function: str
    line: int
    provenance: str
    level: str
    ops_in: int
    ops_out: int
    nested_in: int
    nested_out: int
    removed: dict[str, int] = field(default_factory=dict)
    read_ns: int = 0
    passes_ns: int = 0
    apply_ns: int = 0
    total_ns: int = 0
    fallback: str | None = None
    thunder_ns: int | None = None
    thunder_ops_out: int | None = None
    overhead_ns: int = 0

    @property
    def caller(self) -> str:
        """Where the call came from, such as `core.transforms.grad`, without thunder's own name in front."""
        return f"{self.module.removeprefix('thunder.')}.{self.function}"

    @property
    def ratio(self) -> float | None:
        """How many times longer thunder's pass took on the same trace; `None` when that was not measured."""
        if self.thunder_ns is None or self.total_ns == 0:
            return None
        return self.thunder_ns / self.total_ns

    def as_dict(self) -> dict[str, Any]:
        """The fields, ready for `json.dumps`.

        Returns:
            A new dictionary.
        """
        return asdict(self)


class Recording:
    """The calls of one `with record_calls()` block, in the order in which they ended.

    Attributes:
        records: One record for each call.
        compare: The caches with which thunder's pass is timed on a copy, or `None` to leave it alone.
    """

    def __init__(self, compare: Caches | None, on_call: Callable[[CallRecord], None] | None) -> None:
        """Begin an empty recording; `record_calls` does this."""
        self.records: list[CallRecord] = []
        self.compare = compare
        self._on_call = on_call

    def __len__(self) -> int:
        """How many calls there were."""
        return len(self.records)

    def __iter__(self) -> Iterator[CallRecord]:
        """The records, in order."""
        return iter(self.records)

    @property
    def total_seconds(self) -> float:
        """The time of all calls together."""
        return sum(record.total_ns for record in self.records) / 1e9

    @property
    def overhead_seconds(self) -> float:
        """The time that recording and comparing cost besides."""
        return sum(record.overhead_ns for record in self.records) / 1e9

    def add(self, record: CallRecord) -> None:
        """Append a record and tell the listener.

        Args:
            record: The call that has ended.
        """
        self.records.append(record)
        if self._on_call is not None:
            self._on_call(record)


recordings: tuple[Recording, ...] | None = None
"""The recordings that are open, or `None`; the hooks read it once a call."""

_lock = threading.Lock()
_totals = _Totals()


@contextmanager
def record_calls(
    *, compare: Caches | None = None, on_call: Callable[[CallRecord], None] | None = None
) -> Iterator[Recording]:
    """Record every call of dead code elimination that comes through the drop-in, in all threads.

    Args:
        compare: Time thunder's own pass on a copy of each input trace, with the caches `"as found"` or
            `"cold"`.
        on_call: Called with each record, in the thread that made the call. What it raises ends that compile.

    Yields:
        The recording; it can be read during the block and after it.

    Raises:
        ValueError: `compare` is none of the allowed words.
    """
    if compare not in (None, "as found", "cold"):
        message = f"compare has to be 'as found', 'cold' or None, not {compare!r}"
        raise ValueError(message)
    recording = Recording(compare, on_call)
    _open(recording)
    try:
        yield recording
    finally:
        _close(recording)


@contextmanager
def record_stock_calls(*, on_call: Callable[[CallRecord], None] | None = None) -> Iterator[Recording]:
    """Record what thunder's own pass does in real compiles; the drop-in steps aside for the whole block.

    Args:
        on_call: Called with each record, in the thread that made the call.

    Yields:
        The recording. Its records have the level `"stock"`.
    """
    from .install import observed

    with observed(), record_calls(on_call=on_call) as recording:
        yield recording


def counters() -> Counters:
    """The totals since the process began.

    Returns:
        A snapshot; take two and subtract to learn what a stretch of work did.
    """
    with _lock:
        return Counters(
            calls=_totals.calls,
            ops_removed=_totals.ops_removed,
            nested_ops_removed=_totals.nested_ops_removed,
            seconds=_totals.elapsed_ns / 1e9,
            fallbacks=_totals.fallbacks,
            fallback_seconds=_totals.fallback_ns / 1e9,
        )


def count(statistics: CallStatistics) -> None:
    """Add one call to the totals.

    Args:
        statistics: What the optimizer reported.
    """
    ops_removed = statistics.ops_in - statistics.ops_out
    nested_ops_removed = statistics.nested_in - statistics.nested_out
    elapsed_ns = statistics.total_ns
    with _lock:
        _totals.calls += 1
        _totals.ops_removed += ops_removed
        _totals.nested_ops_removed += nested_ops_removed
        _totals.elapsed_ns += elapsed_ns


def count_bsyms(ops_in: int, ops_out: int, elapsed_ns: int) -> None:
    """Add one call on a plain list of bound symbols to the totals.

    Args:
        ops_in: Top-level ops before.
        ops_out: Top-level ops after.
        elapsed_ns: The time of the call.
    """
    with _lock:
        _totals.calls += 1
        _totals.ops_removed += ops_in - ops_out
        _totals.elapsed_ns += elapsed_ns


def count_fallback(elapsed_ns: int) -> None:
    """Add one call that thunder's own pass had to do.

    Args:
        elapsed_ns: The time that it took.
    """
    with _lock:
        _totals.fallbacks += 1
        _totals.fallback_ns += elapsed_ns


def _open(recording: Recording) -> None:
    """Let the hooks see a recording."""
    global recordings  # noqa: PLW0603 (one published name is what the hooks compare with `None`)
    with _lock:
        recordings = (*(recordings or ()), recording)


def _close(recording: Recording) -> None:
    """Take a recording away from the hooks."""
    global recordings  # noqa: PLW0603 (one published name is what the hooks compare with `None`)
    with _lock:
        left = tuple(other for other in (recordings or ()) if other is not recording)
        recordings = left or None


@dataclass(slots=True)
class _OpenCall:
    """A call that is under way: where it came from, and what the comparison needs."""

    module: str
    function: str
    line: int
    provenance: str
    ops_in: int
    nested_in: int
    copies: dict[Caches, Any]
    needed_proxies: set[Any] | None
    overhead_ns: int


def open_call(
    open_recordings: tuple[Recording, ...], caller: FrameType, trace: Any, needed_proxies: set[Any] | None
) -> _OpenCall | None:
    """Note where a call comes from and copy its input, before the optimizer sees it.

    Args:
        open_recordings: The recordings to write to.
        caller: The frame of the caller.
        trace: The input.
        needed_proxies: The second argument of the call.

    Returns:
        What `close_call` or `close_fallback` needs; `None` when the input is no trace at all.
    """
    if not hasattr(trace, "bound_symbols"):
        return None
    start_ns = time.perf_counter_ns()
    copies: dict[Caches, Any] = {}
    for recording in open_recordings:
        if recording.compare is not None and recording.compare not in copies:
            copies[recording.compare] = copy_trace(trace, recording.compare)
    needed_copy = None if needed_proxies is None or not copies else set(needed_proxies)
    call = _begin(caller, trace, start_ns)
    call.copies = copies
    call.needed_proxies = needed_copy
    return call


def close_call(open_recordings: tuple[Recording, ...], call: _OpenCall, level: str, statistics: CallStatistics) -> None:
    """Write the record of a call that the optimizer did.

    Args:
        open_recordings: The recordings to write to.
        call: What `open_call` gave.
        level: The level at which it ran.
        statistics: What the optimizer reported.
    """
    measured = {caches: _time_thunder(copy, call.needed_proxies) for caches, copy in call.copies.items()}
    overhead_ns = call.overhead_ns + sum(elapsed_ns for _, _, elapsed_ns in measured.values())
    for recording in open_recordings:
        thunder_ns, thunder_ops_out = (None, None) if recording.compare is None else measured[recording.compare][:2]
        recording.add(
            CallRecord(
                module=call.module,
                function=call.function,
                line=call.line,
                provenance=call.provenance,
                level=level,
                ops_in=statistics.ops_in,
                ops_out=statistics.ops_out,
                nested_in=statistics.nested_in,
                nested_out=statistics.nested_out,
                removed=dict(statistics.removed),
                read_ns=statistics.read_ns,
                passes_ns=statistics.passes_ns,
                apply_ns=statistics.apply_ns,
                total_ns=statistics.total_ns,
                thunder_ns=thunder_ns,
                thunder_ops_out=thunder_ops_out,
                overhead_ns=overhead_ns,
            )
        )


def close_fallback(  # noqa: PLR0917 (the facts of one record)
    open_recordings: tuple[Recording, ...],
    call: _OpenCall,
    level: str,
    cause: str,
    result: Any,
    elapsed_ns: int,
) -> None:
    """Write the record of a call that thunder's own pass had to do.

    Args:
        open_recordings: The recordings to write to.
        call: What `open_call` gave.
        level: The level that was asked for.
        cause: Why the optimizer failed.
        result: The trace that thunder's pass made.
        elapsed_ns: How long that took.
    """
    for recording in open_recordings:
        recording.add(_stock_record(call, level, cause, result, elapsed_ns))


def open_stock_call(caller: FrameType, trace: Any) -> _OpenCall:
    """Note where a call of thunder's own pass comes from, and count the ops that it gets.

    Args:
        caller: The frame of the caller.
        trace: The input, which the pass is going to edit.

    Returns:
        What `close_stock_call` needs.
    """
    return _begin(caller, trace, time.perf_counter_ns())


def close_stock_call(open_recordings: tuple[Recording, ...], call: _OpenCall, result: Any, elapsed_ns: int) -> None:
    """Write the record of a call of thunder's own pass.

    Args:
        open_recordings: The recordings to write to.
        call: What `open_stock_call` gave.
        result: The trace that the pass made.
        elapsed_ns: How long it took.
    """
    for recording in open_recordings:
        recording.add(_stock_record(call, "stock", None, result, elapsed_ns))


def _begin(caller: FrameType, trace: Any, start_ns: int) -> _OpenCall:
    """Where a call comes from and how large its input is."""
    provenance = getattr(trace, "get_provenance", lambda: None)()
    call = _OpenCall(
        module=caller.f_globals.get("__name__", "?"),
        function=caller.f_code.co_name,
        line=caller.f_lineno,
        provenance=getattr(provenance, "pss", ""),
        ops_in=len(trace.bound_symbols),
        nested_in=count_nested_ops(trace.bound_symbols),
        copies={},
        needed_proxies=None,
        overhead_ns=0,
    )
    call.overhead_ns = time.perf_counter_ns() - start_ns
    return call


def _stock_record(call: _OpenCall, level: str, cause: str | None, result: Any, elapsed_ns: int) -> CallRecord:
    """The record of a call that thunder's own pass did."""
    return CallRecord(
        module=call.module,
        function=call.function,
        line=call.line,
        provenance=call.provenance,
        level=level,
        ops_in=call.ops_in,
        ops_out=len(result.bound_symbols),
        nested_in=call.nested_in,
        nested_out=count_nested_ops(result.bound_symbols),
        total_ns=elapsed_ns,
        fallback=cause,
        overhead_ns=call.overhead_ns,
    )


def _time_thunder(copy: Any, needed_proxies: set[Any] | None) -> tuple[int | None, int | None, int]:
    """Thunder's pass on a copy: its time, the ops that it leaves, and the time that the attempt took."""
    from ._hooks import call_stock_dce

    needed_copy = None if needed_proxies is None else set(needed_proxies)
    start_ns = time.perf_counter_ns()
    try:
        result = call_stock_dce(copy, needed_copy)
    except Exception:  # noqa: BLE001 (on some traces thunder's pass fails: nothing to compare with)
        return None, None, time.perf_counter_ns() - start_ns
    elapsed_ns = time.perf_counter_ns() - start_ns
    return elapsed_ns, len(result.bound_symbols), elapsed_ns


def count_nested_ops(bound_symbols: Any) -> int:
    """How many ops there are inside the given ones, at any depth.

    Args:
        bound_symbols: The ops to look into; they themselves are not counted.

    Returns:
        The number of all their descendants.
    """
    total = 0
    waiting = [bsym.subsymbols for bsym in bound_symbols if bsym.subsymbols]
    while waiting:
        subsymbols = waiting.pop()
        total += len(subsymbols)
        waiting.extend(bsym.subsymbols for bsym in subsymbols if bsym.subsymbols)
    return total


def copy_trace(trace: Any, caches: Caches) -> Any:
    """Copy a trace and all its bound symbols, so that a pass that edits them leaves the originals alone.

    No constructor runs: `BoundSymbol.from_bsym` would let executors allocate their state a second time.

    Args:
        trace: The trace to copy. Its proxies are shared with the copy.
        caches: Whether the bound symbols keep what was cached on them.

    Returns:
        The copy.
    """
    from thunder.core.trace import from_trace

    copy = from_trace(trace)
    top: list[Any] = []
    # A stack instead of recursion: nesting may be far deeper than Python's recursion limit.
    waiting: list[tuple[Any, list[Any]]] = [(trace.bound_symbols, top)]
    while waiting:
        originals, copies = waiting.pop()
        for original in originals:
            bsym = object.__new__(type(original))
            fields = original.__dataclass_fields__
            values = vars(original)
            vars(bsym).update(
                values if caches == "as found" else {name: value for name, value in values.items() if name in fields}
            )
            bsym.tags = set(original.tags)
            if original.subsymbols:
                bsym.subsymbols = []
                waiting.append((original.subsymbols, bsym.subsymbols))
            copies.append(bsym)
    copy.bound_symbols = top
    copy.set_provenance(trace.get_provenance())
    return copy
