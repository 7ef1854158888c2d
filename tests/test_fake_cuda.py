"""Programs for a GPU, compiled without one: thunder's passes for CUDA tensors and the executors of torch."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest
import thunder
import torch
from thunder.core.proxies import TensorProxy

import cuda_programs
import shapetrace_rs
from fake_cuda import CONSTANT, DEVICE, DROP_IN, SYMBOLIC, Compiled, compile_passes, cuda, fake
from programs import PROGRAMS, STOCK_FAILS
from shapetrace_rs._opening import one_fuses
from trace_tools import op_names, queries, total, walk

CACHES = (CONSTANT, SYMBOLIC)


# One of a kind each: the group for nvFuser has all of them, and thunder takes seconds for the large ones.
FUNCTIONS = ("normalize", "known_reshape", "attention")
CONFORMANCE = sorted(set(PROGRAMS) - {"transformer", "transformer, forward"})
SMALL = ("softmax", "embedding", "by a number")


def _cases() -> list[Any]:
    """Programs with cache options and gradients, as far as they have any."""
    cases = [(name, SYMBOLIC, True) for name in FUNCTIONS]
    cases += [("mlp module", CONSTANT, True)]
    cases += [(f"conformance: {name}", cache, "forward" not in name) for name in CONFORMANCE for cache in CACHES]
    return [
        pytest.param(name, cache, grad, id=f"{name}, {cache}{', gradients' if grad else ''}")
        for name, cache, grad in cases
    ]


CASES = pytest.mark.parametrize(("name", "cache", "grad"), _cases())


def _build(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A program and its arguments, on a GPU."""
    _, is_conformance, short = name.rpartition("conformance: ")
    if not is_conformance:
        return cuda_programs.PROGRAMS[name].build()
    program = PROGRAMS[short]
    return program.function, tuple(fake(v) if isinstance(v, torch.Tensor) else v for v in program.inputs(0))


@functools.cache
def _compiled(name: str, cache: str, grad: bool, level: str | None) -> Compiled:
    """A program compiled by thunder alone or with the drop-in at a level; what the drop-in made is checked."""
    function, args = _build(name)
    if isinstance(function, torch.nn.Module) and not grad:
        function.requires_grad_(requires_grad=False)
    with nullcontext() if level is None else shapetrace_rs.enabled(level=level, strict=True):
        return compile_passes(function, args, cache=cache, grad=grad)


def _tensors(trace: Any) -> list[Any]:
    """All tensors of a trace."""
    return [p for op in walk(trace) for p in (*op.flat_proxy_args, *op.flat_proxy_outs) if isinstance(p, TensorProxy)]


@CASES
def test_traces_are_well_formed(name: str, cache: str, grad: bool) -> None:
    """All traces of a compile for a GPU pass thunder's checker, and those that would run the verifier."""
    _check(_compiled(name, cache, grad, "full"), grad)


def test_a_transformer_is_well_formed() -> None:
    """The largest of the programs, with all there is: symbolic values and gradients."""
    _check(_compiled("conformance: transformer", SYMBOLIC, True, "full"), True)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", SMALL)
def test_traces_are_well_formed_at_level_compat(name: str, cache: str) -> None:
    """The other level as well."""
    _check(_compiled(f"conformance: {name}", cache, True, "compat"), True)


def _check(compiled: Compiled, grad: bool) -> None:
    assert bool(compiled.backward) == grad
    compiled.check()
    for trace in compiled.final:
        assert {tensor.device.device_str() for tensor in _tensors(trace)} == {DEVICE}


@CASES
def test_nothing_but_numbers_goes(name: str, cache: str, grad: bool) -> None:
    """What would run on the GPU is what thunder alone would run there, less queries and arithmetic on numbers."""
    if grad and cache == SYMBOLIC and name.removeprefix("conformance: ") in STOCK_FAILS:
        with pytest.raises(RuntimeError, match="Detected a cycle"):
            _compiled(name, cache, grad, None)
        return
    stock, ours = _compiled(name, cache, grad, None), _compiled(name, cache, grad, "full")
    for ours_final, stock_final in zip(ours.final, stock.final, strict=True):
        assert _kernels(ours_final) == _kernels(stock_final)
        assert total(ours_final) <= total(stock_final)
        assert queries(ours_final) <= queries(stock_final)


@pytest.mark.parametrize("name", CONFORMANCE)
def test_a_gpu_is_no_other_program_than_a_cpu(name: str) -> None:
    """With symbolic values, the same ops run on the same shapes as on a CPU, where other tests see them run."""
    grad = "forward" not in name
    on_gpu = _compiled(f"conformance: {name}", SYMBOLIC, grad, "full")
    with shapetrace_rs.enabled(**DROP_IN):
        on_cpu = compile_passes(PROGRAMS[name].function, PROGRAMS[name].inputs(0), cache=SYMBOLIC, grad=grad)
    for gpu, cpu in zip(on_gpu.final, on_cpu.final, strict=True):
        assert _kernels(gpu) == _kernels(cpu)


def test_composites_stay_closed_unless_something_may_be_fused() -> None:
    """With a GPU, thunder's defaults have an executor that fuses around a cross entropy, and nothing without one."""

    def halves(x: Any) -> Any:
        first, second = x.reshape(x.shape[0], -1).chunk(2, -1)
        return first * second

    def loss(x: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy(halves(x), target)

    assert [executor.name for executor in thunder.get_default_executors() if one_fuses([executor])]
    x, target = cuda(4, 2, 6), cuda(4, dtype=torch.int64)
    with shapetrace_rs.enabled(**DROP_IN):
        without = compile_passes(halves, (x,), cache=SYMBOLIC)
        around = compile_passes(loss, (x, target), cache=SYMBOLIC)
    closed = {"reshape", "chunk"}
    assert closed <= set(op_names(without.final[0]))
    assert not closed & set(op_names(around.final[0]))
    assert not shapetrace_rs.verify(around.final[0])


SCRIPT = """
import re, warnings

warnings.simplefilter("ignore")
import shapetrace_rs
from cuda_programs import PROGRAMS
from fake_cuda import DROP_IN, SYMBOLIC, compile_passes

with shapetrace_rs.enabled(**DROP_IN):
    compiled = compile_passes(*PROGRAMS["normalize"].build(), cache=SYMBOLIC, grad=True)
for trace in (*compiled.prologue, *compiled.forward, *compiled.backward):
    print(re.sub(r"\\(took [^)]*\\)", "", str(trace)))
"""
"""Prints the traces of a compile, less the times that the passes took."""


def test_the_traces_are_the_same_in_each_process() -> None:
    """Neither hash seeds nor addresses have a say in what is compiled: all traces read the same in two processes."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert first.count("# Constructed by ") > 5
    assert "def backward" in first
    assert first == second


def test_nothing_is_left_behind() -> None:
    """A compile for a GPU that is not there leaves torch as it was."""
    before = (torch.cuda.is_available, torch.backends.cuda.can_use_flash_attention)
    compile_passes(*_build("attention"))
    assert (torch.cuda.is_available, torch.backends.cuda.can_use_flash_attention) == before


def _kernels(trace: Any) -> list[Any]:
    """The ops of the top level that make a tensor, in their order, with the shapes of what they take and make."""
    return [
        (op.sym.name, *map(_shape, (*op.flat_proxy_args, *op.flat_proxy_outs)))
        for op in trace.bound_symbols
        if any(isinstance(out, TensorProxy) for out in op.flat_proxy_outs) and not op.sym.name.startswith("unpack")
    ]


def _shape(proxy: Any) -> Any:
    """The shape of a tensor, with what its numbers were when the trace was made; nothing of a number."""
    return isinstance(proxy, TensorProxy) and [getattr(size, "value", size) for size in proxy._shape]
