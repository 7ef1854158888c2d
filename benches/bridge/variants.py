"""Times builds of the native module against each other, and direct reads against the public C API.

    python benches/bridge/variants.py [--module NAME=PATH ...] [--layers 4] [--rounds 15] [--json FILE]

The first line of the answer is the module that is installed. For each further one, `--module` gives a name and the
path of a shared library `_core*.so`: another profile, another linker, another version of the code. Each is measured
twice, with attributes read where CPython keeps them and with `direct=False`, which is all that a build for the stable
ABI could do. All variants run in turn in one process, on fresh copies (*cold*) of the traces of one compile and once
more on the same copies (*warm*), so that whatever else the machine does meets all of them alike.

Reported is thread CPU time with the garbage collector off: the geometric mean, over the traces, of the medians over
the rounds, relative to the first line; and the size of each library.

`benches/bridge/profiles.sh` builds the release profiles that are worth comparing and runs this.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from compare import copy_trace, describe, machine, record_traces
from shapetrace_rs import _core, _thunder

STATES = ("cold", "warm")


def main() -> int:
    """Run the comparison.

    Returns:
        The exit code: 1 if a module is a debug build.
    """
    arguments = parse_arguments()
    modules = {"installed": _core}
    for word in arguments.module:
        name, _, path = word.partition("=")
        modules[name] = load(name, Path(path))
    if any(module.debug_build for module in modules.values()):
        print("One of the modules is a debug build: these times would say nothing.", file=sys.stderr)
        return 1
    variants = {
        (name, direct): module.Optimizer(
            _thunder.host(),
            level=arguments.level,
            keep_random=False,
            keep_shape_numbers=False,
            floor_division=True,
            direct=direct,
        )
        for name, module in modules.items()
        for direct in (True, False)
    }
    facts = machine()
    print(describe(facts))
    if not variants["installed", True].direct:
        print("This interpreter has no direct reads: both columns are the public C API.")
    traces = record_traces(arguments.layers)
    times = [measure(trace, variants, arguments.rounds) for trace in traces]
    base = variants_mean(times, ("installed", True))
    rows = []
    print(f"{len(traces)} traces, level {arguments.level}, {arguments.rounds} rounds; times relative to the first line")
    print(f"{'module':<20} {'bytes':>9}   {'direct':>13}   {'public API':>13}")
    print(f"{'':<20} {'':>9}   {'cold':>6} {'warm':>6}   {'cold':>6} {'warm':>6}")
    for name, module in modules.items():
        size = Path(module.__file__).stat().st_size
        ratio = {
            (direct, state): variants_mean(times, (name, direct))[state] / base[state]
            for direct in (True, False)
            for state in STATES
        }
        rows.append({"module": name, "bytes": size, "ratios": {f"{d}-{s}": r for (d, s), r in ratio.items()}})
        print(
            f"{name:<20} {size:>9}   {ratio[True, 'cold']:>6.3f} {ratio[True, 'warm']:>6.3f}   "
            f"{ratio[False, 'cold']:>6.3f} {ratio[False, 'warm']:>6.3f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "rows": rows}, indent=1), encoding="utf-8")
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", action="append", default=[], metavar="NAME=PATH", help="one more native module")
    parser.add_argument("--level", choices=("full", "compat"), default="full", help="which passes (default: full)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the GPT (default: 4)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds for each trace (default: 15)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


def load(name: str, path: Path) -> Any:
    """A native module from a file, beside the installed one."""
    spec = importlib.util.spec_from_file_location(f"{name}._core", path)
    if spec is None or spec.loader is None:
        message = f"{path} is no extension module"
        raise SystemExit(message)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(trace: Any, variants: dict[Any, Any], rounds: int) -> dict[Any, dict[str, float]]:
    """Medians in nanoseconds for one trace, the variants in turn."""
    order = list(variants)
    times: dict[Any, dict[str, list[int]]] = {variant: {state: [] for state in STATES} for variant in order}
    gc.collect()
    gc.disable()
    try:
        for round_number in range(rounds):
            # Another order each round: memory that one variant frees is what the next one gets.
            for offset in range(len(order)):
                variant = order[(round_number + offset) % len(order)]
                copy = copy_trace(trace)
                for state in STATES:
                    start = time.thread_time_ns()
                    variants[variant].run(copy.bound_symbols)
                    times[variant][state].append(time.thread_time_ns() - start)
    finally:
        gc.enable()
    return {
        variant: {state: statistics.median(values) for state, values in of.items()} for variant, of in times.items()
    }


def variants_mean(times: list[dict[Any, dict[str, float]]], variant: Any) -> dict[str, float]:
    """The geometric mean over the traces."""
    return {state: statistics.geometric_mean(of[variant][state] for of in times) for state in STATES}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
