"""Whether time and memory grow in step with the size of a trace: nanoseconds and bytes an op, from small to large.

    python benches/bridge/scaling.py [--largest 100000] [--rounds 5]

Kinds of traces: a chain with dead ops beside it, duplicates of one query, one op with many operands and as many ops
inside it, and ops nested in each other (a tenth as many). Each is made in three sizes; sizes take turns, and medians of
thread CPU time are reported with the garbage collector off. Memory is what the process needs at most beyond what it had
before the call, in a forked child for each kind and size. If nothing is quadratic the columns of a line are about the
same; the largest may be some times the smallest, where the traces leave the caches of the processor.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shapetrace_rs

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    from thunder.core import devices, dtypes, prims
    from thunder.core.proxies import CONSTRAINT, IntegerProxy, TensorProxy
    from thunder.core.symbol import BoundSymbol, Symbol
    from thunder.core.trace import TraceCtx, tracectx


def tensor(name: str) -> Any:
    """A tensor proxy of this name."""
    return TensorProxy(name=name, shape=(2, 3), device=devices.cpu, dtype=dtypes.float32, requires_grad=False)


def integer(name: str) -> Any:
    """A number proxy of this name."""
    return IntegerProxy(name=name, value=2, constraint=CONSTRAINT.CONSTRAINABLE)


def composite(name: str) -> Any:
    """A symbol with ops inside."""
    return Symbol(name=name, meta=None, id=name, is_prim=False)


def chain(size: int) -> list[Any]:
    """Every second op is dead."""
    value, ops = tensor("a"), []
    for index in range(size // 2):
        made, dead = tensor(f"t{index}"), tensor(f"d{index}")
        ops += [BoundSymbol(prims.sin, (value,), {}, made), BoundSymbol(prims.cos, (made,), {}, dead)]
        value = made
    return [*ops, BoundSymbol(prims.python_return, (value,), {}, None)]


def duplicates(size: int) -> list[Any]:
    """One query, again and again, under new names."""
    a, last, ops = tensor("a"), None, []
    for index in range(size):
        last = integer(f"i{index}")
        ops.append(BoundSymbol(prims.shape, (a,), {}, (last, 3)))
    return [*ops, BoundSymbol(prims.python_return, ((a, last),), {}, None)]


def wide(size: int) -> list[Any]:
    """One op with many ops inside and one that takes all they make."""
    a, r = tensor("a"), tensor("r")
    made = [tensor(f"t{index}") for index in range(size)]
    inside = [BoundSymbol(prims.sin, (a,), {}, value) for value in made]
    outer = BoundSymbol(composite("outer"), (a,), {}, made, inside)
    return [outer, BoundSymbol(composite("all"), tuple(made), {}, r), BoundSymbol(prims.python_return, (r,), {}, None)]


def deep(size: int) -> list[Any]:
    """Ops inside ops, each with a dead one beside it."""
    a, r = tensor("a"), tensor("r")
    op = BoundSymbol(prims.sin, (a,), {}, r)
    layer = composite("layer")
    for index in range(size // 2):
        op = BoundSymbol(layer, (a,), {}, r, [BoundSymbol(prims.cos, (a,), {}, tensor(f"d{index}")), op])
    return [op, BoundSymbol(prims.python_return, (r,), {}, None)]


KINDS: dict[str, Callable[[int], list[Any]]] = {"chain": chain, "duplicates": duplicates, "wide": wide, "deep": deep}


def make(kind: str, size: int) -> Any:
    """A trace of this kind and size."""
    trace = TraceCtx()
    trace.args = ()
    with tracectx(trace):
        trace.bound_symbols = KINDS[kind](size)
    return trace


def take_apart(trace: Any) -> None:
    """Free a trace without the interpreter's recursion over what is inside what."""
    for top in trace.bound_symbols:
        while top.subsymbols:
            top, top.subsymbols = top.subsymbols[-1], ()  # noqa: PLW2901 (the next one)


def memory(kind: str, size: int, level: str, answer: Any) -> None:
    """Put the bytes that one call needs into a queue; runs in a child."""
    trace = make(kind, size)
    # The highest mark starts over from here.
    Path("/proc/self/clear_refs").write_text("5")
    before = highest_mark()
    shapetrace_rs.optimize(trace, level=level)
    answer.put(highest_mark() - before)
    # Without taking anything down: freeing what is nested would take as deep a recursion.
    os._exit(0)


def highest_mark() -> int:
    """The most memory that the process has had, in bytes."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def bytes_needed(kind: str, size: int, level: str) -> int:
    """How much memory one call needs at most, in a child of its own."""
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    child = context.Process(target=memory, args=(kind, size, level, answer))
    child.start()
    needed = answer.get()
    child.join()
    return int(needed)


def measure(kind: str, sizes: list[int], level: str, rounds: int) -> tuple[list[float], list[float]]:
    """Nanoseconds and bytes an op, for each size."""
    needed = [bytes_needed(kind, size, level) / size for size in sizes]
    traces = [make(kind, size) for size in sizes]
    times: list[list[float]] = [[] for _ in sizes]
    kept = []
    for _ in range(rounds):
        for index, trace in enumerate(traces):
            start = time.thread_time_ns()
            result = shapetrace_rs.optimize(trace, level=level)
            times[index].append(time.thread_time_ns() - start)
            kept.append(result)
    for trace in (*kept, *traces):
        take_apart(trace)
    return [statistics.median(spent) / size for spent, size in zip(times, sizes, strict=True)], needed


def main() -> int:
    """Measure all kinds and both levels.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000, help="ops of the largest traces")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sizes = [arguments.largest // 100, arguments.largest // 10, arguments.largest]
    gc.disable()
    print(f"nanoseconds an op, then bytes an op, at {', '.join(map(str, sizes))} ops")
    for kind in KINDS:
        # What is nested costs Python's own recursions, so there is less of it.
        sizes_of_kind = [size // 10 for size in sizes] if kind == "deep" else sizes
        for level in ("compat", "full"):
            times, needed = measure(kind, sizes_of_kind, level, arguments.rounds)
            columns = ["".join(f"{value:>9.0f}" for value in values) for values in (times, needed)]
            print(f"{kind:<12} {level:<8}{columns[0]}   {columns[1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
