"""Prints how large traces are: with thunder's own dead code elimination, and with the drop-in.

    python benches/trace_sizes.py [--program NAME ...] [--rounds N] [--json FILE]

For each program and cache mode: the ops of the computation trace after the first dead code elimination, nested ones
counted, and how many of them are shape queries; then the same of the final forward and backward traces of a compile
with gradients. Results are compared with eager PyTorch on the first shapes and on new ones, and the hits of the cache
are counted. A compile that raises is reported with what it raised. Last, the seconds of a compile with gradients, of
thunder alone and with the drop-in: medians over rounds, in turn, with the garbage collector on as users have it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

import shapetrace_rs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from programs import PROGRAMS, Program, results

CACHES = ("symbolic values", "constant values")
STEPS = 3


def main() -> int:
    """Print the table.

    Returns:
        The exit code: 1 if a result with the drop-in is not eager's.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", help="only this one; may be given several times")
    parser.add_argument("--rounds", type=int, default=3, help="compiles that are timed, each way (default: 3)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    rows = []
    print(f"{'':<18}{'':<10}{'first trace':>23}  {'forward':>23}  {'backward':>23}  {'':>8}")
    print(
        f"{'':<18}{'':<10}" + f"{'thunder':>11} {'ours':>11}  " * 3 + f"{'hits':>8}  {'compile, seconds':>16}  results"
    )
    for name, program in PROGRAMS.items():
        if name.endswith(", forward") or (arguments.program and name not in arguments.program):
            continue
        for cache in CACHES:
            row: dict[str, Any] = {"program": name, "cache": cache}
            row["thunder"] = compile_and_count(program, cache)
            with shapetrace_rs.enabled(strict=True):
                row["ours"] = compile_and_count(program, cache)
            row["seconds"] = time_compiles(program, cache, arguments.rounds)
            rows.append(row)
            print(line(row), flush=True)
    print("Each pair is ops in all / shape queries.")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all("agree" in row["ours"].get("results", "") for row in rows) else 1


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    thunder, ours = row["thunder"], row["ours"]
    cells = []
    for trace in ("first", "forward", "backward"):
        for side in (thunder, ours):
            counts = side.get(trace)
            cells.append(f"{'-' if counts is None else f'{counts[0]} / {counts[1]}':>11}")
    pairs = "  ".join(f"{a} {b}" for a, b in zip(cells[::2], cells[1::2], strict=True))
    hits = f"{thunder.get('hits', '-')} / {ours.get('hits', '-')}"
    problem = f"  (thunder alone: {thunder['error']})" if "error" in thunder else ""
    result = ours.get("error", ours.get("results", ""))
    seconds = " ".join("      -" if value is None else f"{value:7.2f}" for value in row["seconds"])
    return f"{row['program']:<18}{row['cache'].split()[0]:<10}{pairs}  {hits:>8}  {seconds:>16}  {result}{problem}"


def time_compiles(program: Program, cache: str, rounds: int) -> list[float | None]:
    """Median seconds of a compile with gradients: thunder alone, and with the drop-in; `None` if it raises."""
    import thunder

    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for index, context in enumerate((nullcontext(), shapetrace_rs.enabled())):
            arguments = program.inputs(0)
            with context, suppress(RuntimeError):
                start = time.perf_counter()
                thunder.jit(program.function, cache=cache)(*arguments)
                seconds[index].append(time.perf_counter() - start)
    return [statistics.median(values) if values else None for values in seconds]


def compile_and_count(program: Program, cache: str) -> dict[str, Any]:
    """Compile a program, run it with several shapes, count the ops of its traces."""
    import thunder

    torch.manual_seed(0)
    facts: dict[str, Any] = {}
    try:
        without_gradients = thunder.jit(program.function, cache=cache)
        with torch.no_grad():
            without_gradients(*program.inputs(0))
        cleaned = [t for t in thunder.last_traces(without_gradients) if "Dead Code" in str(t.get_provenance())]
        facts["first"] = count(cleaned[0])
        compiled = thunder.jit(program.function, cache=cache)
        agree = True
        for step in range(STEPS):
            agree &= agrees(program, compiled, program.inputs(step))
        facts["results"] = "agree with eager" if agree else "DIFFER FROM EAGER"
        facts["hits"] = thunder.cache_hits(compiled)
        facts["forward"] = count(thunder.last_traces(compiled)[-1])
        facts["backward"] = count(thunder.last_backward_traces(compiled)[-1])
    except Exception as error:  # noqa: BLE001 (whatever a compile raises belongs in the table)
        facts["error"] = f"{type(error).__name__}: {str(error).partition(';')[0][:60]}"
    return facts


def agrees(program: Program, compiled: Any, inputs: list[Any]) -> bool:
    """Whether results and gradients are eager's, within float32 rounding of what is compared."""
    pairs = zip(results(program.function, inputs), results(compiled, inputs), strict=True)
    return all(
        torch.allclose(expected, actual, rtol=1e-3, atol=1e-4 * max(1.0, expected.abs().max().item()))
        for expected, actual in pairs
    )


def walk(bound_symbols: Any) -> Iterator[Any]:
    """All bound symbols, nested ones too."""
    for bound_symbol in bound_symbols:
        yield bound_symbol
        yield from walk(bound_symbol.subsymbols)


def count(trace: Any) -> tuple[int, int]:
    """Ops in all, and shape queries among them."""
    ops = list(walk(trace.bound_symbols))
    return len(ops), sum(op.sym.name == "shape" for op in ops)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
