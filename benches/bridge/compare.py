"""Times the optimizer against thunder's own pass, side by side, on the traces of a real compile.

    python benches/bridge/compare.py [--layers 4] [--rounds 7] [--json FILE] [--plot FILE]

A GPT of litgpt with random weights is compiled once, forward and backward, and every trace that thunder hands to its
dead code elimination is kept. Then, for each trace and round, in turn: thunder's pass, level "compat", level "full",
each on a fresh copy (*cold*: bound symbols that no pass has seen) and once more on the same copy (*warm*). Reported are
medians of thread CPU time with the garbage collector off, reading and rebuilding included, and their ratios.

At last, calls on short lists: thunder's main branch runs its pass on what each symbol records, some ten thousand times
a compile, so `dce_bsyms` on 3 ops, 1 op and none is timed as well, in nanoseconds a call.

The results are compared as well: level "compat" must leave the same ops in the same order as thunder's pass.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import shapetrace_rs
from shapetrace_rs.optimize import run
from shapetrace_rs.options import OptimizeOptions

VARIANTS = ("thunder", "compat", "full")


def main() -> int:
    """Run the comparison.

    Returns:
        The exit code: 1 if a result of level "compat" differs from thunder's.
    """
    arguments = parse_arguments()
    if shapetrace_rs._core.debug_build:
        print("The native module is a debug build: these times would say nothing.", file=sys.stderr)
        return 1
    print(f"Compiling a GPT of {arguments.layers} layers to record its traces ...", flush=True)
    traces = record_traces(arguments.layers)
    report = {"machine": machine(), "layers": arguments.layers, "gc": "off", "traces": []}
    print(describe(report["machine"]))
    print(f"{'trace':>5} {'top':>6} {'all':>6}  thunder us/op      compat ratio       full ratio")
    print(f"{'':>5} {'':>6} {'':>6}  {'cold':>6} {'warm':>6}    {'cold':>6} {'warm':>6}    {'cold':>6} {'warm':>6}")
    same = True
    for index, trace in enumerate(traces):
        same &= gives_the_same(trace)
        row = measure(trace, arguments.rounds)
        row["trace"] = index
        report["traces"].append(row)
        ratios = [row["ratio"][variant][state] for variant in ("compat", "full") for state in ("cold", "warm")]
        cold, warm = (row["ns"]["thunder"][state] / row["top"] / 1e3 for state in ("cold", "warm"))
        print(
            f"{index:>5} {row['top']:>6} {row['all']:>6}  {cold:>6.1f} {warm:>6.1f}    "
            f"{ratios[0]:>6.1f} {ratios[1]:>6.1f}    {ratios[2]:>6.1f} {ratios[3]:>6.1f}",
            flush=True,
        )
    for variant in ("compat", "full"):
        for state in ("cold", "warm"):
            ratios = [row["ratio"][variant][state] for row in report["traces"]]
            report[f"median_ratio_{variant}_{state}"] = statistics.median(ratios)
            print(f"median over the traces, {variant}, {state}: {statistics.median(ratios):.1f} times as fast")
    report["ns_of_short_lists"] = short_lists(traces[0].bound_symbols, arguments.rounds)
    for count, ns in report["ns_of_short_lists"].items():
        print(f"dce_bsyms on a list of {count}: {ns:,.0f} ns")
    if not same:
        print("Level compat and thunder's pass do not agree.", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    if arguments.plot:
        plot(report, arguments.plot)
    return 0 if same else 1


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="layers of the GPT (default: 4)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds for each trace (default: 7)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help="draw ops against time, log-log, to this file (needs matplotlib)")
    return parser.parse_args()


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    names = ("shapetrace-rs", "lightning-thunder", "torch", "litgpt")
    versions = {name: shapetrace_rs.versions.installed_version(name) or "from the sources" for name in names}
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {"python": platform.python_version(), "cpu": cpu, **versions}


def describe(facts: dict[str, str]) -> str:
    """The machine in one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items()) + ", garbage collector off"


def record_traces(layers: int) -> list[Any]:
    """Copies of the traces that one compile passes through dead code elimination."""
    import thunder
    from litgpt import GPT, Config
    from thunder.core import transform_common

    config = Config.from_name(
        "pythia-14m", n_layer=layers, n_embd=64, n_head=4, padded_vocab_size=256, block_size=64, intermediate_size=128
    )
    traces: list[Any] = []
    stock = transform_common.dce

    def record(trace: Any, needed_proxies: Any = None) -> Any:
        traces.append(copy_trace(trace))
        return stock(trace, needed_proxies)

    holders = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("thunder") and getattr(module, "dce", None) is stock
    ]
    for module in holders:
        module.dce = record
    try:
        thunder.jit(GPT(config))(torch.randint(0, 256, (2, 16))).sum()
    finally:
        for module in holders:
            module.dce = stock
    return traces


def copy_bound_symbol(bound_symbol: Any) -> Any:
    """A bound symbol that no pass has seen."""
    return bound_symbol.from_bsym(subsymbols=[copy_bound_symbol(inner) for inner in bound_symbol.subsymbols])


def copy_trace(trace: Any) -> Any:
    """A trace of bound symbols that no pass has seen."""
    from thunder.core.trace import from_trace

    copy = from_trace(trace)
    copy.bound_symbols = [copy_bound_symbol(bound_symbol) for bound_symbol in trace.bound_symbols]
    return copy


def walk(bound_symbols: Any) -> Iterator[Any]:
    """All bound symbols, nested ones too."""
    for bound_symbol in bound_symbols:
        yield bound_symbol
        yield from walk(bound_symbol.subsymbols)


def gives_the_same(trace: Any) -> bool:
    """Whether level "compat" leaves the ops that thunder's pass leaves."""
    from thunder.core.transform_common import dce

    ours, _ = run(copy_trace(trace), None, OptimizeOptions(level="compat"))
    stock = dce(copy_trace(trace))
    return [tree(op) for op in ours.bound_symbols] == [tree(op) for op in stock.bound_symbols]


def tree(bound_symbol: Any) -> tuple[Any, ...]:
    """An op as names, with all that is inside it."""
    outputs = tuple(str(getattr(output, "name", output)) for output in bound_symbol.flat_outs)
    return (bound_symbol.sym.name, outputs, tuple(tree(inner) for inner in bound_symbol.subsymbols))


def measure(trace: Any, rounds: int) -> dict[str, Any]:
    """Medians for one trace, the variants in turn."""
    from thunder.core.transform_common import dce

    passes: dict[str, Callable[[Any], Any]] = {
        "thunder": dce,
        "compat": lambda copy: run(copy, None, OptimizeOptions(level="compat")),
        "full": lambda copy: run(copy, None, OptimizeOptions(level="full")),
    }
    times: dict[str, dict[str, list[int]]] = {variant: {"cold": [], "warm": []} for variant in VARIANTS}
    gc.collect()
    gc.disable()
    try:
        # Another order each round: memory that one variant frees is what the next one gets, so each has to come behind
        # each other one.
        for order in itertools.islice(itertools.cycle(itertools.permutations(VARIANTS)), rounds):
            for variant in order:
                copy = copy_trace(trace)
                for state in ("cold", "warm"):
                    start = time.thread_time_ns()
                    passes[variant](copy)
                    times[variant][state].append(time.thread_time_ns() - start)
    finally:
        gc.enable()
    ns = {variant: {state: statistics.median(values) for state, values in of.items()} for variant, of in times.items()}
    return {
        "top": len(trace.bound_symbols),
        "all": sum(1 for _ in walk(trace.bound_symbols)),
        "ns": ns,
        "ratio": {
            variant: {state: ns["thunder"][state] / ns[variant][state] for state in ("cold", "warm")}
            for variant in ("compat", "full")
        },
    }


def short_lists(bound_symbols: Any, rounds: int) -> dict[str, float]:
    """Nanoseconds of one call on a few ops, the median of rounds of a thousand calls."""
    alone = [op for op in bound_symbols if len(op.flat_proxy_outs) == 1 and op.flat_proxy_args and not op.subsymbols]
    times: dict[str, float] = {}
    for count in (3, 1, 0):
        ops = alone[-count:] if count else []
        # As a symbol has it: one value, or several.
        output = ops[0].output if count == 1 else tuple(op.output for op in ops)
        samples = []
        gc.disable()
        try:
            for _ in range(rounds):
                start = time.thread_time_ns()
                for _ in range(1000):
                    shapetrace_rs.dce_bsyms(ops, output)
                samples.append((time.thread_time_ns() - start) / 1000)
        finally:
            gc.enable()
        times[str(count)] = statistics.median(samples)
    return times


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw ops against time, log-log."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no plot was drawn.", file=sys.stderr)
        return
    figure, axes = plt.subplots(figsize=(7, 5))
    for variant, mark in zip(VARIANTS, "so^", strict=True):
        for state, style in (("cold", "full"), ("warm", "none")):
            points = sorted((row["all"], row["ns"][variant][state] / 1e6) for row in report["traces"])
            axes.plot(
                *zip(*points, strict=True), marker=mark, fillstyle=style, linestyle=":", label=f"{variant}, {state}"
            )
    axes.set(xscale="log", yscale="log", xlabel="ops, nested ones counted", ylabel="milliseconds")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
