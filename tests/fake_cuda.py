"""Compiles programs for a GPU on a machine without one.

Tensors are fake: they say that they are on a GPU, and have no memory. A compile runs all of thunder's passes, code
generation and the function that checks and unpacks the arguments, and ends where the compiled function would be called.
Traces that are made so are the same from process to process. Nothing is changed for good: what has to be answered
without a GPU is answered for the length of a compile.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import thunder
import torch
from thunder.core.proxies import TensorProxy
from thunder.dev_utils.check_trace import check_trace
from torch._subclasses.fake_tensor import FakeTensorMode

import shapetrace_rs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEVICE = "cuda:0"
CONSTANT = "constant values"
SYMBOLIC = "symbolic values"
DROP_IN = {"level": "full", "strict": True}


@contextmanager
def _no_fused_attention() -> Iterator[None]:
    """Let torch answer, without looking for a GPU, that none of its fused attention kernels can be used."""
    with (
        mock.patch.object(torch.backends.cuda, "can_use_flash_attention", return_value=False),
        mock.patch.object(torch.backends.cuda, "can_use_efficient_attention", return_value=False),
    ):
        yield


def cuda(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A tensor that says it is on a GPU and has no memory.

    Args:
        *shape: Its shape.
        dtype: Its data type.
        grad: Whether it requires a gradient.

    Returns:
        A fake tensor, contiguous.
    """
    return fake(torch.empty(shape, dtype=dtype, device="meta")).requires_grad_(requires_grad=grad)


def cuda_module(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A module whose parameters and buffers say they are on a GPU.

    Args:
        make: Makes the module; called with the meta device as the default.

    Returns:
        The module.
    """
    with torch.device("meta"):
        module = make()
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            made = torch.nn.Parameter(fake(parameter), requires_grad=parameter.requires_grad)
            part.register_parameter(name, made)
        for name, buffer in list(part.named_buffers(recurse=False)):
            part.register_buffer(name, fake(buffer), persistent=name not in part._non_persistent_buffers_set)
    return module


def fake(tensor: torch.Tensor) -> torch.Tensor:
    """What another tensor would be on a GPU: of the same shape, strides and type, without memory.

    Args:
        tensor: The other tensor.

    Returns:
        A fake tensor, which requires a gradient if the other one does.
    """
    with FakeTensorMode():
        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=DEVICE)
    return made.requires_grad_(tensor.requires_grad)


@dataclass(frozen=True)
class Fusions:
    """What a fusion executor made of a program.

    Attributes:
        count: How many fusions.
        ops: How many ops they contain, all together.
    """

    count: int
    ops: int


def _check(trace: Any) -> None:
    """Let thunder check a trace, and add to its complaint which one it is about."""
    try:
        check_trace(trace)
    except AssertionError as error:
        message = f"{trace.get_provenance()}: {error}"
        raise AssertionError(message) from error


def _makes_tensor(bsym: Any) -> bool:
    """Whether an op makes a tensor, rather than unpacking one."""
    given = {proxy.name for proxy in bsym.flat_proxy_args}
    return not bsym.sym.name.startswith("unpack") and any(
        isinstance(out, TensorProxy) and out.name not in given for out in bsym.flat_proxy_outs
    )


@dataclass(frozen=True)
class Compiled:
    """The traces of one compile.

    Attributes:
        forward: The computation's traces, from the first to the one that would run.
        backward: The same for the gradients; empty without.
        prologue: The traces of the function that checks and unpacks the arguments.
    """

    forward: Sequence[Any]
    backward: Sequence[Any]
    prologue: Sequence[Any]

    @property
    def final(self) -> list[Any]:
        """The trace that would run forward, and the one that would run backward if there is one."""
        return [traces[-1] for traces in (self.forward, self.backward) if traces]

    @property
    def fusions(self) -> list[Any]:
        """The bound symbols of all fusions, forward and backward."""
        return [bsym for trace in self.final for bsym in trace.bound_symbols if bsym.sym.is_fusion]

    @property
    def counts(self) -> Fusions:
        """How many fusions with how many ops, forward and backward together."""
        return Fusions(len(self.fusions), sum(len(fusion.subsymbols) for fusion in self.fusions))

    @property
    def launches(self) -> int:
        """How many ops of the final traces make a tensor: each fusion is one, and so is each op outside of fusions."""
        return sum(_makes_tensor(bsym) for trace in self.final for bsym in trace.bound_symbols)

    def check(self) -> None:
        """Let thunder check every trace, forward and backward, and the verifier those that would run.

        Raises:
            AssertionError: A trace is broken.
        """
        for trace in (*self.forward, *self.backward):
            _check(trace)
        for trace in self.final:
            findings = shapetrace_rs.verify(trace)
            assert not findings, "\n".join(map(str, findings))


def compile_passes(
    function: Any, args: Sequence[Any], *, cache: str = CONSTANT, grad: bool = False, **options: Any
) -> Compiled:
    """Compile a function or module, and run nothing but the function that unpacks the arguments.

    Args:
        function: What to compile.
        args: Its arguments: fake tensors, modules' inputs, numbers.
        cache: Thunder's cache option.
        grad: Whether the floating point arguments require gradients. A module's parameters say so themselves.
        **options: More keyword arguments of `thunder.jit`, such as `executors`.

    Returns:
        All traces.
    """
    if grad:
        args = [_with_grad(argument) for argument in args]
    with _no_fused_attention():
        compiled = thunder.jit(function, cache=cache, **options)
        thunder.compile_data(compiled).get_computation_and_inputs(*args)
    return Compiled(
        forward=list(thunder.last_traces(compiled)),
        backward=list(thunder.last_backward_traces(compiled) or ()),
        prologue=list(thunder.last_prologue_traces(compiled)),
    )


def _with_grad(argument: Any) -> Any:
    """An argument that requires a gradient, if it can have one."""
    if isinstance(argument, torch.Tensor) and argument.dtype.is_floating_point:
        return argument.detach().requires_grad_()
    return argument
