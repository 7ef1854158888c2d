"""How much nvFuser fuses, with thunder's own dead code elimination and with the drop-in."""

from __future__ import annotations

from typing import Any

import pytest
from nvfuser_harness import compile_both
from nvfuser_programs import compile_program

from cuda_programs import FUNCTIONS, PROGRAMS
from fake_cuda import CONSTANT, DROP_IN, SYMBOLIC, Compiled, Fusions, cuda

GRADIENTS = pytest.mark.parametrize("grad", [False, True], ids=["forward", "gradients"])


def _stock(name: str, *, cache: str, grad: bool) -> Compiled:
    return compile_program(name, cache=cache, grad=grad)


def _ours(name: str, *, cache: str, grad: bool, **options: Any) -> Compiled:
    return compile_program(name, cache=cache, grad=grad, drop_in=DROP_IN | options)


@GRADIENTS
@pytest.mark.parametrize("name", PROGRAMS)
def test_constant_values_are_fused_alike(name: str, *, grad: bool) -> None:
    """With constant values there is nothing in nvFuser's way, and the drop-in changes no fusion."""
    stock, ours = _stock(name, cache=CONSTANT, grad=grad), _ours(name, cache=CONSTANT, grad=grad)
    assert ours.counts == stock.counts
    assert ours.launches == stock.launches
    assert [[op.sym.name for op in fusion.subsymbols] for fusion in ours.fusions] == [
        [op.sym.name for op in fusion.subsymbols] for fusion in stock.fusions
    ]
    assert stock.counts.count >= 1


@GRADIENTS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_symbolic_values_are_fused_no_worse(name: str, *, grad: bool) -> None:
    """With symbolic values the drop-in never takes an op out of a fusion, and never adds a launch.

    Fusions do not become fewer, either, unless they are all that is left to launch: two that become one are better.
    """
    stock, ours = _stock(name, cache=SYMBOLIC, grad=grad), _ours(name, cache=SYMBOLIC, grad=grad)
    assert ours.counts.ops >= stock.counts.ops
    assert ours.launches <= stock.launches
    assert ours.counts.count >= stock.counts.count or ours.counts.count == ours.launches < stock.launches


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"known_reshape"}))
def test_symbolic_values_with_gradients_are_fused_better(name: str) -> None:
    """Stock thunder leaves dead shape queries in composites, and nvFuser refuses those; the drop-in does not."""
    stock, ours = _stock(name, cache=SYMBOLIC, grad=True), _ours(name, cache=SYMBOLIC, grad=True)
    assert ours.counts.ops >= 2 * stock.counts.ops
    assert ours.launches < stock.launches


def test_the_gated_projection_is_fused() -> None:
    """Stock thunder makes 2 fusions with 4 ops of it; without dead queries at least 33 ops are fused."""
    stock, ours = _stock("gated", cache=SYMBOLIC, grad=True), _ours("gated", cache=SYMBOLIC, grad=True)
    assert stock.counts == Fusions(2, 4)
    assert ours.counts.ops >= 33
    assert ours.counts.count >= 5 or ours.launches <= stock.launches // 3


@pytest.mark.parametrize(("grad", "fusions"), [(False, Fusions(1, 18)), (True, Fusions(2, 32))])
def test_softmax_is_one_fusion(*, grad: bool, fusions: Fusions) -> None:
    """The query inside softmax is live; with its numbers from a query of the input it is fused as constants are."""
    assert _stock("softmax", cache=CONSTANT, grad=grad).counts == fusions
    assert _stock("softmax", cache=SYMBOLIC, grad=grad).counts == Fusions(0, 0)
    assert _ours("softmax", cache=SYMBOLIC, grad=grad).counts == fusions


@GRADIENTS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_floor_division_does_not_matter_to_common_programs(name: str, *, grad: bool) -> None:
    """Dimensions are not negative, so what their divisions become is fused with and without the option."""
    with_option = _ours(name, cache=SYMBOLIC, grad=grad)
    without = _ours(name, cache=SYMBOLIC, grad=grad, floor_division=False)
    assert with_option.counts == without.counts
    assert with_option.launches == without.launches


def test_floor_division_inside_a_composite() -> None:
    """A reshape to a user's number, with all dimensions among its arguments, has no query and a division to keep.

    nvFuser runs the long form of that division and has no implementation of the short one. The drop-in still has to
    be as good as stock thunder, whose reshape has a query.
    """

    def reshape(x: Any, parts: int) -> Any:
        rows, columns = x.shape
        return (x * 2).reshape(parts, rows, columns, -1).exp()

    args = (cuda(4, 6), 1)
    stock, short = compile_both(reshape, args, cache=SYMBOLIC)
    _, long = compile_both(reshape, args, cache=SYMBOLIC, drop_in={"floor_division": False})
    for compiled in (short, long):
        compiled.check()
    assert long.counts.count == 1
    assert long.launches == 1
    assert short.counts.ops >= stock.counts.ops
    assert short.launches <= stock.launches
