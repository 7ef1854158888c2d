"""Compiles the programs for nvFuser, each of them once."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

from nvfuser_harness import compile_passes

import shapetrace_rs
from cuda_programs import PROGRAMS
from fake_cuda import Compiled


def compile_program(name: str, *, cache: str, grad: bool, drop_in: dict[str, Any] | None = None) -> Compiled:
    """Compile one of the programs, once for all tests that look at it; what the drop-in made is checked.

    Args:
        name: Which of `PROGRAMS`.
        cache: Thunder's cache option.
        grad: Whether to compute gradients, of a function's arguments or of a module's parameters.
        drop_in: The options of the drop-in; thunder's own dead code elimination without.

    Returns:
        All traces.
    """
    return _compile(name, cache, grad, None if drop_in is None else tuple(drop_in.items()))


@functools.cache
def _compile(name: str, cache: str, grad: bool, drop_in: tuple[tuple[str, Any], ...] | None) -> Compiled:
    program = PROGRAMS[name]
    function, args = program.build()
    if program.is_module and not grad:
        function.requires_grad_(requires_grad=False)
    with nullcontext() if drop_in is None else shapetrace_rs.enabled(**dict(drop_in)):
        compiled = compile_passes(function, args, cache=cache, grad=grad)
    if drop_in is not None:
        compiled.check()
    return compiled
