"""The passes beside those of other compilers, on the same graphs in one run: nanoseconds an op.

    python benches/peers.py [--sizes 1000 10000 100000] [--ours-also 1000000] [--rounds 5] [--json target/peers.json]

Needs cargo, torch (for torch.fx) and jax with jaxlib, which has MLIR inside; jax may want an environment of its own.

Graphs, each made in the words of each compiler:

  chain    a live op and a dead one, again and again, each reading the live one before
  lanes    a hundred chains beside each other that take turns; every second one is dead
  repeats  arithmetic on integers that is done twice: a = x + y; b = x + y; x = a * b

Who takes part, and what it does:

  ours compat, full   an edit list of a program that is built: thunder's rules; all passes, in rounds, with value
                      numbering of arithmetic (equal ops on tensors are not merged)
  ours full + apply   the same, and the new program made from it
  mlir trivial-dce    dead ops are erased from MLIR's own IR
  mlir cse            equal ops are merged; what is dead when it comes by is erased, front to back: of a dead chain
                      the last op
  torch.fx            Graph.eliminate_dead_code: dead nodes are erased
  jax dce_jaxpr       a new jaxpr without the dead equations

Nobody's time has making or copying the graph in it; MLIR's verifier and threads are off, and so is Python's garbage
collector. All take turns; medians are reported. Numbers of ops that are left are checked: who removes dead code has to
leave the same as the others, and who merges as well.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import operator
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LANES = 100
GRAPHS = ("chain", "lanes", "repeats")

try:
    import jax
    import torch
    from jax._src.interpreters import mlir as jax_mlir
    from jax._src.interpreters import partial_eval
    from jaxlib.mlir import ir, passmanager
except ImportError as error:
    sys.exit(f"The package {error.name!r} is missing: pip install torch jax jaxlib, in an environment of their own")

# Times one call; gives nanoseconds and how many ops are left, the return aside.
Measure = Callable[[], tuple[int, int]]


def build(graph: str, ops: int, makers: tuple[Any, Any, Any], inputs: list[Any]) -> list[Any]:
    """Make a graph through the functions of a compiler.

    Args:
        graph: Which.
        ops: How many ops.
        makers: Of a sine, a sum and a product.
        inputs: What the graph takes, `LANES` of them.

    Returns:
        What it returns.
    """
    sine, add, multiply = makers
    if graph == "chain":
        last = inputs[0]
        for _ in range(ops // 2):
            live, _dead = sine(last), sine(last)
            last = live
        return [last]
    if graph == "lanes":
        lanes = list(inputs)
        for index in range(ops):
            lane = index % LANES
            lanes[lane] = add(lanes[lane], inputs[lane])
        return lanes[::2]
    x, y = inputs[:2]
    for _ in range(ops // 3):
        x = multiply(add(x, y), add(x, y))
    return [x]


class Ours:
    """The core, as a program that answers commands."""

    def __init__(self) -> None:
        build_it = ["cargo", "build", "--locked", "--quiet", "--release", "--package", "shapetrace-benches"]
        subprocess.run([*build_it, "--example", "peers"], cwd=ROOT, check=True)
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.process = subprocess.Popen(
            [target / "release" / "examples" / "peers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command: str) -> list[str]:
        """The words of the answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def measures(self, graph: str, ops: int) -> dict[str, Measure]:
        """What is measured of us on this graph."""
        self.ask(f"make {graph} {ops}")

        def measure(command: str, level: str) -> Measure:
            def once() -> tuple[int, int]:
                spent, kept = map(int, self.ask(f"{command} {graph} {ops} {level}"))
                return spent, kept - 1

            return once

        return {
            "ours compat": measure("run", "compat"),
            "ours full": measure("run", "full"),
            "ours full + apply": measure("apply", "full"),
        }


def mlir_measures(graph: str, ops: int) -> dict[str, Measure]:
    """MLIR's passes, on a copy of the module each time."""
    context = jax_mlir.make_ir_context()
    context.enable_multithreading(False)
    kind = "i64" if graph == "repeats" else "tensor<4xf32>"
    lines: list[str] = []

    def op(name: str) -> Any:
        def make(*operands: str) -> str:
            lines.append(f"%{len(lines)} = {name} {', '.join(operands)} : {kind}")
            return f"%{len(lines) - 1}"

        return make

    add = op("arith.addi" if graph == "repeats" else "stablehlo.add")
    results = build(graph, ops, (op("stablehlo.sine"), add, op("arith.muli")), [f"%x{i}" for i in range(LANES)])
    takes = ", ".join(f"%x{index}: {kind}" for index in range(LANES))
    gives = ", ".join([kind] * len(results))
    end = f"return {', '.join(results)} : {gives}"
    text = "\n".join([f"func.func @f({takes}) -> ({gives}) {{", *lines, end, "}"])
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)

    def measure(name: str) -> Measure:
        def once() -> tuple[int, int]:
            with context, ir.Location.unknown():
                manager = passmanager.PassManager.parse(f"builtin.module(func.func({name}))")
                manager.enable_verifier(False)
                module_copy = module.operation.clone()
                start = time.perf_counter_ns()
                manager.run(module_copy.operation)
                spent = time.perf_counter_ns() - start
                function = module_copy.operation.regions[0].blocks[0].operations[0]
                left = sum(1 for _ in function.regions[0].blocks[0].operations)
            return spent, left - 1

        return once

    return {"mlir trivial-dce": measure("trivial-dce"), "mlir cse": measure("cse")}


def fx_measures(graph: str, ops: int) -> dict[str, Measure]:
    """torch.fx, on a copy of the graph each time."""
    fx_graph = torch.fx.Graph()
    inputs = [fx_graph.placeholder(f"x{index}") for index in range(LANES)]

    def op(function: Any) -> Any:
        return lambda *operands: fx_graph.call_function(function, operands)

    fx_graph.output(tuple(build(graph, ops, (op(torch.sin), op(operator.add), op(operator.mul)), inputs)))

    def once() -> tuple[int, int]:
        graph_copy = torch.fx.Graph()
        graph_copy.output(graph_copy.graph_copy(fx_graph, {}))
        start = time.perf_counter_ns()
        graph_copy.eliminate_dead_code()
        spent = time.perf_counter_ns() - start
        return spent, sum(1 for node in graph_copy.nodes if node.op == "call_function")

    return {"torch.fx": once}


def jax_measures(graph: str, ops: int) -> dict[str, Measure]:
    """JAX, which makes a new jaxpr."""
    kind = jax.numpy.int32 if graph == "repeats" else jax.numpy.float32
    inputs = [jax.ShapeDtypeStruct((), kind)] * LANES
    lax = jax.lax
    makers = (lax.sin, lax.add, lax.mul)
    closed = jax.make_jaxpr(lambda *values: build(graph, ops, makers, list(values)))(*inputs)
    used = [True] * len(closed.jaxpr.outvars)

    def once() -> tuple[int, int]:
        # A copy, for answers about a jaxpr are remembered.
        jaxpr = closed.jaxpr.replace()
        start = time.perf_counter_ns()
        left, _ = partial_eval.dce_jaxpr(jaxpr, used)
        spent = time.perf_counter_ns() - start
        return spent, len(left.eqns)

    return {"jax dce_jaxpr": once}


def expected(who: str, graph: str, ops: int) -> int:
    """How many ops have to be left."""
    merges = who in {"mlir cse", "ours full", "ours full + apply"}
    if graph == "repeats":
        return ops // 3 * (2 if merges else 3)
    if who == "mlir cse" and graph == "lanes":
        return ops - LANES // 2
    return ops // 2


def measure_size(ours: Ours, graph: str, ops: int, rounds: int, peers: bool) -> dict[str, float]:
    """Median nanoseconds an op, for each who takes part."""
    measures = ours.measures(graph, ops)
    if peers:
        measures |= {**mlir_measures(graph, ops), **fx_measures(graph, ops), **jax_measures(graph, ops)}
    spent: dict[str, list[int]] = {who: [] for who in measures}
    for index in range(rounds + 1):
        for who, once in measures.items():
            gc.collect()
            gc.disable()
            nanoseconds, left = once()
            gc.enable()
            if left != expected(who, graph, ops):
                sys.exit(f"{who} leaves {left} ops of {graph} with {ops}, and not {expected(who, graph, ops)}")
            # The first round is to warm up.
            if index:
                spent[who].append(nanoseconds)
    return {who: statistics.median(times) / ops for who, times in spent.items()}


def versions() -> dict[str, str]:
    """The machine, and who takes part."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    packages = {name: importlib.metadata.version(name) for name in ("torch", "jax", "jaxlib")}
    return {
        "processor": cpu[0].partition(": ")[2] if cpu else platform.processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "rustc": subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        **packages,
    }


def main() -> int:
    """Measure all.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="ops of the graphs")
    parser.add_argument("--ours-also", type=int, nargs="*", default=[1_000_000], help="sizes for this optimizer alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=ROOT / "target" / "peers.json", help="where the figures go")
    arguments = parser.parse_args()
    ours = Ours()
    told = versions()
    print(", ".join(f"{name}: {value}" for name, value in told.items()))
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for graph in GRAPHS:
        for ops in [*arguments.sizes, *arguments.ours_also]:
            # Thirds and halves of it are whole.
            ops = ops // 6 * 6  # noqa: PLW2901
            result = measure_size(ours, graph, ops, arguments.rounds, peers=ops <= max(arguments.sizes))
            figures.setdefault(graph, {})[str(ops)] = result
            print(f"{graph}, {ops:,} ops: nanoseconds an op, and times ours")
            for who, time_an_op in result.items():
                compat, full = time_an_op / result["ours compat"], time_an_op / result["ours full"]
                print(f"  {who:<20} {time_an_op:>10.1f}   {compat:>8.1f} x compat {full:>8.1f} x full", flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    told_all = {"versions": told, "garbage collector": "off", "nanoseconds an op": figures}
    arguments.json.write_text(json.dumps(told_all, indent=2) + "\n")
    print(f"written to {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
