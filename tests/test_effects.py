"""Ops with effects are never lost, whatever they return, wherever they stand, however they are marked."""

from __future__ import annotations

from typing import Any

import pytest
import thunder
import torch
from thunder.core.symbol import BoundSymbol, Symbol

import shapetrace_rs
from trace_tools import (
    EFFECT,
    LEVELS,
    effects_in,
    emit,
    find,
    finish,
    integer,
    new_trace,
    op_names,
    optimized,
    prims,
    relu_in_place,
    result_names,
    shape_of,
    symbol,
    tensor,
    walk,
)

LOG = symbol("log", tags=[EFFECT])

OUTPUTS = {
    "an empty tuple": (),
    "an empty list": [],
    "an empty dictionary": {},
    "None": None,
    "a tuple of None": (None,),
    "a list of None": [None, None],
    "nested empty": ((), [{}]),
    "an int": 3,
    "a float": float("nan"),
    "a string": "text",
    "a dictionary of literals": {"a": 1, "b": (None, "c")},
    "a type": int,
    "a dtype": torch.float32,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_tagged_op_stays_whatever_it_returns(output: Any, level: str) -> None:
    """An op that is tagged as an effect has nothing that anyone could read, and stays, with what it reads."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        read = prims.sin(a)
        emit(trace, LOG, read, output=output)
        prims.cos(a)
        finish(trace, a, a)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "sin", "log", "python_return"]
    assert result.bound_symbols[2] is trace.bound_symbols[2]


@pytest.mark.parametrize("primitive", [prims.assert_tensor_metadata, prims.assert_compare, prims.pack_setitem])
def test_assertions_of_thunder_stay_without_a_tag(primitive: Any) -> None:
    """They define nothing, and exist to raise or to write."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        trace.bound_symbols.append(BoundSymbol(primitive, (a,), {}, None))
        finish(trace, a, a)
    assert primitive.name in op_names(optimized(trace))


@pytest.mark.parametrize("level", LEVELS)
def test_tag_that_a_symbol_gets_later_is_seen(level: str) -> None:
    """What is remembered of a symbol between calls is not what it was once."""
    late = symbol("late", tags=[prims.OpTags.IN_PLACE])
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        emit(trace, late, a, output=tensor("b"))
        finish(trace, a, a)
    assert "late" not in op_names(optimized(trace, level=level))
    assert isinstance(late.tags, list)
    late.tags.append(EFFECT)
    assert "late" in op_names(optimized(trace, level=level))


@pytest.mark.parametrize("level", LEVELS)
def test_tagged_op_stays_when_all_it_makes_was_made_before(level: str) -> None:
    """Writing known numbers, or a known tensor, once more is no reason to drop an effect."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        made = prims.sin(a)
        for output in ((i0, i1), i0, [i1], made, {"again": made}):
            emit(trace, LOG, a, output=output)
        finish(trace, (made, i0, i1), a)
    assert op_names(optimized(trace, level=level)).count("log") == 5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("where", ["symbol", "op", "inside", "deep inside", "composite inside"])
def test_an_effect_counts_wherever_it_is_marked(where: str, level: str) -> None:
    """The tag may be the symbol's, the op's own, or anywhere inside; also on a composite with nothing in it."""
    with new_trace() as trace:
        a, unused, other = tensor("a"), tensor("unused"), tensor("other")
        prims.unpack_trivial(a, name="a")
        opaque = symbol("opaque")
        inside = []
        if where == "symbol":
            opaque = symbol("opaque", tags=[EFFECT])
        elif where == "inside":
            inside = [LOG.bind(a, output=None)]
        elif where == "deep inside":
            inside = [LOG.bind(a, output=())]
            for _ in range(5):
                inside = [symbol("layer", primitive=False).bind(a, output=(), subsymbols=inside)]
        elif where == "composite inside":
            inside = [symbol("audit", primitive=False, tags=[EFFECT]).bind(a, output=None)]
        if inside:
            opaque = symbol("opaque", primitive=False)
        marked = emit(trace, opaque, a, output=unused, inside=inside)
        emit(trace, symbol("opaque2"), a, output=other)
        if where == "op":
            marked.tags.add(EFFECT)
        finish(trace, a, a)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "opaque", "python_return"]
    kept = find(result, "opaque")
    assert result_names(kept) == ["unused"], "the result of a kept op is its own, read or not"
    assert shape_of(kept) == shape_of(marked)


@pytest.mark.parametrize("level", LEVELS)
def test_tagged_composite_without_content_stays_in_its_scope(level: str) -> None:
    """A composite with nothing inside is a no-op, unless it is tagged."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        audit = symbol("audit", primitive=False, tags=[EFFECT]).bind(a, output=None)
        emit(trace, symbol("both", primitive=False), a, output=r, inside=[audit, prims.sin.bind(a, output=r)])
        finish(trace, r, a)
    assert op_names(find(optimized(trace, level=level), "both").subsymbols) == ["audit", "sin"]


@pytest.mark.parametrize("level", LEVELS)
def test_effects_stay_in_their_order(level: str) -> None:
    """Effects and what they read keep the order in which they were recorded."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        value = a
        for step in range(20):
            value = prims.sin(value)
            prims.cos(value)
            emit(trace, symbol(f"log{step}", tags=[EFFECT]), value, output=None)
        finish(trace, a, a)
    result = optimized(trace, level=level)
    assert effects_in(result) == effects_in(trace)
    expected = [name for step in range(20) for name in ("sin", f"log{step}")]
    assert op_names(result) == ["unpack_trivial", *expected, "python_return"]


@pytest.mark.parametrize("level", LEVELS)
def test_two_equal_effects_are_two(level: str) -> None:
    """Nothing merges what is done twice, at the top level or inside an op."""
    with new_trace() as trace:
        a, made = tensor("a"), tensor("made")
        prims.unpack_trivial(a, name="a")
        for _ in range(2):
            emit(trace, LOG, a, output=made)
        inside = [LOG.bind(a, output=None), LOG.bind(a, output=None)]
        emit(trace, symbol("both", primitive=False), a, output=(), inside=inside)
        finish(trace, made, a)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "log", "log", "both", "python_return"]
    assert op_names(find(result, "both").subsymbols) == ["log", "log"]


@pytest.mark.parametrize("level", LEVELS)
def test_copy_whose_result_is_unused(level: str) -> None:
    """`copy_` writes to its argument, so it stays with what it reads."""
    with new_trace() as trace:
        a, b = tensor("a"), tensor("b")
        prims.unpack_trivial(a, name="a")
        prims.unpack_trivial(b, name="b")
        source = prims.sin(a)
        prims.cos(a)
        prims.copy_(source, b, grad_enabled=False)
        finish(trace, a, a, b)
    expected = ["unpack_trivial", "unpack_trivial", "sin", "copy_", "python_return"]
    assert op_names(optimized(trace, level=level)) == expected


@pytest.mark.parametrize("level", LEVELS)
def test_op_kept_for_an_effect_inside_keeps_its_result(level: str) -> None:
    """Each `add_` stays for the copy inside it, and its result with it: thunder's bookkeeping reads that."""

    def add_twice(x: Any) -> Any:
        x.add_(5)
        return x.add_(4)

    compiled = thunder.jit(add_twice)
    compiled(torch.ones(2, 2))
    trace = next(trace for trace in thunder.last_traces(compiled) if "add_" in op_names(trace))
    copies = [op.sym.id for op in walk(trace)].count(prims.PrimIDs.COPY_)
    result = optimized(trace, level=level)
    assert copies == 2
    assert [op.sym.id for op in walk(result)].count(prims.PrimIDs.COPY_) == 2
    for op in result.bound_symbols:
        if op.sym.name == "add_":
            assert len(op.flat_proxy_outs) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_composite_with_a_tagged_in_place_op_computes_what_eager_does(level: str) -> None:
    """A tagged in-place op in a composite runs, and what comes behind it sees its work."""
    with relu_in_place(tags=[EFFECT]) as (relu_, executors):

        def inside(x: Any) -> Any:
            return thunder.torch.sin(relu_(x))

        composite = Symbol(name="relu_then_sin", meta=inside, id="relu_then_sin", is_prim=False)
        with shapetrace_rs.enabled(level=level, strict=True):
            result = thunder.jit(composite, executors=executors)(torch.tensor([-1.0, 2.0]))
    torch.testing.assert_close(result, torch.tensor([0.0, 2.0]).sin())


def test_in_place_program_leaves_the_input_as_eager_does() -> None:
    """The writes that a user asked for reach the user's tensors at both levels."""

    def update(x: Any, y: Any) -> Any:
        x.mul_(2)
        y.sin()
        y.add_(x)
        return x.sum()

    expected = [torch.ones(3), torch.arange(3.0)]
    total = update(*expected)
    for level in LEVELS:
        actual = [torch.ones(3), torch.arange(3.0)]
        with shapetrace_rs.enabled(level=level, strict=True):
            assert torch.equal(thunder.jit(update)(*actual), total)
        assert all(map(torch.equal, actual, expected))
