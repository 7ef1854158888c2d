"""Runs the passes of thunder's nvFuser executor, with the real nvFuser package, on a machine without a GPU.

The executor asks the package for its version, for its data types and, when a kernel is about to run, for everything
else. No kernel runs here: tensors are fake, and a compile ends where thunder would call the compiled function. So
the package need not find a GPU, and thunder need only believe for a moment that there is one.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

import fake_cuda
import shapetrace_rs
from fake_cuda import DROP_IN, Compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def compile_passes(function: Any, args: Sequence[Any], **options: Any) -> Compiled:
    """Compile a function or module for nvFuser; see `fake_cuda.compile_passes`.

    Args:
        function: What to compile.
        args: Its arguments.
        **options: Keyword arguments of `fake_cuda.compile_passes`.

    Returns:
        All traces.
    """
    return fake_cuda.compile_passes(function, args, executors=[nvfuser_executor()], **options)


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
