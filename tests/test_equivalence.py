"""Level "compat" gives what thunder's own pass gives: on random traces, on written ones, on all of real compiles."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch
from hypothesis import event, given
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import has_tags

import shapetrace_rs
from trace_strategies import ALL_FEATURES, Drawn, traces
from trace_tools import (
    EFFECT,
    assert_settled,
    assert_unchanged_ops_are_the_same_objects,
    copied,
    effects_in,
    emit,
    examples,
    fingerprint,
    finish,
    needed_names,
    new_trace,
    op_names,
    optimize_module,
    optimized,
    prims,
    symbol,
    tensor,
    tracectx,
    transform_common,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

stock_dce = transform_common.dce


def may_be_lost(op: Any) -> bool:
    """Whether thunder's pass may remove an op for its output although it has an effect.

    Thunder leaves out what writes nothing but numbers that were written before, and takes that for granted where an
    op writes nothing at all.
    """
    return has_tags(op, {EFFECT}) and not any(isinstance(leaf, TensorProxy) for leaf in op.flat_outs)


def has_tagged_composite_without_content(trace: Any) -> bool:
    """Whether there is a nested composite with nothing inside that is tagged, which thunder loses."""
    stack = [inside for op in trace.bound_symbols for inside in op.subsymbols]
    while stack:
        op = stack.pop()
        if not op.subsymbols and not op.sym.is_prim and has_tags(op, {EFFECT}):
            return True
        stack.extend(op.subsymbols)
    return False


def assert_as_stock(trace: Any, needed: set[Any] | None = None) -> str:
    """Compares both passes on one trace and says how it went.

    Where thunder's pass raises there is nothing to compare with, but ours has to answer.
    """
    copy = copied(trace)
    stock_needed = set() if needed is None else set(needed)
    our_needed = set() if needed is None else set(needed)
    has_return = any(op.sym.id is prims.PrimIDs.RETURN for op in trace.bound_symbols)
    try:
        expected = stock_dce(copy, stock_needed)
    except (KeyError, AssertionError, TypeError):
        actual = optimized(trace, our_needed, level="compat")
        assert effects_in(actual) == effects_in(trace)
        if has_return:
            assert actual.bound_symbols[-1].sym.id is prims.PrimIDs.RETURN
        return "stock raises"
    actual = optimized(trace, our_needed, level="compat")
    assert effects_in(actual) == effects_in(trace), "an effect is lost or moved"
    assert needed_names(our_needed) == needed_names(stock_needed)
    assert actual.args is trace.args
    # A tagged composite that thunder loses inside an op changes what else it removes there.
    whole = not has_tagged_composite_without_content(trace)
    depth = -1 if whole else 1
    theirs = list(expected.bound_symbols)
    lost = 0
    with tracectx(actual):
        for op in actual.bound_symbols:
            if theirs and same_op(op, theirs[0], depth):
                theirs.pop(0)
            else:
                assert may_be_lost(op), f"thunder has no {op.sym.name} here, but {op_names(theirs)}"
                lost += 1
    assert not theirs, f"thunder has {op_names(theirs)} beside"
    assert_unchanged_ops_are_the_same_objects(trace, actual)
    return "stock loses an effect" if lost or not whole else "same"


def same_op(ours: Any, theirs: Any, depth: int) -> bool:
    """Whether two ops are alike: symbol, arguments, results, and as they are printed with all that is inside."""
    return (
        ours.sym is theirs.sym
        and list(map(id, ours.flat_proxy_args)) == list(map(id, theirs.flat_proxy_args))
        and repr(ours.output) == repr(theirs.output)
        and ours.python(0, print_depth=depth) == theirs.python(0, print_depth=depth)
    )


def test_random_traces() -> None:
    """Same ops in the same order, same outputs, same insides, same needed values, on whatever a trace can hold.

    The traces have to reach every feature, and every relation to thunder's pass, or this would test less than it says.
    """
    seen: set[str] = set()
    outcomes: set[str] = set()

    @given(traces())
    @examples(800)
    def compare(drawn: Drawn) -> None:
        seen.update(drawn.features)
        outcome = assert_as_stock(drawn.trace, drawn.needed)
        event(outcome)
        outcomes.add(outcome)

    compare()
    assert seen >= ALL_FEATURES, sorted(ALL_FEATURES - seen)
    assert outcomes == {"same", "stock raises", "stock loses an effect"}


@given(traces())
@examples(60)
def test_without_a_set_of_needed_values(drawn: Drawn) -> None:
    """The ops that are left do not depend on whether the caller wants to know what is needed."""
    if "no return" in drawn.features:
        with pytest.raises(shapetrace_rs.ShapetraceError, match="no return"):
            optimized(drawn.trace, level="compat")
    else:
        alone = optimized(drawn.trace, level="compat")
        with_set = optimized(drawn.trace, set(), level="compat")
        assert op_names(alone) == op_names(with_set)


@given(traces())
@examples(60)
def test_lists_of_ops(drawn: Drawn) -> None:
    """`dce_bsyms` with the returned values as output leaves what `dce` leaves."""
    ops = drawn.trace.bound_symbols
    output = [op.args for op in ops if op.sym.id is prims.PrimIDs.RETURN]
    with shapetrace_rs.enabled(level="compat"):
        result = shapetrace_rs.dce_bsyms(ops, output, set())
    assert isinstance(result, list)
    assert op_names(result) == op_names(optimized(drawn.trace, set(), level="compat"))


# Real compiles.


@pytest.fixture
def record() -> Iterator[list[str]]:
    """Every call of thunder's pass compares both passes first; the list tells how the comparisons went."""
    outcomes: list[str] = []

    def compare(trace: Any, needed_proxies: set[Any] | None = None) -> Any:
        outcomes.append(assert_as_stock(trace, needed_proxies))
        return stock_dce(trace, needed_proxies)

    exchange(stock_dce, compare)
    yield outcomes
    # Also in the modules that were imported meanwhile, and took the name from where they found it.
    exchange(compare, stock_dce)


def exchange(old: Any, new: Any) -> None:
    """Puts one function in the place of another in all of thunder."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("thunder") and vars(module).get("dce") is old:
            module.dce = new


def tensors(*shapes: Any, grad: bool = True) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_(grad) for shape in shapes]


def attention(q: Any, k: Any, v: Any) -> Any:
    weights = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1)
    return torch.nn.functional.dropout(weights, 0.1) @ v


def autocast(x: Any, w: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ w).float().sum()


def rearranged(x: Any) -> Any:
    first, second, third = x.shape
    folded = x.permute(1, 0, 2).reshape(second, first * third)
    return folded.unsqueeze(0).expand(2, second, first * third).flatten(1)


def joined(x: Any, y: Any) -> Any:
    left, right = x.chunk(2, -1)
    return torch.cat([x, y], 0).sum(), torch.stack([left, right], 1)[:, 0, ::2]


def in_place(x: Any) -> Any:
    y = x * 1
    y.add_(2)
    y.mul_(y)
    return y


def in_place_on_the_input(x: Any) -> Any:
    x.add_(1)
    return x.sum()


def structured(x: Any, config: Any) -> Any:
    return {"out": x * config["k"], "rest": (x, None, config["n"])}


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "mlp": (lambda x, w, v: torch.nn.functional.gelu(x @ w) @ v, lambda: tensors((3, 4), (4, 5), (5, 2))),
    "attention": (attention, lambda: tensors((2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4))),
    "autocast": (autocast, lambda: tensors((2, 3), (3, 4))),
    "rearranged": (rearranged, lambda: tensors((2, 3, 4))),
    "joined": (joined, lambda: tensors((2, 4), (3, 4))),
    "in place": (in_place, lambda: tensors((2, 3))),
    "in place on the input": (in_place_on_the_input, lambda: tensors((2, 3), grad=False)),
    "embedding": (
        lambda i, w: torch.nn.functional.embedding(i, w).mean(1),
        lambda: [torch.tensor([[0, 1], [2, 0]]), *tensors((4, 3))],
    ),
    "structured": (structured, lambda: [*tensors((2,)), {"k": 2.0, "n": 3, "unused": [1]}]),
    "normalized": (
        lambda x, w: torch.nn.functional.layer_norm(x, (4,), w) + torch.nn.functional.rms_norm(x, (4,)),
        lambda: tensors((2, 4), (4,)),
    ),
    "random": (lambda x: x + torch.rand(2, 3) * torch.randn(2, 3), lambda: tensors((2, 3))),
}


@pytest.mark.parametrize("cache", ["constant values", "symbolic values"])
@pytest.mark.parametrize(("function", "inputs"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_traces_of_real_compiles(function: Any, inputs: Any, cache: str, record: list[str]) -> None:
    """All traces of a compile, forward and backward: prologue, computation, backward, epilogue."""
    if cache == "symbolic values" and function is joined:
        pytest.skip("thunder itself cannot compile this one with symbolic values and gradients")
    result = thunder.jit(function, cache=cache)(*inputs())
    flat = [leaf for leaf in thunder.core.pytree.tree_flatten([result])[0] if isinstance(leaf, torch.Tensor)]
    losses = [leaf.sum() for leaf in flat if leaf.requires_grad]
    if losses:
        functools.reduce(torch.add, losses).backward()
    assert len(record) >= 3
    assert set(record) <= {"same", "stock loses an effect"}


def test_traces_of_a_gpt(record: list[str]) -> None:
    """A real architecture with parameters, forward and backward."""
    litgpt = pytest.importorskip("litgpt")
    config = litgpt.Config.from_name(
        "pythia-14m", n_layer=1, n_embd=16, n_head=2, padded_vocab_size=32, block_size=8, intermediate_size=32
    )
    torch.manual_seed(0)
    model = litgpt.GPT(config)
    thunder.jit(model)(torch.tensor([[1, 2, 3], [4, 5, 6]])).sum().backward()
    assert len(record) >= 5
    assert set(record) == {"same"}


# What thunder's pass gets wrong, and what is the answer there.


def test_where_stock_raises_ours_answers() -> None:
    """An input that an op hands back, and no unpack: thunder's pass ends in a KeyError."""
    with new_trace() as trace:
        a = tensor("a")
        emit(trace, symbol("maybe_to"), a, output=a)
        finish(trace, prims.sin(a), a)
    with pytest.raises(KeyError):
        stock_dce(copied(trace))
    assert assert_as_stock(trace) == "stock raises"
    assert op_names(optimized(trace, level="compat")) == ["sin", "python_return"]


def test_where_stock_edits_its_input_ours_does_not() -> None:
    """Thunder's pass removes no-ops from the very ops that it was given."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        noop = symbol("noop", primitive=False).bind(a, output=a)
        emit(trace, symbol("both", primitive=False), a, output=r, inside=[noop, prims.sin.bind(a, output=r)])
        finish(trace, r, a)
    before = fingerprint(trace)
    assert assert_as_stock(trace) == "same"
    assert fingerprint(trace) == before
    stock_dce(trace)
    assert fingerprint(trace) != before


def test_compat_may_need_more_than_one_run() -> None:
    """Level "compat" is as thunder: a composite that is empty after a run goes in the next one. "full" needs one."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        noop = symbol("noop", primitive=False)
        nested = noop.bind(a, output=a)
        for _ in range(3):
            nested = noop.bind(a, output=a, subsymbols=[nested])
        emit(trace, symbol("both", primitive=False), a, output=r, inside=[nested, prims.sin.bind(a, output=r)])
        finish(trace, r, a)
    assert assert_as_stock(trace) == "same"
    once = optimized(trace, level="compat")
    assert once.bound_symbols[1].subsymbols[0].subsymbols
    full = optimized(trace)
    assert op_names(full.bound_symbols[1].subsymbols) == ["sin"]
    assert_settled(full)


def test_effects_of_the_user_count_at_this_level_too() -> None:
    """The option is about facts, not about how much is done."""
    with new_trace() as trace:
        a = tensor("a")
        emit(trace, symbol("suspect"), a, output=a)
        finish(trace, a, a)
    result, statistics = optimize_module.run(
        trace, None, shapetrace_rs.OptimizeOptions(level="compat", effects={"suspect"})
    )
    assert op_names(result) == ["suspect", "python_return"]
    assert statistics.ops_in == statistics.ops_out == 2
