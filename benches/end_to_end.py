"""Whole compiles, with thunder's own dead code elimination and with the drop-in, in one run that takes turns.

    python benches/end_to_end.py [--programs gpt nanogpt symbolic] [--layers 8 32] [--rounds 3] [--json FILE]

Programs, all compiled for forward and backward:

  gpt       litgpt's GPT with constant values, once for each number of --layers
  nanogpt   thunder's nanogpt (thunder.tests.nanogpt_model), with the first of --layers
  symbolic  a GPT as a function of its weights, with symbolic values, with the first of --layers

A compile is the first call less the second, in CPU time of the thread; *after tracing* is the part of it behind
thunder's interpreter, where passes and transforms work. Variants take turns, medians are reported, the garbage
collector is as a user has it (`--no-gc` turns it off). One more compile of each variant is recorded and tells what
part of it dead code elimination had. `--profile` runs one more compile with the drop-in under cProfile, and tells
what else in the part after the tracing costs: shares of it, what is called inside included, so that they overlap; a
profile makes small functions look dearer than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent / "bridge"))

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import thunder
    import torch

import shapetrace_rs
from compare import machine
from shapetrace_rs import enabled, record_calls
from shapetrace_rs.demo.measure import DemoOptions
from shapetrace_rs.demo.models import build_program
from shapetrace_rs.report import record_stock_calls

ROOT = Path(__file__).resolve().parent.parent
# What thunder does in that part, by name of file and function.
PROFILED = (
    ("utils.py", "producers"),
    ("utils.py", "consumers"),
    ("passes.py", "del_last_used"),
    ("transform_common.py", "cse"),
    ("transform_common.py", "cse_single_bsym"),
    ("passes.py", "transform_for_execution"),
    ("passes.py", "_transform_for_operator_executor_execution"),
    ("autodiff.py", "grad_transform_on_trace"),
    ("autodiff.py", "split_into_forward_and_backward"),
    ("rematerialization.py", "rematerialize"),
    ("transform_common.py", "_inplace_copy_sanity_check"),
    ("trace.py", "python_callable"),
    ("symbol.py", "from_bsym"),
    ("symbol.py", "bsym"),
    ("optimize.py", "run"),
)


class Program:
    """Something to compile anew as often as wanted."""

    def __init__(self, name: str, function: Any, inputs: tuple[Any, ...], **options: Any) -> None:
        self.name = name
        self.function = function
        self.inputs = inputs
        self.options = options

    def compile(self) -> Any:
        """A compiled function that has not been called."""
        return thunder.jit(self.function, **self.options)


def programs(arguments: argparse.Namespace) -> Iterator[Program]:
    """The programs that were asked for, each made when its turn comes."""
    first = arguments.layers[0]
    for kind in arguments.programs:
        if kind == "gpt":
            for layers in arguments.layers:
                made = build_program(DemoOptions(layers=layers, embd=64, heads=4, seq=32, vocab=256), "cpu")
                yield Program(f"gpt, {layers} layers", made.function, made.inputs)
        elif kind == "symbolic":
            options = DemoOptions(layers=first, embd=64, heads=4, seq=32, vocab=256, cache="symbolic values")
            made = build_program(options, "cpu")
            yield Program(f"symbolic, {first} layers", made.function, made.inputs, cache="symbolic values")
        else:
            from thunder.tests import nanogpt_model

            config = nanogpt_model.GPTConfig(
                block_size=32, vocab_size=256, n_layer=first, n_head=4, n_embd=64, dropout=0.0
            )
            tokens = torch.randint(0, 256, (2, 32))
            yield Program(f"nanogpt, {first} layers", nanogpt_model.GPT(config), (tokens, tokens))


@contextmanager
def tracing_noted() -> Iterator[list[int]]:
    """Notes the thread's time whenever thunder's interpreter has made a trace."""
    ends: list[int] = []
    interpret = thunder.thunder_general_jit

    def noted(*args: Any, **kwargs: Any) -> Any:
        try:
            return interpret(*args, **kwargs)
        finally:
            ends.append(time.thread_time_ns())

    with mock.patch.object(thunder, "thunder_general_jit", noted):
        yield ends


def compile_once(program: Program, profile: cProfile.Profile | None = None) -> tuple[float, float]:
    """Compile in the present state of affairs.

    Args:
        program: What.
        profile: Is running while it is compiled, after the tracing.

    Returns:
        Seconds of the compile, and of the part of it after the tracing.
    """
    function = program.compile()
    # What an earlier compile left behind should not be collected at this one's expense.
    gc.collect()
    with tracing_noted() as ends:
        start = time.thread_time_ns()
        if profile is None:
            function(*program.inputs)
        else:
            profile.runcall(function, *program.inputs)
        stop = time.thread_time_ns()
    again = time.thread_time_ns()
    function(*program.inputs)
    run = time.thread_time_ns() - again
    return (stop - start - run) / 1e9, (stop - ends[-1] - run) / 1e9


VARIANTS: dict[str, Callable[[], Any]] = {
    "stock": nullcontext,
    "drop-in": lambda: enabled(strict=True),
}


def measure(program: Program, rounds: int) -> dict[str, dict[str, float]]:
    """Medians for each variant, which take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    with enabled(strict=True):
        compile_once(program)
    for index in range(rounds):
        for name in list(VARIANTS)[:: 1 if index % 2 else -1]:
            with VARIANTS[name]():
                times[name].append(compile_once(program))
    figures = {}
    for name, variant in VARIANTS.items():
        with variant(), record_stock_calls() if name == "stock" else record_calls() as recording:
            compile_once(program)
            spent = sum(record.total_ns for record in recording.records) / 1e9
        whole, after = (statistics.median(column) for column in zip(*times[name], strict=True))
        figures[name] = {
            "seconds": whole,
            "seconds after tracing": after,
            "seconds of dce": spent,
            "calls of dce": len(recording.records),
        }
    return figures


def profiled(program: Program) -> dict[str, dict[str, float]]:
    """What parts of thunder take, as shares of what comes after the tracing."""
    profile = cProfile.Profile(time.thread_time)
    with enabled(strict=True):
        compile_once(program, profile)
    stats: Any = pstats.Stats(profile)
    by_name: dict[tuple[str, str], list[float]] = {}
    for (file, _, name), (calls, _, _, cumulative, _) in stats.stats.items():
        entry = by_name.setdefault((Path(file).name, name), [0, 0.0])
        entry[0] += calls
        # A generator or a recursive function counts with its longest.
        entry[1] += cumulative
    whole = by_name[("__init__.py", "apply_transforms_and_build_cache_entry")][1]
    return {
        f"{name} ({file})": {"calls": by_name[(file, name)][0], "share": by_name[(file, name)][1] / whole}
        for file, name in PROFILED
        if (file, name) in by_name
    }


def main() -> int:
    """Measure all programs.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ("gpt", "nanogpt", "symbolic")
    parser.add_argument("--programs", nargs="+", choices=kinds, default=list(kinds))
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 32], help="layers of the models")
    parser.add_argument("--rounds", type=int, default=3, help="compiles of each variant")
    parser.add_argument("--no-gc", action="store_true", help="with the garbage collector off")
    parser.add_argument("--profile", action="store_true", help="what else costs, after the tracing")
    parser.add_argument("--json", type=Path, default=ROOT / "target" / "end_to_end.json", help="where the figures go")
    arguments = parser.parse_args()
    if shapetrace_rs._core.debug_build:
        print("The native module is a debug build: these times would say nothing.", file=sys.stderr)
        return 1
    facts = {**machine(), "garbage collector": "off" if arguments.no_gc else "on"}
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if arguments.no_gc:
        gc.disable()
    report: dict[str, Any] = {"machine": facts, "rounds": arguments.rounds, "programs": {}}
    for program in programs(arguments):
        figures = measure(program, arguments.rounds)
        report["programs"][program.name] = figures
        print(program.name)
        for name, of in figures.items():
            share, share_after = (of["seconds of dce"] / of[what] for what in ("seconds", "seconds after tracing"))
            print(
                f"  {name:<8} compile {of['seconds']:>7.2f} s, after tracing {of['seconds after tracing']:>6.2f} s, "
                f"dce {of['seconds of dce'] * 1e3:>7.1f} ms in {of['calls of dce']:.0f} calls: "
                f"{share:.1%} of the compile, {share_after:.1%} of what comes after the tracing",
                flush=True,
            )
        for what in ("seconds", "seconds after tracing", "seconds of dce"):
            stock, ours = (figures[name][what] for name in VARIANTS)
            print(f"  {what}: {1 - ours / stock:.1%} less", flush=True)
        if arguments.profile:
            report["programs"][program.name]["profile"] = profile = profiled(program)
            for name, of in sorted(profile.items(), key=lambda item: -item[1]["share"]):
                print(f"    {name:<64} {of['calls']:>8.0f} calls {of['share']:>7.1%}")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written to {arguments.json}")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
