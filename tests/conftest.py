"""Fixtures that all Python tests share."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import shapetrace_rs

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import thunder
    import torch

from shapetrace_rs import _hooks, _state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# The package has functions with the names of these modules, so attribute access does not give the modules.
optimize_module: Any = importlib.import_module("shapetrace_rs.optimize")
transform_common: Any = importlib.import_module("thunder.core.transform_common")


@pytest.fixture(autouse=True)
def _nothing_installed() -> Iterator[None]:
    """Each test begins and ends without the drop-in, whatever it leaves behind."""
    shapetrace_rs.uninstall()
    _hooks.forget_causes()
    yield
    with _state.lock:
        while len(_state._frames) > 1:
            _state.remove_frame(_state.top_frame())
    shapetrace_rs.uninstall()
    assert transform_common.dce not in _hooks.HOOKS.values()


@pytest.fixture
def fail_optimizer(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """A function that lets every later call of the optimizer raise the given exception."""

    def arrange(error: BaseException) -> None:
        def run(trace: Any, needed_proxies: Any, options: Any) -> Any:
            del trace, options
            if needed_proxies is not None:
                needed_proxies.add("left behind by a failed attempt")
            # A new one each time: the test's own exception must not collect the frames of every call.
            raise type(error)(*error.args)

        monkeypatch.setattr(optimize_module, "run", run)

    return arrange


@pytest.fixture
def dead_code_trace() -> Any:
    """A trace with one dead op: two inputs, `add` that is returned, `mul` that is not."""
    from thunder.core import devices, dtypes, prims
    from thunder.core.proxies import TensorProxy
    from thunder.core.trace import TraceCtx, tracectx

    trace = TraceCtx()
    with tracectx(trace):
        left, right = (
            TensorProxy(name=name, shape=(2, 3), device=devices.cpu, dtype=dtypes.float32) for name in ("left", "right")
        )
        total = prims.add(left, right)
        prims.mul(left, right)
        prims.python_return(total)
    trace.args = (left, right)
    return trace


@pytest.fixture
def op_names() -> Callable[[Any], list[str]]:
    """A function that gives the names of a trace's top-level ops."""
    return lambda trace: [bsym.sym.name for bsym in trace.bound_symbols]


@pytest.fixture
def small_model() -> Any:
    """A module with parameters, a reshape and an unused result, so that there is dead code."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(6, 8)
            self.second = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            hidden = torch.nn.functional.gelu(self.first(x))
            torch.sin(hidden)
            return self.second(hidden.reshape(hidden.shape[0], -1, 4)).sum(dim=1)

    torch.manual_seed(0)
    return Model()


@pytest.fixture
def agrees_with_eager() -> Callable[..., None]:
    """A function that compiles a module and compares its output and all gradients with eager PyTorch."""

    def check(model: Any, *inputs: Any, **jit_options: Any) -> Any:
        expected = model(*inputs)
        expected_gradients = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
        compiled = thunder.jit(model, **jit_options)
        actual = compiled(*inputs)
        torch.testing.assert_close(actual, expected)
        actual_gradients = torch.autograd.grad(actual.square().sum(), list(model.parameters()))
        torch.testing.assert_close(actual_gradients, expected_gradients)
        return compiled

    return check


@pytest.fixture
def shapetrace(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs `python -m shapetrace_rs` with the given words, in the test's own directory."""

    def run(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "shapetrace_rs", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
