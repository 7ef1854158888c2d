"""What the demo does: compile, compare with eager, time both passes."""

from __future__ import annotations

import gc
import math
import platform
import statistics
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..install import enabled
from ..report import CallRecord, Recording, record_calls, record_stock_calls
from ..versions import installed_version
from .models import Program, build_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .show import Display

__all__ = ["Compile", "DemoOptions", "Difference", "Measurement", "measure"]

_TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "bfloat16": 5e-2, "float16": 1e-2}
_STEPS = 7


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The sizes and choices of one demo; see `shapetrace demo --help`."""

    architecture: Literal["llama", "pythia"] = "llama"
    layers: int = 8
    embd: int = 256
    heads: int = 8
    seq: int = 128
    vocab: int = 1024
    batch: int = 2
    device: str = "auto"
    dtype: str = "float32"
    cache: Literal["constant values", "symbolic values"] = "constant values"
    level: Literal["full", "compat"] = "full"
    caches: Literal["as found", "cold"] = "as found"
    seed: int = 0

    def problem(self) -> str | None:
        """Why these choices cannot be run here.

        Returns:
            A sentence for the user, or `None`.
        """
        if self.embd % self.heads:
            return f"--embd {self.embd} is not a multiple of --heads {self.heads}"
        if (self.embd // self.heads) % 8:
            return f"--embd over --heads is {self.embd // self.heads}, and has to be a multiple of 8"
        try:
            torch.empty(0, device=self.chosen_device())
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            return f"the device {self.device!r} cannot be used: {reason}"
        return None

    def chosen_device(self) -> str:
        """The device by name, with `"auto"` resolved."""
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a compiled result is from eager PyTorch.

    Attributes:
        what: The tensor that differs most.
        largest: The largest absolute difference.
        scale: The largest absolute value that eager PyTorch gives, over all tensors compared.
        tolerance: How much of the scale may be missed.
    """

    what: str
    largest: float
    scale: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance. False when it is not a number."""
        return self.largest <= self.tolerance * self.scale


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile of the program.

    Attributes:
        seconds: The time of the first call without the time that a second call takes, and without what
            recording the calls cost. The backward is compiled within it.
        records: Each call of dead code elimination in it.
    """

    seconds: float
    records: list[CallRecord]

    @property
    def elimination_seconds(self) -> float:
        """The time that dead code elimination took in it."""
        return sum(record.total_ns for record in self.records) / 1e9

    @property
    def share(self) -> float:
        """The part of the compile that dead code elimination took, between 0 and 1."""
        return self.elimination_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that the demo found.

    Attributes:
        options: What was asked for.
        title: The program.
        environment: Versions, device, executors, state of the garbage collector.
        outputs: The difference of the outputs.
        gradients: The difference of the gradients.
        stock: A compile with thunder's own pass.
        ours: A compile with the drop-in.
        compared: Each call of another compile with the drop-in in which thunder's pass ran on a copy of each
            trace.
    """

    options: DemoOptions
    title: str
    environment: dict[str, Any]
    outputs: Difference
    gradients: Difference
    stock: Compile
    ours: Compile
    compared: list[CallRecord]

    @property
    def numbers_agree(self) -> bool:
        """Whether outputs and gradients are within their tolerances."""
        return self.outputs.agrees and self.gradients.agrees

    @property
    def median_ratio(self) -> float | None:
        """The median over the calls of how many times longer thunder's pass takes on the same trace."""
        ratios = [record.ratio for record in self.compared if record.ratio is not None]
        return statistics.median(ratios) if ratios else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for `json.dumps`.

        Returns:
            A new dictionary.
        """
        return {
            "options": asdict(self.options),
            "program": self.title,
            "environment": self.environment,
            "numbers_agree": self.numbers_agree,
            "outputs": asdict(self.outputs),
            "gradients": asdict(self.gradients),
            "median_ratio": self.median_ratio,
            "stock": _compile_as_dict(self.stock),
            "ours": _compile_as_dict(self.ours),
            "compared": [record.as_dict() | {"ratio": record.ratio} for record in self.compared],
        }


def measure(options: DemoOptions, display: Display) -> Measurement:
    """Do the whole demo.

    Args:
        options: Sizes and choices.
        display: Where to show what is going on.

    Returns:
        What was found.

    Raises:
        ShapetraceError: The optimizer failed; the demo does not fall back to thunder's pass.
    """
    display.begin(_STEPS)
    with warnings.catch_warnings():
        # Thunder's remarks about executors that are not installed and about experimental options; ours stay.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"thunder\.")
        return _measure(options, display)


def _measure(options: DemoOptions, display: Display) -> Measurement:
    """`measure`, with the warnings in order."""
    device = options.chosen_device()
    with display.step("import thunder"):
        import thunder

    with display.step(f"build the model on {device}"):
        program = build_program(options, device)
        small = build_program(_warm_up_options(options), device)

    with display.step("forward and backward with eager PyTorch"):
        eager_output, eager_gradients = _forward_and_backward(program.function, program)

    with (
        display.step("compile a small model once, so that no measured compile pays for first use"),
        enabled(level=options.level, strict=True),
    ):
        _forward_and_backward(thunder.jit(small.function, cache=options.cache), small)

    with (
        display.step("compile with thunder's own pass") as tell,
        record_stock_calls(on_call=tell) as recording,
    ):
        stock, _ = _compile(thunder, program, options, recording, backward=False)

    with (
        display.step("compile with the drop-in; forward and backward") as tell,
        enabled(level=options.level, strict=True),
        record_calls(on_call=tell) as recording,
    ):
        ours, results = _compile(thunder, program, options, recording, backward=True)

    with (
        display.step("compile again, with both passes on each trace") as tell,
        enabled(level=options.level, strict=True),
        record_calls(compare=options.caches, on_call=tell) as recording,
        _without_garbage_collector(),
    ):
        compared, _ = _compile(thunder, program, options, recording, backward=False)

    tolerance = _TOLERANCES[options.dtype]
    output, gradients = results
    return Measurement(
        options=options,
        title=program.title,
        environment=_environment(device, thunder),
        outputs=_difference({"logits": output}, {"logits": eager_output}, tolerance),
        gradients=_difference(gradients, eager_gradients, tolerance),
        stock=stock,
        ours=ours,
        compared=compared.records,
    )


def _warm_up_options(options: DemoOptions) -> DemoOptions:
    """The same kind of program, as small as it can be."""
    return DemoOptions(
        architecture=options.architecture,
        layers=1,
        embd=32,
        heads=2,
        seq=8,
        vocab=64,
        batch=1,
        dtype=options.dtype,
        cache=options.cache,
    )


def _compile(
    thunder: Any, program: Program, options: DemoOptions, recording: Recording, *, backward: bool
) -> tuple[Compile, tuple[Any, dict[str, Any]]]:
    """Compile the program and time it; run a forward and a backward if wanted."""
    function = thunder.jit(program.function, cache=options.cache)
    # What an earlier compile left behind should not be collected at this one's expense.
    gc.collect()
    first = _seconds(lambda: function(*program.inputs))
    records, overhead = list(recording.records), recording.overhead_seconds
    second = _seconds(lambda: function(*program.inputs))
    results = _forward_and_backward(function, program) if backward else (None, {})
    return Compile(seconds=first - second - overhead, records=records), results


@contextmanager
def _without_garbage_collector() -> Iterator[None]:
    """Hold collections off, so that no single call pays for the garbage of all calls before it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _seconds(function: Callable[[], Any]) -> float:
    """The time of one call, with the device's work finished before and after."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _forward_and_backward(function: Callable[..., Any], program: Program) -> tuple[Any, dict[str, Any]]:
    """The logits, and the gradients of the cross entropy with the targets; leaves no gradients behind."""
    for parameter in program.parameters.values():
        parameter.grad = None
    logits = function(*program.inputs)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), program.targets.reshape(-1))
    loss.backward()
    gradients = {}
    for name, parameter in program.parameters.items():
        gradients[name] = None if parameter.grad is None else parameter.grad.detach().clone()
        parameter.grad = None
    return logits.detach(), gradients


def _difference(actual: dict[str, Any], expected: dict[str, Any], tolerance: float) -> Difference:
    """The largest difference over all tensors; a gradient that only one side has is infinitely far off."""
    what, largest, scale = "nothing", 0.0, 0.0
    for name, reference in expected.items():
        value = actual[name]
        if (reference is None) != (value is None):
            return Difference(name, float("inf"), scale, tolerance)
        if reference is None:
            continue
        distance = (value.double() - reference.double()).abs().max().item()
        scale = max(scale, reference.double().abs().max().item())
        # Once NaN has been found nothing is worse; a comparison with it is always false.
        if math.isnan(distance) or distance >= largest:
            what, largest = name, distance
    return Difference(what, largest, scale, tolerance)


def _environment(device: str, thunder: Any) -> dict[str, Any]:
    """What a reader has to know to compare the numbers with others."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "executors": [executor.name for executor in thunder.get_default_executors()],
        "garbage_collector": {"enabled": gc.isenabled(), "thresholds": list(gc.get_threshold())},
        "versions": {
            name: installed_version(name) for name in ("shapetrace-rs", "lightning-thunder", "torch", "litgpt")
        },
        "debug_interpreter": hasattr(sys, "gettotalrefcount"),
    }


def _compile_as_dict(compile_: Compile) -> dict[str, Any]:
    """One compile, ready for `json.dumps`."""
    return {
        "seconds": compile_.seconds,
        "elimination_seconds": compile_.elimination_seconds,
        "share": compile_.share,
        "calls": [record.as_dict() for record in compile_.records],
    }
