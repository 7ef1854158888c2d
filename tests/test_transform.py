"""`OptimizeTransform`: the optimizer for one compiled function."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch
from thunder.core import prims
from thunder.core.trace import from_trace
from thunder.core.transform_common import Transform

import shapetrace_rs
from shapetrace_rs import OptimizeTransform

if TYPE_CHECKING:
    from collections.abc import Callable


def uses_after_deletion(trace: Any) -> list[str]:
    """The names that a trace uses behind the `del` of them."""
    deleted: set[str] = set()
    found = []
    for bsym in trace.bound_symbols:
        found += [proxy.name for proxy in bsym.flat_proxy_args if proxy.name in deleted]
        if bsym.sym.id is prims.PrimIDs.DEL:
            deleted.update(proxy.name for proxy in bsym.flat_proxy_args)
    return found


def queried(x: Any, y: Any) -> Any:
    """A function whose symbolic trace is full of shape queries."""
    flat = x.reshape(x.shape[0], -1)
    return torch.sin(flat).reshape(-1, x.shape[1]) + y


def compiled_symbolic(transforms: list[Any]) -> Any:
    """`queried`, compiled with symbolic values, without thunder's remark that this is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return thunder.jit(queried, cache="symbolic values", transforms=transforms)


@pytest.mark.parametrize("level", ["full", "compat"])
def test_forward_and_gradients_agree_with_eager(
    small_model: Any, agrees_with_eager: Callable[..., Any], level: Any
) -> None:
    """Protects the numbers, with autograd, and the `del` statements of forward and backward."""
    compiled = agrees_with_eager(
        small_model, torch.randn(5, 6), transforms=[OptimizeTransform(level=level, strict=True)]
    )
    for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
        assert uses_after_deletion(trace) == []


def test_without_gradients(small_model: Any) -> None:
    """Protects compiles that have no backward trace."""
    small_model.requires_grad_(requires_grad=False)
    inputs = torch.randn(5, 6)
    compiled = thunder.jit(small_model, transforms=[OptimizeTransform(strict=True)])
    torch.testing.assert_close(compiled(inputs), small_model(inputs))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_symbolic_values(requires_grad: bool) -> None:
    """Protects the removal of shape queries from final traces: new `del`s, right numbers, other sizes."""
    compiled = compiled_symbolic([OptimizeTransform(strict=True)])
    for size in (4, 7):
        x = torch.randn(size, 6, requires_grad=requires_grad)
        y = torch.randn(size, 6, requires_grad=requires_grad)
        actual, expected = compiled(x, y), queried(x, y)
        torch.testing.assert_close(actual, expected)
        if requires_grad:
            torch.testing.assert_close(
                torch.autograd.grad(actual.sum(), (x, y)), torch.autograd.grad(expected.sum(), (x, y))
            )
    assert uses_after_deletion(thunder.last_traces(compiled)[-1]) == []


def test_it_works_together_with_the_drop_in(small_model: Any, agrees_with_eager: Callable[..., Any]) -> None:
    """Protects programs that use both ways at once."""
    with shapetrace_rs.enabled(strict=True):
        agrees_with_eager(small_model, torch.randn(5, 6), transforms=[OptimizeTransform(strict=True)])


def test_it_works_on_the_three_first_traces(dead_code_trace: Any, op_names: Callable[[Any], list[str]]) -> None:
    """Protects the computation before autograd, and programs that have no epilogue."""
    before = op_names(dead_code_trace)
    prologue, computation, epilogue = OptimizeTransform(strict=True).transform_traces_pre_prologue(
        dead_code_trace, dead_code_trace, None, executors_list=()
    )
    assert "mul" not in op_names(computation)
    assert "mul" not in op_names(prologue)
    assert epilogue is None
    assert op_names(dead_code_trace) == before


def with_deletions(trace: Any) -> Any:
    """A copy of a trace with `del` statements, as executors get it."""
    return thunder.executors.passes.del_last_used(trace)


def test_dead_code_in_a_final_trace_goes_with_its_del(
    dead_code_trace: Any, op_names: Callable[[Any], list[str]]
) -> None:
    """Protects against a `del` that keeps a dead op alive, and against one of a value that is gone."""
    final = with_deletions(dead_code_trace)
    assert "mul" in op_names(final)
    optimized = OptimizeTransform(strict=True).transform_trace_post_optimization(final)
    assert op_names(optimized)[-1] == "python_return"
    assert "mul" not in op_names(optimized)
    made = {proxy.name for proxy in dead_code_trace.args}
    for bsym in optimized.bound_symbols:
        if bsym.sym.id is prims.PrimIDs.DEL:
            assert {proxy.name for proxy in bsym.flat_proxy_args} <= made
        made.update(proxy.name for proxy in bsym.flat_proxy_outs)


def test_a_clean_final_trace_is_handed_back(dead_code_trace: Any) -> None:
    """Protects against traces that are rebuilt, and listed among the traces of a compile, for nothing."""
    transform = OptimizeTransform(strict=True)
    clean, _, _ = transform.transform_traces_pre_prologue(dead_code_trace, dead_code_trace, None)
    final = with_deletions(clean)
    assert transform.transform_trace_post_optimization(final) is final


def test_compat_leaves_final_traces_alone(dead_code_trace: Any) -> None:
    """Protects ops without results that thunder's pass, and so this level, would drop."""
    final = with_deletions(dead_code_trace)
    assert OptimizeTransform(level="compat").transform_trace_post_optimization(final) is final


@pytest.mark.parametrize("level", ["full", "compat"])
def test_ops_for_profiling_survive(level: Any) -> None:
    """Protects what an earlier transform put into the final trace: ops without results or tags."""
    executor = thunder.extend.OperatorExecutor(f"profiling_for_{level}")
    seen: list[str] = []
    mark = executor.register_operator(f"mark_for_{level}", meta=lambda _: None, fn=seen.append)

    class Marking(Transform):  # type: ignore[misc]
        def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
            del kwargs
            marked = from_trace(computation_trace)
            marked.bound_symbols = [mark.bind("begin", output=None), *computation_trace.bound_symbols]
            return marked

    compiled = thunder.jit(torch.sin, executors=[executor], transforms=[Marking(), OptimizeTransform(level=level)])
    compiled(torch.ones(2))
    assert seen == ["begin"]


def test_a_failure_leaves_the_traces_as_they_are(dead_code_trace: Any, fail_optimizer: Callable[..., None]) -> None:
    """Protects the compile when the optimizer fails, with a warning for the user."""
    fail_optimizer(RuntimeError("injected"))
    final = with_deletions(dead_code_trace)
    transform = OptimizeTransform()
    with pytest.warns(shapetrace_rs.ShapetraceWarning, match="RuntimeError: injected"):
        traces = transform.transform_traces_pre_prologue(dead_code_trace, dead_code_trace, dead_code_trace)
    assert all(trace is dead_code_trace for trace in traces)
    assert transform.transform_trace_post_optimization(final) is final


def test_strict_raises(dead_code_trace: Any, fail_optimizer: Callable[..., None]) -> None:
    """Protects users who want to know about failures."""
    fail_optimizer(RuntimeError("injected"))
    with pytest.raises(RuntimeError, match="injected"):
        OptimizeTransform(strict=True).transform_traces_pre_prologue(dead_code_trace, dead_code_trace, None)


def test_options_are_checked_and_shown() -> None:
    """Protects against options that are misspelt, and shows the others in thunder's list of transforms."""
    with pytest.raises(TypeError):
        OptimizeTransform(levle="full")
    assert "compat" in repr(OptimizeTransform(level="compat"))
