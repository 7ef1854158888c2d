"""Runs the passes of thunder's nvFuser executor, with the real nvFuser package, on a machine without a GPU.

The executor asks the package for its version, for its data types and, when a kernel is about to run, for everything
else. No kernel runs here: tensors are fake, and a compile ends where thunder would call the compiled function. So
the package need not find a GPU, and thunder need only believe for a moment that there is one.
"""

from __future__ import annotations

import functools
import importlib
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
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

# What thunder imports from the package for programs on several devices, which do not occur here.
_ONLY_FOR_MANY_DEVICES = ("multidevice", "execute_with_dtensors")


class NvFuserMissingError(Exception):
    """There is no nvFuser here that the harness could use; the message says why."""


@functools.cache
def nvfuser_executor() -> Any:
    """Thunder's nvFuser executor.

    On a machine with a GPU it is the one that thunder has made. Elsewhere thunder's two modules are imported around
    the older one of nvFuser's two Python modules, which can be imported without a driver; the newer cannot.

    Returns:
        The executor, whose passes can be run.

    Raises:
        NvFuserMissingError: No nvFuser package is installed, or not one that can be imported.
    """
    detection = importlib.import_module("thunder.executors.nvfuserex")
    if detection.nvfuserex is not None:
        return detection.nvfuserex
    try:
        package = importlib.import_module("nvfuser")
    except (ImportError, OSError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        message = f"the module nvfuser cannot be imported ({type(error).__name__}: {first_line})"
        raise NvFuserMissingError(message) from error
    if getattr(package, "__file__", None) is None:
        # The directory of these tests has the same name, and an import takes it for a package without contents.
        message = "nvFuser is not installed"
        raise NvFuserMissingError(message)
    for name in _ONLY_FOR_MANY_DEVICES:
        if not hasattr(package, name):
            setattr(package, name, SimpleNamespace())
    sys.modules["nvfuser_direct"] = package
    with mock.patch.object(torch.cuda, "is_available", return_value=True):
        detection = importlib.reload(detection)
        pinned = detection.nvfuser_version()
    if detection.nvfuserex is None:
        message = f"thunder does not accept nvFuser {package.version()}"
        raise NvFuserMissingError(message)
    implementation = importlib.import_module("thunder.executors.nvfuserex_impl")
    # Both modules ask for the version again at each compile, and it depends on whether there is a GPU.
    for module in (detection, implementation):
        module.nvfuser_version = lambda: pinned
    return detection.nvfuserex


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
    return _fake(torch.empty(shape, dtype=dtype, device="meta")).requires_grad_(requires_grad=grad)


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
            fake = torch.nn.Parameter(_fake(parameter), requires_grad=parameter.requires_grad)
            part.register_parameter(name, fake)
        for name, buffer in list(part.named_buffers(recurse=False)):
            part.register_buffer(name, _fake(buffer), persistent=name not in part._non_persistent_buffers_set)
    return module


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor on a GPU with the shape, strides and type of another tensor."""
    with FakeTensorMode():
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=DEVICE)


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
        """Let thunder check every trace, forward and backward.

        Raises:
            AssertionError: A trace is broken.
        """
        for trace in (*self.forward, *self.backward):
            _check(trace)


def compile_passes(
    function: Any, args: Sequence[Any], *, cache: str = CONSTANT, grad: bool = False, **options: Any
) -> Compiled:
    """Compile a function or module for nvFuser, and run nothing but the function that unpacks the arguments.

    Args:
        function: What to compile.
        args: Its arguments: fake tensors, modules' inputs, numbers.
        cache: Thunder's cache option.
        grad: Whether the floating point arguments require gradients. A module's parameters say so themselves.
        **options: More keyword arguments of `thunder.jit`.

    Returns:
        All traces.
    """
    if grad:
        args = [_with_grad(argument) for argument in args]
    options.setdefault("executors", [nvfuser_executor()])
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


def compile_both(
    function: Any, args: Sequence[Any], *, drop_in: dict[str, Any] | None = None, **options: Any
) -> tuple[Compiled, Compiled]:
    """Compile with thunder's own dead code elimination, and then with the drop-in.

    Args:
        function: What to compile.
        args: Its arguments.
        drop_in: The options of the drop-in.
        **options: Keyword arguments of `compile_passes`.

    Returns:
        What came of the first and of the second.
    """
    stock = compile_passes(function, args, **options)
    with shapetrace_rs.enabled(**(DROP_IN | (drop_in or {}))):
        ours = compile_passes(function, args, **options)
    return stock, ours
