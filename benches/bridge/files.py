"""Traces as files against dill's pickles of them: bytes, and time to save and to load.

    python -m pip install dill
    python benches/bridge/files.py [--layers 2] [--rounds 9] [--json FILE]

Every trace of a GPT's compile, forward and backward, is saved and loaded both ways in turn. Reported are medians of
wall-clock time with the garbage collector off, and the checks that what comes back prints the same. dill cannot read
back thunder's tags, so it is taught them here, and cannot write some traces at all; their row says so. A pickle runs
code when it is loaded; a trace file does not.
"""

from __future__ import annotations

import argparse
import copyreg
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import dill
    import thunder
    import torch
    from thunder.core.baseutils import TagBase

import shapetrace_rs
from compare import describe, machine


def main() -> int:
    """Run the comparison.

    Returns:
        The exit code: 1 if something came back otherwise than it was.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2, help="layers of the GPT (default: 2)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds for each trace (default: 9)")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    for kind in TagBase.__subclasses__():
        copyreg.pickle(kind, lambda tag: (type(tag), (tag._value,)))
    print(f"{describe(machine())}, dill {dill.__version__}")
    columns = f"{'bytes':>7} {'dill':>8}  {'ratio':>6}   {'save + load':>16} {'dill':>16}  {'ratio':>6}"
    print(f"{'trace':<18}{'ops':>5} {columns}")
    rows = []
    for name, trace in traces(arguments.layers):
        row = {"trace": name, "ops": len(trace.bound_symbols), **measure(trace, arguments.rounds)}
        rows.append(row)
        print(line(row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "dill": dill.__version__, "rows": rows}, indent=1))
    return int(not all(row["same"] for row in rows))


def traces(layers: int) -> list[tuple[str, Any]]:
    """The first and the last trace of each function that one compile makes."""
    from litgpt import GPT, Config

    config = Config.from_name(
        "pythia-14m", n_layer=layers, n_embd=64, n_head=4, padded_vocab_size=256, block_size=64, intermediate_size=128
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = thunder.jit(GPT(config))
        compiled(torch.randint(0, 256, (2, 16)))
    found = {
        "prologue": thunder.last_prologue_traces(compiled),
        "forward": thunder.last_traces(compiled),
        "backward": thunder.last_backward_traces(compiled),
    }
    return [
        (f"{name} {place}", all_[index])
        for name, all_ in found.items()
        for place, index in (("first", 0), ("last", -1))
    ]


def measure(trace: Any, rounds: int) -> dict[str, Any]:
    """Sizes in bytes and medians of seconds; `None` for dill where it fails."""
    ours = shapetrace_rs.dumps(trace)
    try:
        pickled = dill.dumps(trace)
        dill.loads(pickled)  # noqa: S301 (we have just made it)
    except Exception as error:  # noqa: BLE001 (whatever it is, the row says so)
        pickled, problem = None, f"{type(error).__name__} {error}".strip()
    else:
        problem = None
    steps: dict[str, Callable[[], Any]] = {
        "save": lambda: shapetrace_rs.dumps(trace),
        "load": lambda: shapetrace_rs.loads(ours),
    }
    if pickled is not None:
        steps |= {"dill_save": lambda: dill.dumps(trace), "dill_load": lambda: dill.loads(pickled)}  # noqa: S301
    times: dict[str, list[float]] = {name: [] for name in steps}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return {
        "bytes": len(ours),
        "dill_bytes": pickled and len(pickled),
        "dill_problem": problem,
        "seconds": {name: statistics.median(each) for name, each in times.items()},
        "same": str(shapetrace_rs.loads(ours)) == str(trace),
    }


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    seconds = row["seconds"]
    save, load = seconds["save"] * 1e3, seconds["load"] * 1e3
    text = f"{row['trace']:<18}{row['ops']:>5} {row['bytes']:>7} "
    ours = f"{save:>6.1f} + {load:>4.1f} ms"
    if row["dill_bytes"] is None:
        return f"{text}{'':>16}   {ours:>16}   dill fails: {row['dill_problem']:.60}"
    dill_save, dill_load = seconds["dill_save"] * 1e3, seconds["dill_load"] * 1e3
    ratio = (dill_save + dill_load) / (save + load)
    return (
        f"{text}{row['dill_bytes']:>8}  {row['dill_bytes'] / row['bytes']:>5.1f}x   {ours:>16} "
        f"{dill_save:>6.1f} + {dill_load:>4.1f} ms  {ratio:>5.1f}x"
    )


if __name__ == "__main__":
    sys.exit(main())
