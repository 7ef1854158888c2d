"""One rank of a distributed job: compiles and runs every scenario, with thunder alone and with the drop-in.

    python rank.py RANK RENDEZVOUS OUTPUT

All ranks run this at the same time on the CPU, over gloo. Each writes what it saw to a file of its own; the tests
compare. A rank makes no assertions: one that stopped would let the other wait.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.distributed
from torch.nn import functional

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import thunder
    import thunder.distributed

import thunder.torch as ltorch
from thunder.core.transforms import add_transform
from thunder.dev_utils.check_trace import check_trace
from thunder.distributed import FSDPBucketingStrategy, FSDPType
from thunder.distributed import prims as distributed_prims
from thunder.distributed.tensor_parallel.column_wise import TransformForColumnWiseParallel
from thunder.distributed.tensor_parallel.row_wise import TransformForRowWiseParallel

import shapetrace_rs
from shapetrace_rs import _hooks
from trace_tools import copied, optimize_module, text, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

RANKS = 2
CPU = torch.device("cpu")
SECONDS = dt.timedelta(seconds=60)
OUTSIDE_OF_TRACES = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")

# For the programs: thunder would look into what `watched` puts in the place of it.
_all_reduce = torch.distributed.all_reduce
_COMMUNICATION = {identity.name.lower() for identity in distributed_prims.PrimIDs}


Run = Callable[[int, "Seen", list[Any]], None]


class Net(torch.nn.Module):
    """Layers with a residual connection, a softmax and a reshape; the result of one product is never used."""

    def __init__(self, width: int = 8, hidden: int = 16, *, tied: bool = False) -> None:
        """Make the layers; with `tied`, two of them share one weight."""
        super().__init__()
        self.first = torch.nn.Linear(width, hidden)
        self.second = torch.nn.Linear(hidden, width)
        # Without modules of their own: thunder's look into each call of one takes most of the time here.
        self.unused = torch.nn.Parameter(torch.randn(width, width))
        self.last = self.first.weight if tied else torch.nn.Parameter(torch.randn(hidden, width))

    def forward(self, x: Any) -> Any:
        """The logits."""
        hidden = self.second(functional.relu(self.first(x))) + x
        functional.linear(hidden, self.unused)
        return functional.linear(hidden.reshape(x.shape[0], -1).softmax(-1), self.last)


@dataclass
class Seen:
    """What one compile and its runs gave.

    Attributes:
        values: Outputs and gradients.
        expected: The same by eager PyTorch, as far as it can be told without communication.
        texts: Each trace, as text.
        communication: For the final forward and backward, the ops that communicate, in order, with their shapes.
        executed: The calls of `torch.distributed`, in order, with the shapes of their tensors.
        passes: For each call of dead code elimination, the ops that communicate: before, after, and after thunder's own
            pass on a copy. Empty without the drop-in.
        findings: What `verify` or thunder's checker said of a trace.
        misses: How often thunder compiled.
    """

    values: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    communication: list[Any] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    passes: list[Any] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    misses: int = 0


def communication(trace: Any) -> list[str]:
    """The primitives of a trace that communicate, or belong to it: name, operands and results."""
    found = []
    for op in walk(trace):
        name = op.sym.name.removeprefix("torch_").removesuffix("_prim_impl")
        if (op.sym.is_prim or op.sym.executor is not None) and name in _COMMUNICATION:
            found.append(f"{name} {' '.join(map(_described, (*op.flat_proxy_args, *op.flat_proxy_outs)))}")
    return found


def _described(proxy: Any) -> str:
    """The name of a value, and its shape, in which numbers stand for what they were when the trace was made."""
    sizes = [str(getattr(size, "value", size)) for size in getattr(proxy, "_shape", ())]
    return f"{proxy.name}: {','.join(sizes)}"


@contextmanager
def watched(seen: Seen) -> Iterator[None]:
    """Note what is communicated, and what dead code elimination does to ops that communicate."""

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            shapes = [tuple(a.shape) for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
            seen.executed.append(f"{name} {shapes}")
            return function(*args, **kwargs)

        return call

    run = optimize_module.run

    def compared(trace: Any, needed: Any, options: Any) -> Any:
        stock = _hooks.call_stock_dce(copied(trace), None if needed is None else set(needed))
        result = run(trace, needed, options)
        seen.passes.append([communication(trace), communication(result[0]), communication(stock)])
        return result

    outside = {name: noted(name, getattr(torch.distributed, name)) for name in OUTSIDE_OF_TRACES}
    with mock.patch.multiple(torch.distributed, **outside), mock.patch.object(optimize_module, "run", compared):
        yield


def note_traces(seen: Seen, compiled: Any) -> None:
    """Note all traces of the latest compile."""
    forward = list(thunder.last_traces(compiled))
    backward = list(thunder.last_backward_traces(compiled) or ())
    seen.misses = thunder.cache_misses(compiled)
    for trace in (*thunder.last_prologue_traces(compiled), *forward, *backward):
        seen.texts.append(text(trace))
    for traces in (forward, backward):
        if traces:
            seen.communication.append(communication(traces[-1]))
            seen.findings += [str(finding) for finding in shapetrace_rs.verify(traces[-1])]
            try:
                check_trace(traces[-1])
            except AssertionError as error:
                seen.findings.append(f"{traces[-1].get_provenance()}: {error}")


def batch(rank: int, step: int = 0) -> Any:
    """The input of a rank."""
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + rank + 1))


def make_net(**sizes: Any) -> Net:
    """The same net in every rank."""
    torch.manual_seed(0)
    return Net(**sizes)


def mean_gradients(net: Net, steps: int) -> dict[str, Any]:
    """The gradients by eager PyTorch, as the mean over the ranks, summed over steps."""
    net = copy.deepcopy(net)
    for step in range(steps):
        for rank in range(RANKS):
            (net(batch(rank, step)).square().sum() / RANKS).backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def shard(gradient: Any, rank: int) -> Any:
    """The part of a gradient that belongs to a rank; the last one is padded with zeros."""
    rows = -(-gradient.shape[0] // RANKS)
    part = gradient[rank * rows : (rank + 1) * rows]
    missing = rows - part.shape[0]
    return torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) if missing else part


def data_parallel(parallelize: Callable[[Any], Any], *, sharded: bool, steps: int = 1, **sizes: Any) -> Run:
    """A scenario: forward and backward of the net, each rank with an input of its own."""

    def run(rank: int, seen: Seen, transforms: list[Any]) -> None:
        net = make_net(**sizes)
        gradients = mean_gradients(net, steps)
        seen.expected = {name: shard(g, rank) if sharded else g for name, g in gradients.items()}
        with torch.no_grad():
            seen.expected["output"] = net(batch(rank, steps - 1))
        compiled = parallelize(thunder.jit(net, transforms=transforms))
        # What a data parallel job does to accumulate gradients: only the last step communicates.
        with compiled.no_sync() if steps > 1 else nullcontext():
            for step in range(steps - 1):
                compiled(batch(rank, step)).square().sum().backward()
        output = compiled(batch(rank, steps - 1))
        output.square().sum().backward()
        seen.values = {name: p.grad for name, p in compiled.named_parameters() if p.grad is not None}
        seen.values["output"] = output.detach()
        note_traces(seen, compiled)

    return run


def tensor_parallel(rank: int, seen: Seen, transforms: list[Any]) -> None:
    """Two layers that are split over the ranks, by columns and by rows."""
    net = make_net()
    x = batch(0)
    expected = copy.deepcopy(net)
    seen.expected = {"output": expected(x)}
    seen.expected["output"].square().sum().backward()
    for name, dim in (("first.weight", 0), ("second.weight", 1)):
        seen.expected[name] = expected.get_parameter(name).grad.chunk(RANKS, dim)[rank]
    compiled = thunder.jit(net, transforms=transforms)
    group = torch.distributed.group.WORLD
    for transform_type, layer in ((TransformForColumnWiseParallel, "first"), (TransformForRowWiseParallel, "second")):
        transform = transform_type(rank=rank, world_size=RANKS, process_group=group, target_modules=(layer,))
        transform.device = CPU  # thunder's default is the GPU with the number of the rank
        compiled = add_transform(compiled, transform=transform)
    output = compiled(x)
    output.square().sum().backward()
    gradients = {name: p.grad for name, p in compiled.named_parameters() if p.grad is not None}
    seen.values = {"output": output.detach(), **gradients}
    seen.expected["output"] = seen.expected["output"].detach()
    note_traces(seen, compiled)


def in_a_function(rank: int, seen: Seen, transforms: list[Any]) -> None:
    """Communication that a program does itself: the same twice, in vain, and into its own arguments."""
    group = torch.distributed.group.WORLD

    def function(x: Any, total: Any) -> Any:
        once = ltorch.all_reduce(x, group=group)
        twice = ltorch.all_reduce(x, group=group)
        ltorch.all_reduce(x * 3, group=group)
        gathered = ltorch.all_gather(x.reshape(-1, x.shape[1]), group, True).wait()
        _all_reduce(total, group=group)
        first = ltorch.broadcast(x, 0, group)
        return once - twice * 2, gathered.reshape(-1), ltorch.reduce_scatter(x.reshape(-1), group=group), first

    inputs = [batch(other) for other in range(RANKS)]
    compiled = thunder.jit(function, transforms=transforms)
    total = torch.full((3,), float(rank + 1))
    outputs = compiled(inputs[rank], total)
    seen.values = {"total": total} | {str(number): value for number, value in enumerate(outputs)}
    summed = inputs[0] + inputs[1]
    part = summed.reshape(-1).chunk(RANKS)[rank]
    expected = (-summed, torch.cat(inputs).reshape(-1), part, inputs[0])
    seen.expected = {"total": torch.full((3,), 3.0)} | {str(n): value for n, value in enumerate(expected)}
    note_traces(seen, compiled)


def with_symbolic_values(rank: int, seen: Seen, transforms: list[Any]) -> None:
    """Collectives between reshapes whose sizes are found at run time; thunder 0.2.6 has no asynchronous ones here."""
    group = torch.distributed.group.WORLD

    def function(x: Any) -> Any:
        rows, columns = x.shape
        once = ltorch.all_reduce(x.reshape(-1, columns), group=group)
        twice = ltorch.all_reduce(x.reshape(rows, -1), group=group)
        ltorch.all_reduce(x * 3, group=group)
        summed = x.reshape(-1, rows) * 1
        _all_reduce(summed, group=group)
        return once.reshape(-1, rows).softmax(-1), twice.reshape(rows, -1) - x, ltorch.broadcast(x, 0, group), summed

    compiled = thunder.jit(function, cache="symbolic values", transforms=transforms)
    for length in (4, 6):
        inputs = [batch(other).repeat(length, 1)[: 2 * length] for other in range(RANKS)]
        summed = inputs[0] + inputs[1]
        rows = inputs[0].shape[0]
        expected = (summed.reshape(-1, rows).softmax(-1), summed - inputs[rank], inputs[0], summed.reshape(-1, rows))
        for number, (value, wanted) in enumerate(zip(compiled(inputs[rank]), expected, strict=True)):
            seen.values[f"{length}, {number}"], seen.expected[f"{length}, {number}"] = value, wanted
    note_traces(seen, compiled)


def _fsdp(**options: Any) -> Callable[[Any], Any]:
    return lambda compiled: thunder.distributed.fsdp(compiled, device=CPU, **options)


def _ddp(**options: Any) -> Callable[[Any], Any]:
    return lambda compiled: thunder.distributed.ddp(compiled, **options)


@dataclass(frozen=True)
class Scenario:
    """What every rank does.

    Attributes:
        run: Compiles and runs a program with some transforms, and notes what is seen.
        level: The level of the optimizer.
        as_transform: Bring the optimizer as a transform of this one function; otherwise the drop-in is installed.
    """

    run: Run
    level: str = "full"
    as_transform: bool = False

    def with_thunder(self, rank: int) -> Seen:
        """What is seen with thunder alone."""
        seen = Seen()
        with watched(seen):
            self.run(rank, seen, [])
        return seen

    def with_optimizer(self, rank: int) -> Seen:
        """What is seen with the optimizer."""
        seen = Seen()
        options: dict[str, Any] = {"level": self.level, "strict": True}
        with watched(seen):
            if self.as_transform:
                self.run(rank, seen, [shapetrace_rs.OptimizeTransform(**options)])
            else:
                with shapetrace_rs.enabled(**options):
                    self.run(rank, seen, [])
        return seen


_DDP = data_parallel(_ddp(), sharded=False)
_ACCUMULATED = data_parallel(_ddp(bucket_size_in_mb=0), sharded=False, steps=2)
_FSDP = data_parallel(_fsdp(), sharded=True)
_FSDP_UNEVEN = data_parallel(
    _fsdp(sharding_strategy=FSDPType.ZERO3, bucketing_strategy=FSDPBucketingStrategy.BLOCK),
    sharded=True,
    hidden=7,
    tied=True,
)

SCENARIOS = {
    "ddp": Scenario(_DDP),
    "ddp, accumulated, without buckets": Scenario(_ACCUMULATED),
    "fsdp": Scenario(_FSDP),
    "fsdp, level compat": Scenario(_FSDP, level="compat"),
    "fsdp, as a transform": Scenario(_FSDP, as_transform=True),
    "fsdp, zero 3, blocks, padded, tied": Scenario(_FSDP_UNEVEN),
    "tensor parallel": Scenario(tensor_parallel),
    "in a function": Scenario(in_a_function),
    "symbolic values": Scenario(with_symbolic_values),
}


def main(rank: int, rendezvous: str, output: str) -> None:
    """Run all scenarios, and write down what was seen."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS, timeout=SECONDS
    )
    results = {}
    stock: dict[Run, Seen] = {}
    for name, scenario in SCENARIOS.items():
        if scenario.run not in stock:
            stock[scenario.run] = scenario.with_thunder(rank)
        results[name] = {"stock": asdict(stock[scenario.run]), "ours": asdict(scenario.with_optimizer(rank))}
    torch.save(results, output)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
