"""Whether time and memory grow in step with the size of a trace, for thunder's pass and for this optimizer.

    python benches/bridge/scaling.py [--largest 100000] [--rounds 5] [--json FILE] [--plot FILE]

Kinds of traces: a chain with dead ops beside it, duplicates of one query, one op with many operands and as many ops
inside it, and ops nested in each other (a tenth as many). Each is made in sizes ten times each other. Thunder's pass
and both levels take turns on traces of their own that no pass has seen (*cold*); medians of thread CPU time are
reported, with the garbage collector off. Where thunder's pass ran, level "compat" has to leave the same ops. Thunder's
pass is left out where one call of it would take more than `--patience` seconds, as far as the smaller sizes tell, and
where it needs a deeper recursion than Python has. Memory is what the process needs at most beyond what it had before
the call, in a forked child for each size; tens of kilobytes up to one megabyte are there in any case.

Then the width of one parent, from 500 ops inside it to 50,000, in nanoseconds an op: *warm*, the same traces again and
again. There are as many traces of each width as have 50,000 ops together: else the small ones would be in the caches
of the processor and the large ones not. The last column is the slowest over the fastest; 1.3 is what it may be.

All figures go to a JSON file, and ops against time to a plot with logarithmic axes, an SVG. The exit code is 1 if
results differ.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
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
from compare import describe, machine, tree

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    from thunder.core import devices, dtypes, prims
    from thunder.core.proxies import CONSTRAINT, IntegerProxy, TensorProxy
    from thunder.core.symbol import BoundSymbol, Symbol
    from thunder.core.trace import TraceCtx, tracectx
    from thunder.core.transform_common import dce

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (500, 5_000, 50_000)
MOST_BETWEEN_WIDTHS = 1.3
PASSES: dict[str, Callable[[Any], Any]] = {
    "thunder": dce,
    "compat": lambda trace: shapetrace_rs.optimize(trace, level="compat"),
    "full": lambda trace: shapetrace_rs.optimize(trace, level="full"),
}


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


def same(ours: Any, stock: Any) -> bool:
    """Whether two traces have the same ops, with what is inside them."""
    return [tree(op) for op in ours.bound_symbols] == [tree(op) for op in stock.bound_symbols]


def call(name: str, trace: Any) -> tuple[Any, int]:
    """One pass over a trace, and its nanoseconds."""
    start = time.thread_time_ns()
    result = PASSES[name](trace)
    return result, time.thread_time_ns() - start


def measure(kind: str, size: int, rounds: int, names: list[str]) -> tuple[dict[str, float], bool]:
    """Median nanoseconds of one call for each pass, on traces that none has seen, and whether results agree."""
    spent: dict[str, list[int]] = {name: [] for name in names}
    agree = True
    for round_number in range(rounds):
        results = {}
        # Another order each round: memory that one frees is what the next one gets.
        for offset in range(len(names)):
            name = names[(round_number + offset) % len(names)]
            trace = make(kind, size)
            results[name], nanoseconds = call(name, trace)
            spent[name].append(nanoseconds)
            take_apart(trace)
        if round_number == 0 and "thunder" in results:
            # A trace taken apart has lost what is inside its ops: made anew, for both.
            ours, stock = (call(name, make(kind, size))[0] for name in ("compat", "thunder"))
            agree = same(ours, stock)
        for result in results.values():
            take_apart(result)
    return {name: statistics.median(values) for name, values in spent.items()}, agree


def measure_kind(kind: str, sizes: list[int], arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """All sizes of a kind; prints a line for each."""
    rows: list[dict[str, Any]] = []
    agree = True
    for size in sizes:
        names = [name for name in PASSES if name != "thunder" or thunder_may(rows, size, arguments.patience)]
        try:
            nanoseconds, agrees = measure(kind, size, arguments.rounds, names)
        except RecursionError:
            nanoseconds, agrees = measure(kind, size, arguments.rounds, ["compat", "full"])
        agree &= agrees
        needed = {level: bytes_needed(kind, size, level) / size for level in ("compat", "full")}
        rows.append({"ops": size, "ns": nanoseconds, "bytes an op": needed})
        times = "".join(
            f"{nanoseconds[name] / size:>10.0f}" if name in nanoseconds else f"{'-':>10}" for name in PASSES
        )
        memory_of = "".join(f"{needed[level]:>8.0f}" for level in needed)
        print(f"{kind:<12}{size:>8}{times}   {memory_of}{'' if agrees else '   results differ'}", flush=True)
    return rows, agree


def thunder_may(rows: list[dict[str, Any]], size: int, patience: float) -> bool:
    """Whether a call of thunder's pass may be expected to end in time, after what smaller sizes took."""
    if not rows:
        return True
    if "thunder" not in rows[-1]["ns"]:
        return False
    growth = size / rows[-1]["ops"]
    if len(rows) > 1:
        growth = max(growth, rows[-1]["ns"]["thunder"] / rows[-2]["ns"]["thunder"])
    return rows[-1]["ns"]["thunder"] * growth < patience * 1e9


def measure_widths(rounds: int) -> dict[str, dict[str, float]]:
    """Nanoseconds an op for several widths of one parent, warm; sizes take turns."""
    figures: dict[str, dict[str, float]] = {}
    for level in ("compat", "full"):
        traces = {width: [make("wide", width) for _ in range(max(WIDTHS) // width)] for width in WIDTHS}
        spent: dict[int, list[float]] = {width: [] for width in WIDTHS}
        for _ in range(rounds):
            for width, of_width in traces.items():
                spent[width].append(sum(call(level, trace)[1] for trace in of_width) / max(WIDTHS))
        # In the first round they were cold.
        medians = {width: statistics.median(values[1:] or values) for width, values in spent.items()}
        growth = max(medians.values()) / min(medians.values())
        figures[level] = {**{str(width): value for width, value in medians.items()}, "growth": growth}
        columns = "".join(f"{value:>10.0f}" for value in medians.values())
        print(f"width       {level:<8}{columns}{growth:>8.2f}{'' if growth <= MOST_BETWEEN_WIDTHS else '   too much'}")
    return figures


def draw(kinds: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Ops against milliseconds as an SVG, both axes logarithmic, one panel for each kind."""
    side, gap = 300, 60
    width = len(kinds) * (side + gap) + gap
    points = [
        (row["ops"], nanoseconds / 1e6) for rows in kinds.values() for row in rows for nanoseconds in row["ns"].values()
    ]
    lowest, highest = (
        [choose(math.log10(point[axis]) for point in points) for axis in (0, 1)] for choose in (min, max)
    )
    low, high = [math.floor(value) for value in lowest], [math.ceil(value) for value in highest]
    colours = {"thunder": "#b03a2e", "compat": "#1f618d", "full": "#1e8449"}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{side + 2 * gap}" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for panel, (kind, rows) in enumerate(kinds.items()):
        left, bottom = gap + panel * (side + gap), gap + side

        def place(ops: float, milliseconds: float, left: int = left, bottom: int = bottom) -> tuple[float, float]:
            x, y = (
                (math.log10(value) - low[axis]) / max(high[axis] - low[axis], 1)
                for axis, value in enumerate((ops, milliseconds))
            )
            return left + x * side, bottom - y * side

        out.append(f'<rect x="{left}" y="{gap}" width="{side}" height="{side}" fill="none" stroke="#999"/>')
        out.append(f'<text x="{left}" y="{gap - 8}">{kind}: ops against milliseconds</text>')
        for power in range(low[0], high[0] + 1):
            x, _ = place(10**power, 10 ** low[1])
            out.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">1e{power}</text>')
        for power in range(low[1], high[1] + 1):
            _, y = place(10 ** low[0], 10.0**power)
            out.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
        for line, (name, colour) in enumerate(colours.items()):
            placed = [place(row["ops"], row["ns"][name] / 1e6) for row in rows if name in row["ns"]]
            path_points = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            out.append(f'<polyline points="{path_points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
            out.append(f'<text x="{left + 8}" y="{gap + 16 + 14 * line}" fill="{colour}">{name}</text>')
    out.append("</svg>\n")
    path.write_text("\n".join(out), encoding="utf-8")


def main() -> int:
    """Measure all kinds.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000, help="ops of the largest traces")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=20, help="seconds that one call of thunder's may take")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", type=Path, default=ROOT / "target" / "scaling.json", help="where the figures go")
    parser.add_argument("--plot", type=Path, default=ROOT / "target" / "scaling.svg", help="where the plot goes")
    arguments = parser.parse_args()
    if shapetrace_rs._core.debug_build:
        print("The native module is a debug build: these times would say nothing.", file=sys.stderr)
        return 1
    sizes = [arguments.largest // 1000, arguments.largest // 100, arguments.largest // 10, arguments.largest]
    gc.disable()
    facts = machine()
    print(describe(facts))
    print(f"{'':<12}{'ops':>8}{'nanoseconds an op: thunder, compat, full':>44}   bytes an op: compat, full")
    kinds: dict[str, list[dict[str, Any]]] = {}
    agree = True
    for kind in arguments.kinds:
        # What is nested costs Python's own recursions, so there is less of it.
        sizes_of_kind = sorted({max(size // (10 if kind == "deep" else 1), 10) for size in sizes})
        kinds[kind], agrees = measure_kind(kind, sizes_of_kind, arguments)
        agree &= agrees
    print(f"{'':<20}{'nanoseconds an op inside one parent of ' + ', '.join(map(str, WIDTHS)):>44}")
    widths = measure_widths(arguments.rounds)
    report = {"machine": facts, "garbage collector": "off", "kinds": kinds, "widths": widths, "results agree": agree}
    for path in (arguments.json, arguments.plot):
        path.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    draw(kinds, arguments.plot)
    print(f"written to {arguments.json} and {arguments.plot}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
