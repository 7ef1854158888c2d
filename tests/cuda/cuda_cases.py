"""The programs of this group, and how their figures are taken."""

from __future__ import annotations

import dataclasses
import functools
import gc
import statistics
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

import shapetrace_rs
from shapetrace_rs.demo.measure import DemoOptions
from shapetrace_rs.demo.models import Program, build_program
from shapetrace_rs.versions import installed_version

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import thunder
    from thunder.extend import FusionExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

CONSTANT = "constant values"
SYMBOLIC = "symbolic values"
DROP_IN: dict[str, Any] = {"level": "full", "strict": True}

TOLERANCES = {"float32": 2e-4, "bfloat16": 5e-2}
"""How much of the largest value may be missed: the demo's tolerances."""

SHAPES = ((2, 16), (2, 24), (3, 16))
"""Batch and length, one after the other."""

STEPS = 7


@dataclass(frozen=True)
class Case:
    """One way to compile the demo's GPT.

    Attributes:
        program: `"function"`, written as a function of its weights, or `"module"`, litgpt's.
        dtype: The data type of weights and activations.
        cache: Thunder's cache option.
        executors: `"torch"` for those that fuse nothing, `"nvfuser"` for thunder's defaults with nvFuser among them.
    """

    program: str
    dtype: str
    cache: str
    executors: str

    def __str__(self) -> str:
        """The case in words."""
        return f"{self.program}, {self.dtype}, {self.cache}, {self.executors}"

    def skip_unless_possible(self, device: str) -> None:
        """Skip the test where something is missing, and say what."""
        if self.program == "module" and installed_version("litgpt") is None:
            pytest.skip("needs litgpt, whose GPT it is: pip install 'shapetrace-rs[demo]'")
        if self.executors == "nvfuser":
            if device == "cpu":
                pytest.skip("nvFuser makes kernels for GPUs only")
            if not any(executor.name == "nvfuser" for executor in thunder.get_default_executors()):
                pytest.skip("needs nvFuser, and a version of it that thunder accepts: it cannot be imported here")

    def jit(self, function: Any) -> Any:
        """The function as thunder compiles it."""
        executors = thunder.get_default_executors()
        if self.executors == "torch":
            executors = tuple(executor for executor in executors if not isinstance(executor, FusionExecutor))
        return thunder.jit(function, cache=self.cache, executors=executors)

    def build(self, device: str, **sizes: int) -> Program:
        """The program with random weights."""
        options = DemoOptions(device=device, dtype=self.dtype, cache=self._demo_cache, **sizes)
        return build_program(options, device)

    @property
    def _demo_cache(self) -> Any:
        # The demo has the module for constant values, and the function for symbolic ones.
        return CONSTANT if self.program == "module" else SYMBOLIC


def _cases() -> list[Any]:
    kinds = [("function", CONSTANT), ("function", SYMBOLIC), ("module", CONSTANT)]
    cases = [
        Case(program, dtype, cache, executors)
        for executors in ("torch", "nvfuser")
        for program, cache in kinds
        for dtype in TOLERANCES
    ]
    return [pytest.param(case, id=str(case)) for case in cases]


EVERY_CASE = pytest.mark.parametrize("case", _cases())


def why_not(device: str) -> str | None:
    """Why nothing can be run on a device, or `None` if it can."""
    try:
        torch.empty(1, device=device).add_(1).sum().item()
    except (RuntimeError, AssertionError) as error:
        return f"the device {device!r} cannot be used: {str(error).splitlines()[0].partition('. ')[0]}"
    return None


def environment(device: str) -> dict[str, str]:
    """What a reader of figures has to know."""
    facts = {"device": device if device == "cpu" else torch.cuda.get_device_name(device)}
    facts |= {name: installed_version(name) or "missing" for name in ("shapetrace-rs", "lightning-thunder", "torch")}
    facts["CUDA"] = str(torch.version.cuda)
    facts["executors"] = " ".join(str(executor.name) for executor in thunder.get_default_executors())
    return facts


def batch(program: Program, shape: tuple[int, int], vocab: int, seed: int = 1) -> tuple[tuple[Any, ...], Any]:
    """Arguments of the program with tokens of another shape, and targets."""
    tokens = program.inputs[0]
    generator = torch.Generator().manual_seed(seed)
    made = torch.randint(0, vocab, (shape[0], shape[1] + 1), generator=generator).to(tokens.device)
    return (made[:, :-1].contiguous(), *program.inputs[1:]), made[:, 1:].contiguous()


def forward_and_backward(function: Any, program: Program, arguments: tuple[Any, ...], targets: Any) -> dict[str, Any]:
    """The logits, and the gradients of the cross entropy with the targets; leaves no gradients behind."""
    logits = function(*arguments)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    loss.backward()
    values = {"logits": logits.detach()}
    for name, parameter in program.parameters.items():
        values[name], parameter.grad = parameter.grad, None
    return values


def assert_agrees(actual: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    """Compare all tensors; the scale is the largest value among logits, and among gradients."""
    assert set(actual) == set(expected)
    largest = max(value.abs().max().item() for name, value in expected.items() if name != "logits")
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype, name
        assert actual[name].shape == value.shape, name
        scale = value.abs().max().item() if name == "logits" else largest
        distance = (actual[name].double() - value.double()).abs().max().item()
        assert distance <= tolerance * scale, f"{name} differs by {distance:.3g}, allowed {tolerance * scale:.3g}"


@dataclass(frozen=True)
class Figures:
    """What one case takes, with thunder alone and with the drop-in.

    Attributes:
        case: The case, in words.
        compile_seconds: The first forward and backward less a later one.
        step_milliseconds: The median of a forward and backward.
        peak_bytes: The most memory in a step beyond what was there before it.
        peak_is: What that is on this device.
    """

    case: str
    compile_seconds: tuple[float, float]
    step_milliseconds: tuple[float, float]
    peak_bytes: tuple[int, int]
    peak_is: str

    def as_dict(self) -> dict[str, Any]:
        """Everything, with ratios, ready for JSON."""
        fields = dataclasses.asdict(self)
        pairs = {name: value for name, value in fields.items() if isinstance(value, tuple)}
        return fields | {f"{name}_ratio": value[1] / value[0] for name, value in pairs.items()}

    @staticmethod
    def table(entries: list[Figures]) -> list[str]:
        """All figures, in lines for people."""
        rows = [("case", "compile, s", "step, ms", f"{entries[0].peak_is}, MiB")]
        for entry in entries:
            peak = tuple(number / 2**20 for number in entry.peak_bytes)
            cells = (
                f"{stock:.2f} / {ours:.2f} = {ours / stock if stock else float('nan'):.2f}"
                for stock, ours in (entry.compile_seconds, entry.step_milliseconds, peak)
            )
            rows.append((entry.case, *cells))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def take_figures(case: Case, program: Program, device: str, shape: tuple[int, int], vocab: int) -> Figures:
    """Compile with thunder alone and with the drop-in, and measure both in turns.

    Args:
        case: What to compile.
        program: The program, on the device.
        device: The device.
        shape: Batch and length of the tokens.
        vocab: The size of the vocabulary.

    Returns:
        The figures.
    """
    arguments, targets = batch(program, shape, vocab)

    def step(function: Any) -> Callable[[], Any]:
        return functools.partial(forward_and_backward, function, program, arguments, targets)

    stock, ours = case.jit(program.function), case.jit(program.function)
    # What is used first pays for being first, and what an earlier compile left should not be collected at our expense.
    step(program.function)()
    gc.collect()
    first = [_seconds(step(stock), device)]
    gc.collect()
    with shapetrace_rs.enabled(**DROP_IN):
        first.append(_seconds(step(ours), device))
    peaks = [_peak_bytes(step(function), device) for function in (stock, ours)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(STEPS):
        for function, found in zip((stock, ours), times, strict=True):
            found.append(_seconds(step(function), device))
    steps = [statistics.median(found) for found in times]
    assert [thunder.cache_misses(function) for function in (stock, ours)] == [1, 1]
    return Figures(
        case=str(case),
        compile_seconds=(first[0] - steps[0], first[1] - steps[1]),
        step_milliseconds=(steps[0] * 1e3, steps[1] * 1e3),
        peak_bytes=(peaks[0], peaks[1]),
        peak_is="saved for the backward" if device == "cpu" else "peak memory",
    )


def _seconds(function: Callable[[], Any], device: str) -> float:
    """The time of a call, with the device's work finished before and after."""
    _finish(device)
    start = time.perf_counter()
    function()
    _finish(device)
    return time.perf_counter() - start


def _finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def _peak_bytes(function: Callable[[], Any], device: str) -> int:
    """The most memory that a call takes, beyond what is taken before; on the CPU, what is saved for the backward."""
    function()
    gc.collect()
    if device == "cpu":
        return _saved_bytes(function)
    _finish(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    function()
    _finish(device)
    return torch.cuda.max_memory_allocated(device) - before


def _saved_bytes(function: Callable[[], Any]) -> int:
    """How much is saved between forward and backward, each storage counted once."""
    saved: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        function()
    return sum(saved.values())
