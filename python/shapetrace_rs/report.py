"""What the optimizer did: counters for the whole process, the latest calls, and a recorder of single calls.

Always on, at a cost of about a microsecond a call: counting, and remembering the numbers of the latest calls with
a weak reference to what came in. Neither keeps a trace alive. Recording is on inside `with record_calls()`; when
it is off a call pays one comparison with `None`. With `details=True` a recording also keeps what happened to each
op, and the passes of thunder between the calls: that keeps ops alive as long as the recording lives, and is what
the reports of `shapetrace_rs.explain` are made from.

Details come from a second run of the optimizer on the very input of the call, outside of the measured time: the
times in a report are those of the call itself, which runs as it does when nobody looks.

How thunder's pass is timed (`compare`). The pass runs on a copy of the very trace that the optimizer got,
because it edits its input. A bound symbol caches what was read from it (its flattened arguments, for
example), so it matters which of these caches the copy has. `"as found"` gives the copy the caches that the
originals had before either pass ran: what thunder's pass would have met at this point, except for caches that
its own earlier calls would have filled. `"cold"` gives it none, as if every bound symbol were new. Copying is
outside of the measured time. The garbage collector runs as it does in the process; thunder's pass may pay for
collections that it sets off.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from .explain import Report
    from .files.recording import TraceKeeper
    from .optimize import CallStatistics
    from .options import OptimizeOptions

__all__ = ["CallRecord", "Counters", "Recording", "counters", "record_calls", "record_stock_calls"]

logger = logging.getLogger("shapetrace_rs")
# A library prints nothing of its own accord. Whoever wants to read what is logged adds a handler, or calls
# `logging.basicConfig`; failures that matter also come as a `ShapetraceWarning`.
logger.addHandler(logging.NullHandler())

Caches = Literal["as found", "cold"]

_MOST_CALLS = 512
_MOST_DETAILS = 2_000_000
_ELIMINATION = "Dead Code Elimination"


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


class CompileKey(NamedTuple):
    """Which compile a call belongs to; all calls outside of any compile have the same key.

    Attributes:
        function: A weak reference to thunder's data about the function, or `None` outside of a compile.
        number: The how manyth compile of that function it is.
        name: What the function is called.
    """

    function: weakref.ref[Any] | None = None
    number: int = 0
    name: str = ""


@dataclass(slots=True, eq=False)
class Explanation:
    """What the optimizer says about each op of one call, as it says it.

    Attributes:
        trace: The input; it has the names in whose surroundings its ops are printed.
        ops: One tuple for each op, as `Optimizer.explain` gives them.
        renames: Names of numbers, and what stands for them now.
    """

    trace: Any
    ops: list[tuple[Any, Any, int | None, str, bool]]
    renames: dict[str, str]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call with what belongs to it.

    Attributes:
        record: Its numbers.
        key: The compile that it belongs to.
        explanation: What happened to each op, if that was recorded.
        trace: A weak reference to the input.
        options: The options at which it ran; `None` for thunder's own pass.
    """

    record: CallRecord
    key: CompileKey
    explanation: Explanation | None = None
    trace: weakref.ref[Any] | None = None
    options: OptimizeOptions | None = None


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """A step of thunder's between calls of dead code elimination: what it is called and how large its trace is.

    Attributes:
        name: The name, as thunder writes it above a trace.
        key: The compile that it belongs to.
        calls_before: How many calls the recording had when it happened.
        ops: Top-level ops of the trace that it made.
        nested: Ops inside them.
    """

    name: str
    key: CompileKey
    calls_before: int
    ops: int
    nested: int


class Recording:
    """The calls of one `with record_calls()` block, in the order in which they ended.

    Attributes:
        records: One record for each call.
        compare: The caches with which thunder's pass is timed on a copy, or `None` to leave it alone.
        details: Whether it keeps what happened to each op.
        keeper: Who writes the traces of each call down, if anybody.
    """

    def __init__(
        self,
        compare: Caches | None,
        on_call: Callable[[CallRecord], None] | None,
        *,
        details: bool = False,
        keeper: TraceKeeper | None = None,
    ) -> None:
        """Begin an empty recording; `record_calls` does this."""
        self.records: list[CallRecord] = []
        self.compare = compare
        self.details = details
        self.keeper = keeper
        self._on_call = on_call
        self._calls: list[RecordedCall] = []
        self._passes: list[RecordedPass] = []
        self._pending: dict[int, tuple[str, CompileKey, int, Any]] = {}
        self._ops_kept = 0
        self._lock = threading.Lock()

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

    @property
    def wants_details(self) -> bool:
        """Whether the next call is to be explained; no longer when very many ops are kept already."""
        return self.details and self._ops_kept < _MOST_DETAILS

    def report(self, title: str = "") -> Report:
        """A report of what has been recorded so far, to be printed, or saved as HTML or JSON.

        Args:
            title: What the report is about.

        Returns:
            A new report. With `details=True` it tells of each op.
        """
        from .explain.data import report_of

        return report_of(list(self._calls), passes=self.passes(), title=title)

    def passes(self) -> list[RecordedPass]:
        """The steps of thunder's between the calls; known in recordings with details only.

        Returns:
            A new list.
        """
        with self._lock:
            for thread in list(self._pending):
                self._settle(thread)
            return list(self._passes)

    def add(self, call: RecordedCall) -> None:
        """Append a call and tell the listener.

        Args:
            call: The call that has ended.
        """
        with self._lock:
            self._settle(threading.get_ident())
            self.records.append(call.record)
            self._calls.append(call)
            if call.explanation is not None:
                self._ops_kept += len(call.explanation.ops)
        if self._on_call is not None:
            self._on_call(call.record)

    def add_pass(self, name: str, trace: Any) -> None:
        """Note that thunder has finished a pass. Its ops are counted when the thread goes on: it may still get some.

        Args:
            name: What thunder calls the pass.
            trace: The trace that it made.
        """
        thread = threading.get_ident()
        with self._lock:
            self._settle(thread)
            self._pending[thread] = (name, current_compile(), len(self.records), trace)

    def _settle(self, thread: int) -> None:
        """Count the ops of the latest pass of a thread, and let go of its trace; with the lock held."""
        pending = self._pending.pop(thread, None)
        if pending is not None:
            name, key, calls_before, trace = pending
            bound_symbols = trace.bound_symbols
            nested = count_nested_ops(bound_symbols)
            self._passes.append(RecordedPass(name, key, calls_before, len(bound_symbols), nested))


recordings: tuple[Recording, ...] | None = None
"""The recordings that are open, or `None`; the hooks read it once a call."""


def _forget_holders() -> None:
    """Give a forked child locks that nobody holds: whoever held one may be a thread that stayed behind."""
    global _lock  # noqa: PLW0603 (the lock of the process)
    _lock = threading.Lock()
    for recording in recordings or ():
        recording._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_holders)

_lock = threading.Lock()
_totals = _Totals()
_remembered: deque[tuple[Any, ...]] = deque(maxlen=_MOST_CALLS)
_loose_explanation: list[tuple[CallStatistics, Explanation]] = []
_explanations: weakref.WeakKeyDictionary[Any, tuple[int, list[tuple[CallStatistics, Explanation]]]] = (
    weakref.WeakKeyDictionary()
)


@contextmanager
def record_calls(
    *,
    details: bool = False,
    compare: Caches | None = None,
    on_call: Callable[[CallRecord], None] | None = None,
) -> Iterator[Recording]:
    """Record every call of dead code elimination that comes through the drop-in, in all threads.

    Args:
        details: Keep what happened to each op, for `Recording.report`. Ops stay alive as long as the recording.
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
    recording = Recording(compare, on_call, details=details)
    open_recording(recording)
    try:
        yield recording
    finally:
        close_recording(recording)


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


def remember(  # noqa: PLR0917 (the facts of one call)
    caller: FrameType,
    trace: Any,
    provenance: Any,
    options: OptimizeOptions,
    statistics: CallStatistics,
    explanation: Explanation | None = None,
) -> None:
    """Keep the numbers of a call for `last_report`, until many others have come; called for every call.

    Args:
        caller: The frame of the caller. Only its name and line are kept.
        trace: What the optimizer got; only a weak reference is kept.
        provenance: What made the input.
        options: The options at which it ran.
        statistics: What the optimizer reported.
        explanation: What happened to each op, if a recording asked for that. It is kept as long as the compiled
            function lives and is not compiled anew.
    """
    key = current_compile()
    _remembered.append(
        (
            caller.f_globals.get("__name__", "?"),
            caller.f_code.co_name,
            caller.f_lineno,
            provenance,
            key,
            weakref.ref(trace),
            options,
            statistics,
        )
    )
    if explanation is not None:
        _keep_explanation(key, statistics, explanation)
    if logger.isEnabledFor(logging.DEBUG):
        record = _remembered_call(_remembered[-1]).record
        logger.debug(
            "%s: %d ops became %d, nested %d became %d, in %.3f ms (%s)",
            record.caller,
            record.ops_in,
            record.ops_out,
            record.nested_in,
            record.nested_out,
            record.total_ns / 1e6,
            ", ".join(f"{reason} {number}" for reason, number in record.removed.items() if number) or "nothing to do",
        )


def remember_fallback(  # noqa: PLR0917 (the facts of one record)
    caller: FrameType, trace: Any, options: OptimizeOptions, cause: str, result: Any, elapsed_ns: int
) -> None:
    """Keep the numbers of a call that the optimizer could not do.

    Args:
        caller: The frame of the caller.
        trace: The input.
        options: The options that were asked for.
        cause: Why the optimizer failed.
        result: What was made without it.
        elapsed_ns: How long that took.
    """
    if hasattr(trace, "bound_symbols"):
        call = _begin(caller, trace, time.perf_counter_ns())
        record = _stock_record(call, options.level, cause, result, elapsed_ns)
        _remembered.append((RecordedCall(record, call.key, None, None, options),))


def _keep_explanation(key: CompileKey, statistics: CallStatistics, explanation: Explanation) -> None:
    """Keep what was recorded about the ops of a call, for the latest compile of each function that lives."""
    function = None if key.function is None else key.function()
    with _lock:
        if function is None:
            _loose_explanation[:] = [(statistics, explanation)]
            return
        number, explanations = _explanations.get(function, (0, []))
        if number != key.number:
            explanations = []
        explanations.append((statistics, explanation))
        _explanations[function] = (key.number, explanations)


def _kept_explanation(key: CompileKey, statistics: CallStatistics) -> Explanation | None:
    """What was recorded about the ops of a call, if it was and is still kept."""
    function = None if key.function is None else key.function()
    with _lock:
        kept = _loose_explanation if function is None else _explanations.get(function, (0, []))[1]
        return next((explanation for own, explanation in kept if own is statistics), None)


def remembered_calls() -> list[RecordedCall]:
    """The latest calls of this process, oldest first.

    Returns:
        A new list of calls without details.
    """
    return [_remembered_call(entry) for entry in list(_remembered)]


def _remembered_call(entry: tuple[Any, ...]) -> RecordedCall:
    """A remembered call in full."""
    if len(entry) == 1:
        known: RecordedCall = entry[0]
        return known
    module, function, line, provenance, key, trace, options, statistics = entry
    record = CallRecord(
        module=module,
        function=function,
        line=line,
        provenance=getattr(provenance, "pss", ""),
        **figures(options.level, statistics),
    )
    return RecordedCall(record, key, _kept_explanation(key, statistics), trace, options)


def figures(level: str, statistics: CallStatistics) -> dict[str, Any]:
    """The fields of a record that come from the optimizer.

    Args:
        level: The level at which it ran.
        statistics: What it reported.

    Returns:
        Keyword arguments for a `CallRecord`.
    """
    return {
        "level": level,
        "ops_in": statistics.ops_in,
        "ops_out": statistics.ops_out,
        "nested_in": statistics.nested_in,
        "nested_out": statistics.nested_out,
        "removed": dict(statistics.removed),
        "read_ns": statistics.read_ns,
        "passes_ns": statistics.passes_ns,
        "apply_ns": statistics.apply_ns,
        "total_ns": statistics.total_ns,
    }


def current_compile() -> CompileKey:
    """The compile that this thread is in the middle of.

    Returns:
        Its key; the key of no compile when thunder is not compiling.
    """
    module = sys.modules.get("thunder.core.compile_data")
    variable = getattr(module, "_compile_data", None)
    if variable is None:
        return _NO_COMPILE
    data, statistics = variable.get()
    if data is None or statistics is None:
        return _NO_COMPILE
    function = data.fn
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return CompileKey(weakref.ref(data), statistics.cache_misses, name)


_NO_COMPILE = CompileKey()


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


def open_recording(recording: Recording) -> None:
    """Let the hooks see a recording.

    Args:
        recording: The recording to write to from now on.
    """
    global recordings  # noqa: PLW0603 (one published name is what the hooks compare with `None`)
    with _lock:
        recordings = (*(recordings or ()), recording)
        _watch_passes()


def close_recording(recording: Recording) -> None:
    """Take a recording away from the hooks.

    Args:
        recording: The recording; nothing happens if it is closed already.
    """
    global recordings  # noqa: PLW0603 (one published name is what the hooks compare with `None`)
    with _lock:
        left = tuple(other for other in (recordings or ()) if other is not recording)
        recordings = left or None
        _watch_passes()


_watched: list[tuple[Any, Callable[[Any, Any], None]]] = []
_names_seen: deque[Any] = deque(maxlen=64)


def _watch_passes() -> None:
    """See to it that passes of thunder are noted while a recording wants details, and only then; under the lock.

    Every pass ends with writing its name on the trace that it made. While somebody wants to know, the method that
    does this tells the recordings as well.
    """
    wanted = any(recording.details for recording in recordings or ())
    module = sys.modules.get("thunder.core.trace")
    trace_type = getattr(module, "TraceCtx", None)
    if not wanted:
        while _watched:
            watched_type, own_method = _watched.pop()
            watched_type.set_provenance = own_method
            _names_seen.clear()
    elif not _watched and trace_type is not None:
        own_method = trace_type.set_provenance

        def set_provenance(trace: Any, provenance: Any) -> None:
            own_method(trace, provenance)
            name = str(getattr(provenance, "pss", ""))
            # A copy of a trace gets the very name of the original: that is no pass.
            if name and not name.startswith(_ELIMINATION) and not any(seen is provenance for seen in _names_seen):
                _names_seen.append(provenance)
                for recording in recordings or ():
                    if recording.details:
                        recording.add_pass(name.partition(" (took")[0], trace)

        _watched.append((trace_type, own_method))
        trace_type.set_provenance = set_provenance


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
    key: CompileKey
    details: bool = False
    kept: dict[TraceKeeper, int] = field(default_factory=dict)


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
    call = _begin(caller, trace, start_ns)
    call.copies = copies
    for recording in open_recordings:
        if recording.keeper is not None:
            # At once: thunder's own pass, where it has to do the work, edits what it gets.
            call.kept[recording.keeper] = recording.keeper.keep_input(trace)
    if any(recording.wants_details for recording in open_recordings):
        call.details = True
        if not _watched:
            with _lock:
                _watch_passes()
    if needed_proxies is not None and (copies or call.details):
        call.needed_proxies = set(needed_proxies)
    return call


def close_call(
    open_recordings: tuple[Recording, ...],
    call: _OpenCall,
    trace: Any,
    options: OptimizeOptions,
    statistics: CallStatistics,
    *,
    result: Any,
) -> Explanation | None:
    """Write the record of a call that the optimizer did.

    Args:
        open_recordings: The recordings to write to.
        call: What `open_call` gave.
        trace: What the optimizer got: the input, or what it became when composites were opened.
        options: The options at which it ran.
        statistics: What the optimizer reported.
        result: The trace that it made.

    Returns:
        What happened to each op, if a recording asks for that.
    """
    measured = {caches: time_thunder(copy, call.needed_proxies) for caches, copy in call.copies.items()}
    overhead_ns = call.overhead_ns + sum(elapsed_ns for _, _, elapsed_ns in measured.values())
    explanation = None
    if call.details:
        start_ns = time.perf_counter_ns()
        explanation = explain_call(trace, call.needed_proxies, options)
        overhead_ns += time.perf_counter_ns() - start_ns
    for recording in open_recordings:
        thunder_ns, thunder_ops_out = (None, None) if recording.compare is None else measured[recording.compare][:2]
        record = CallRecord(
            module=call.module,
            function=call.function,
            line=call.line,
            provenance=call.provenance,
            thunder_ns=thunder_ns,
            thunder_ops_out=thunder_ops_out,
            overhead_ns=overhead_ns,
            **figures(options.level, statistics),
        )
        own_explanation = explanation if recording.wants_details else None
        if recording.keeper is not None:
            recording.keeper.keep_output(call.kept[recording.keeper], record, result)
        recording.add(RecordedCall(record, call.key, own_explanation, None, options))
    return explanation


def explain_call(trace: Any, needed_proxies: set[Any] | None, options: OptimizeOptions) -> Explanation | None:
    """What the optimizer does to each op of a trace.

    Args:
        trace: The trace; it is not changed.
        needed_proxies: What is needed besides its outputs; not changed either.
        options: What to do.

    Returns:
        What it says, or `None` if it fails where it did not fail before.
    """
    from .optimize import optimizer

    try:
        needed = None if needed_proxies is None else set(needed_proxies)
        _, _, ops, renames = optimizer(options).explain(trace.bound_symbols, None, needed)
    except Exception:
        logger.exception("a call of dead code elimination could not be explained")
        return None
    return Explanation(trace, ops, renames)


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
        record = _stock_record(call, level, cause, result, elapsed_ns)
        if recording.keeper is not None:
            recording.keeper.keep_output(call.kept[recording.keeper], record, result)
        recording.add(RecordedCall(record, call.key))


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
        recording.add(RecordedCall(_stock_record(call, "stock", None, result, elapsed_ns), call.key))


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
        key=current_compile(),
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


def time_thunder(copy: Any, needed_proxies: set[Any] | None) -> tuple[int | None, int | None, int]:
    """Time thunder's own pass on a copy of a trace.

    Args:
        copy: The copy, which the pass may edit.
        needed_proxies: What is needed besides the outputs; not changed.

    Returns:
        Its time and the ops that it leaves, `None` for both if it fails on this trace, and the time of the attempt.
    """
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
