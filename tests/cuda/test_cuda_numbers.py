"""On the device: results and gradients are those of eager PyTorch, and one compile serves several shapes."""

from __future__ import annotations

from typing import Any

import pytest
import thunder
import torch
from cuda_cases import (
    CONSTANT,
    DROP_IN,
    EVERY_CASE,
    SHAPES,
    SYMBOLIC,
    TOLERANCES,
    Case,
    assert_agrees,
    batch,
    forward_and_backward,
)

import shapetrace_rs
from programs import PROGRAMS, results

SIZES = {"layers": 2, "embd": 64, "heads": 4, "seq": 24, "vocab": 128, "batch": 2}
SMALL = {"layers": 1, "embd": 32, "heads": 2, "seq": 24, "vocab": 64, "batch": 2}


@EVERY_CASE
def test_a_gpt_computes_what_eager_does(case: Case, device: str) -> None:
    """Logits and all gradients, for several shapes; with symbolic values, all of them from one compile."""
    case.skip_unless_possible(device)
    sizes = SMALL if device == "cpu" else SIZES
    program = case.build(device, **sizes)
    compiled = case.jit(program.function)
    # Compiles for every shape take time, and say nothing new.
    shapes = SHAPES if case.cache == SYMBOLIC else SHAPES[:1]
    before = shapetrace_rs.counters()
    with shapetrace_rs.enabled(**DROP_IN):
        for seed, shape in enumerate((*shapes, shapes[0]), 1):
            arguments, targets = batch(program, shape, sizes["vocab"], seed)
            actual = forward_and_backward(compiled, program, arguments, targets)
            expected = forward_and_backward(program.function, program, arguments, targets)
            assert_agrees(actual, expected, TOLERANCES[case.dtype])
    after = shapetrace_rs.counters()
    assert after.calls > before.calls
    assert after.fallbacks == before.fallbacks
    assert thunder.cache_misses(compiled) == 1
    assert thunder.cache_hits(compiled) == len(shapes)
    for traces in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled)):
        assert shapetrace_rs.verify(traces[-1]) == []


@pytest.mark.parametrize("cache", [CONSTANT, SYMBOLIC])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("transformer")])
def test_programs_compute_what_eager_does(name: str, cache: str, device: str) -> None:
    """The conformance programs, with thunder's default executors, and gradients where they have any."""
    program = PROGRAMS[name]
    torch.manual_seed(0)
    steps = range(3) if cache == SYMBOLIC else range(1)
    compiled = thunder.jit(program.function, cache=cache)
    for step in steps:
        inputs = [_moved(value, device) for value in program.inputs(step)]
        with shapetrace_rs.enabled(**DROP_IN):
            actual = results(compiled, inputs)
        for value, expected in zip(actual, results(program.function, inputs), strict=True):
            assert value.device == expected.device
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)
    assert thunder.cache_misses(compiled) == 1
    assert thunder.cache_hits(compiled) == len(steps) - 1


def _moved(value: Any, device: str) -> Any:
    """A tensor on the device that is a leaf there."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(device).requires_grad_(value.requires_grad)
