"""What counting and remembering cost when nobody asks, on the traces of a real compile.

    python benches/bridge/recording.py [--layers 4] [--rounds 41]

Each trace that thunder hands to its dead code elimination goes through the drop-in twice in turn: as it is installed,
and with counting and remembering cut out of it. Reported are medians of thread CPU time with the garbage collector off.
The last line is the same for a trace of three ops, where a fixed cost shows most. The last columns are what a call
costs while it is recorded, without and with details, as multiples of the first.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import shapetrace_rs
from compare import copy_trace, describe, machine, record_traces, walk
from shapetrace_rs import report


def main() -> int:
    """Run the comparison.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="layers of the GPT (default: 4)")
    parser.add_argument("--rounds", type=int, default=41, help="rounds for each trace (default: 41)")
    arguments = parser.parse_args()
    if shapetrace_rs._core.debug_build:
        print("The native module is a debug build: these times would say nothing.", file=sys.stderr)
        return 1
    traces = [copy_trace(trace) for trace in record_traces(arguments.layers)]
    print(describe(machine()))
    print(f"{'ops':>7} {'all':>7}   {'without':>10} {'with':>10}  difference     ratio   recorded  details")
    ratios = []
    for trace in [*traces, tiny_trace()]:
        without, with_, recorded, details = measure(trace, arguments.rounds)
        ratios.append(with_ / without)
        print(
            f"{len(trace.bound_symbols):>7} {sum(1 for _ in walk(trace.bound_symbols)):>7}   {without / 1e3:>7.1f} us "
            f"{with_ / 1e3:>7.1f} us  {(with_ - without) / 1e3:>7.2f} us  {ratios[-1]:>8.4f}   "
            f"{recorded / without:>8.3f} {details / without:>8.2f}",
            flush=True,
        )
    print(f"median of the ratios over the traces of the compile: {statistics.median(ratios[:-1]):.4f}")
    return 0


def measure(trace: Any, rounds: int) -> tuple[float, float, float, float]:
    """Medians for one trace: cut out, as installed, recorded, recorded with details."""
    import thunder

    times: dict[str, list[int]] = {"without": [], "with": [], "recorded": [], "details": []}
    variants: dict[str, Callable[[], Any]] = {
        "without": cut_out,
        "with": nothing,
        "recorded": shapetrace_rs.record_calls,
        "details": lambda: shapetrace_rs.record_calls(details=True),
    }
    repeats = max(1, 400 // len(trace.bound_symbols))
    with shapetrace_rs.enabled(strict=False):
        thunder.dce(trace)
        gc.collect()
        gc.disable()
        try:
            names = list(variants)
            for round_number in range(rounds):
                # Another order each round: memory that one variant frees is what the next one gets.
                for offset in range(len(names)):
                    name = names[(round_number + offset) % len(names)]
                    with variants[name]():
                        start = time.thread_time_ns()
                        for _ in range(repeats):
                            thunder.dce(trace)
                        times[name].append((time.thread_time_ns() - start) // repeats)
        finally:
            gc.enable()
    without, with_, recorded, details = (statistics.median(times[name]) for name in variants)
    return without, with_, recorded, details


@contextmanager
def nothing() -> Iterator[None]:
    """The drop-in as it is installed."""
    yield


@contextmanager
def cut_out() -> Iterator[None]:
    """The drop-in without counting and remembering."""
    with (
        mock.patch.object(report, "count", ignore),
        mock.patch.object(report, "remember", ignore),
    ):
        yield


def ignore(*_: Any) -> None:
    """Do nothing: a mock would keep what it is called with."""


def tiny_trace() -> Any:
    """A sum, a product that nobody reads, and the return."""
    from thunder.core import devices, dtypes, prims
    from thunder.core.proxies import TensorProxy
    from thunder.core.trace import TraceCtx, tracectx

    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy(name="x", shape=(2, 3), device=devices.cpu, dtype=dtypes.float32)
        total = prims.add(x, x)
        prims.mul(x, x)
        prims.python_return(total)
    trace.args = (x,)
    return trace


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
