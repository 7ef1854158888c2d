"""Opening composites for fusion executors, with an executor that fuses anything elementwise, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import thunder
import torch
from thunder.core import prims
from thunder.dev_utils.check_trace import check_trace
from thunder.executors import passes
from thunder.extend import FusionExecutor

import shapetrace_rs
from shapetrace_rs._opening import one_fuses, open_composites


class ElementwiseFuser(FusionExecutor):
    """Would fuse every primitive but queries and arithmetic on numbers, and composites of nothing else; keeps a count.

    It refuses a composite with a shape query inside, as nvFuser does. Nothing is fused in the end.
    """

    def __init__(self) -> None:
        super().__init__("elementwise_fuser_of_the_tests", version="1")
        self.seen: list[Any] = []

    def can_fuse(self, bound_symbol: Any) -> bool:
        """Whether the executor would take an op."""
        if bound_symbol.sym.id in {prims.PrimIDs.SHAPE, prims.PrimIDs.RETURN} or bound_symbol.sym.executor is not None:
            return False
        if not any(isinstance(output, thunder.TensorProxy) for output in bound_symbol.flat_proxy_outs):
            return False
        if bound_symbol.sym.is_prim:
            return True
        return len(bound_symbol.subsymbols) > 0 and all(map(self.can_fuse, bound_symbol.subsymbols))

    def get_execution_transform(self, bound_symbol: Any) -> None:
        """There is none: an op that it would fuse stays as it is."""
        del bound_symbol

    def fusion_pass(self, trace: Any) -> Any:
        """See what is there, and leave it to the other executors."""
        self.seen.append(trace)
        return trace


def executors() -> list[Any]:
    """Those that thunder uses by default."""
    return [*thunder.get_default_executors(), *thunder.get_always_executors()]


@pytest.fixture
def fuser() -> ElementwiseFuser:
    return ElementwiseFuser()


def normalized(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A softmax whose shape query is live."""
    return ((x * w) + 1).softmax(-1)


def names(trace: Any) -> list[str]:
    return [op.sym.name for op in trace.bound_symbols]


def test_a_softmax_is_opened_and_its_numbers_come_from_an_input(fuser: ElementwiseFuser) -> None:
    """Protects what the pass is for: nothing but fusible ops between the query of an input and the return."""
    compiled = thunder.jit(normalized, cache="symbolic values", executors=[fuser, *executors()])
    with shapetrace_rs.enabled(strict=True):
        # All passes, without running the result: what was to be fused would have to be.
        thunder.compile_data(compiled).get_computation_and_inputs(torch.randn(3, 8), torch.randn(8))
    (seen,) = fuser.seen
    assert not any("softmax" in name for name in names(seen))
    (query,) = [op for op in seen.bound_symbols if op.sym.name == "shape"]
    assert query.args[0].name == "x"
    check_trace(seen)


def test_gradients_are_those_of_eager(fuser: ElementwiseFuser) -> None:
    """Protects the backward: ops that are opened there stay backward ops."""
    compiled = thunder.jit(normalized, cache="symbolic values", executors=[fuser, *executors()])
    for rows, columns in ((3, 8), (5, 6)):
        x, w = torch.randn(rows, columns, requires_grad=True), torch.randn(columns, requires_grad=True)
        weights = torch.randn(rows, columns)
        with shapetrace_rs.enabled(strict=True):
            actual = torch.autograd.grad((compiled(x, w) * weights).sum(), (x, w))
        expected = torch.autograd.grad((normalized(x, w) * weights).sum(), (x, w))
        torch.testing.assert_close(actual, expected)


def test_nothing_is_opened_without_a_fusion_executor_or_when_switched_off(fuser: ElementwiseFuser) -> None:
    """Protects programs without fusions: their softmax stays one op of torch's."""
    x, w = torch.randn(3, 8), torch.randn(8)
    with shapetrace_rs.enabled(strict=True):
        plain = thunder.jit(normalized, cache="symbolic values")
        plain(x, w)
    assert any("softmax" in name for name in names(thunder.last_traces(plain)[-1]))
    with shapetrace_rs.enabled(strict=True, open_composites=False):
        closed = thunder.jit(normalized, cache="symbolic values", executors=[fuser, *executors()])
        closed(x, w)
    assert any("softmax" in name for name in names(fuser.seen[-1]))
    assert one_fuses([fuser])
    assert not one_fuses(thunder.get_always_executors())


def traced(function: Any, *arguments: Any) -> Any:
    """The trace that thunder gives to its executors, by the optimizer."""
    compiled = thunder.jit(function, cache="symbolic values")
    with torch.no_grad():
        compiled(*arguments)
    cleaned = [t for t in thunder.last_traces(compiled) if "Dead Code" in str(t.get_provenance())]
    return shapetrace_rs.optimize(cleaned[0])


def test_the_input_trace_is_untouched_and_the_result_is_well_formed(fuser: ElementwiseFuser) -> None:
    """Protects the promise that no trace that was passed in is written to."""
    trace = traced(normalized, torch.randn(3, 8), torch.randn(8))
    before = [(op, list(op.subsymbols), set(op.tags)) for op in trace.bound_symbols]
    opened = open_composites(trace, [fuser, *executors()])
    assert opened is not trace
    assert [(op, list(op.subsymbols), set(op.tags)) for op in trace.bound_symbols] == before
    result = shapetrace_rs.optimize(opened)
    check_trace(result)
    assert shapetrace_rs.verify(result, optimized=True) == []
    assert open_composites(result, [fuser, *executors()]) is result


def test_what_another_executor_claims_first_stays_closed(fuser: ElementwiseFuser) -> None:
    """Protects the order of executors: an op that comes before the fusion executor's turn is not ours to open."""
    trace = traced(normalized, torch.randn(3, 8), torch.randn(8))
    assert open_composites(trace, [*executors(), fuser]) is trace


def test_a_number_that_no_input_tells_keeps_a_composite_closed(fuser: ElementwiseFuser) -> None:
    """Protects fusions from being cut by a query of what is inside them."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.chunk(2, -1)[0].softmax(-1)

    trace = traced(halves, torch.randn(3, 8))
    opened = open_composites(trace, [fuser, *executors()])
    assert any("softmax" in op.sym.name for op in opened.bound_symbols)


def test_an_opened_trace_computes_the_same_for_other_shapes_too(fuser: ElementwiseFuser) -> None:
    """Protects results where nobody fuses in the end: thunder's executors run the pieces."""
    others = executors()
    opened = open_composites(traced(normalized, torch.randn(3, 8), torch.randn(8)), [fuser, *others])
    executable = passes.transform_for_execution(shapetrace_rs.optimize(opened), others).python_callable()
    for rows, columns in ((3, 8), (5, 6)):
        x, w = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(executable(x, w)["output"], (normalized(x, w),))


def test_a_piece_of_a_trace_may_take_a_number_that_an_op_inside_it_makes() -> None:
    """Protects strict mode from alarms about the pieces that fusion executors clean up, which have no signature."""

    def query_and_use(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.reshape(x.shape[0], -1) * n

    trace = traced(query_and_use, torch.randn(3, 4, 2), 2)
    piece = thunder.core.trace.TraceCtx(None)
    # Without the query at the top level its number is an input, though the reshape asks for it again inside.
    piece.bound_symbols = [op for op in trace.bound_symbols if op.sym.name not in {"shape", "unpack_trivial"}]
    assert shapetrace_rs.verify(piece) == []
