"""Where names in a trace file may be looked up: modules that are loaded already, and of these only a few."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .. import _thunder

__all__ = ["attribute_of", "is_open_module", "tensor_defaults"]

_OPEN_MODULES = ("builtins", "torch", "torch.nn.parameter", "torch._C", "types", "collections")
"""Modules beside thunder's own whose classes a file may name."""


def is_open_module(name: str) -> bool:
    """Whether a file may name something in a module.

    Args:
        name: The full name of the module.

    Returns:
        `True` for thunder and its modules, its tests left out, and for a few of Python's and PyTorch's.
    """
    return name in _OPEN_MODULES or (
        (name == "thunder" or name.startswith("thunder.")) and not name.startswith("thunder.tests")
    )


def attribute_of(module: str, name: str) -> Any:
    """Something in a module that is loaded; nothing is imported.

    Args:
        module: The full name of the module.
        name: The attribute, dotted for one inside a class.

    Returns:
        The object, or `None` if there is none.
    """
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # Not `getattr`: a module may answer to any name by importing something.
        found = getattr(found, "__dict__", {}).get(part)
    return found


@functools.cache
def tensor_defaults(kind: type) -> dict[str, Any]:
    """The attributes of a class of proxies that are almost always the same, with what they are.

    Args:
        kind: A class of `thunder.core.proxies`.

    Returns:
        What is left out of a file where it holds, in the order in which it is set again.
    """
    proxies = _thunder.modules().proxies
    usual: dict[str, Any] = {"_has_weak_name": True, "history": None}
    if issubclass(kind, (proxies.TensorProxy, proxies.FutureTensorProxy)):
        usual["_requires_grad"] = False
    if issubclass(kind, proxies.TensorProxy):
        usual.update(_grad=None, _distparallel_type=proxies.DistParallelType.NONE, _thunder_fsdp_padding_size=None)
    return usual
