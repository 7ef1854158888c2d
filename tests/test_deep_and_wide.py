"""Traces of a size that nobody writes by hand, in a thread with a small stack: a recursion would end the process.

How long it takes and how much memory is for benches/bridge/scaling.py, not for tests.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from thunder.core.symbol import BoundSymbol

import shapetrace_rs
from trace_tools import (
    LEVELS,
    finish,
    integer,
    made_names,
    new_trace,
    op_names,
    prims,
    symbol,
    tensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

each_level = pytest.mark.parametrize("level", LEVELS)

SMALL_STACK = 256 * 1024
"""Less than a recursion over ten thousand scopes would take, in Python or native."""

MANY = 100_000
DEEP = 10_000


def on_a_small_stack(work: Callable[[], Any]) -> Any:
    """What a function returns, called in a thread with a small stack."""
    answers: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001 (handed to the test's own thread)
            errors.append(error)

    before = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


def optimize(trace: Any, level: str) -> Any:
    """The optimized trace, made on a small stack; a second run on it changes nothing."""

    def work() -> Any:
        result = shapetrace_rs.optimize(trace, set(), level=level)
        assert not shapetrace_rs.verify(result, optimized=level == "full")
        again = shapetrace_rs.optimize(result, set(), level=level)
        assert all(map(is_same, again.bound_symbols, result.bound_symbols))
        assert len(again.bound_symbols) == len(result.bound_symbols)
        return result

    return on_a_small_stack(work)


def is_same(first: Any, second: Any) -> bool:
    """Whether two ops are one object."""
    return first is second


@functools.cache
def chain() -> Any:
    """A live chain, and as many dead ops beside it."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        value = a
        for index in range(MANY // 2):
            made, dead = tensor(f"t{index}"), tensor(f"d{index}")
            trace.bound_symbols.append(BoundSymbol(prims.sin, (value,), {}, made))
            trace.bound_symbols.append(BoundSymbol(prims.cos, (made,), {}, dead))
            value = made
        return finish(trace, value, a)


@functools.cache
def duplicates() -> Any:
    """A scope in which one shape is asked for again and again, half of the times under new names."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        last = i0
        for index in range(MANY):
            output = (i0, i1)
            if index % 2:
                output = (last := integer(f"j{index}"), i1)
            trace.bound_symbols.append(BoundSymbol(prims.shape, (a,), {}, output))
        trace.bound_symbols.append(BoundSymbol(symbol("use"), (a, last), {}, r))
        return finish(trace, r, a)


@functools.cache
def wide() -> Any:
    """One op with as many operands as results, which are ops inside another one."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        made = [tensor(f"t{index}") for index in range(MANY)]
        inside = [BoundSymbol(prims.sin, (a,), {}, value) for value in made]
        inside.append(BoundSymbol(symbol("all"), (made,), {}, r))
        trace.bound_symbols.append(BoundSymbol(symbol("outer", primitive=False), (a,), {}, r, inside))
        trace.bound_symbols.append(BoundSymbol(symbol("many"), (a, *made), {}, [*made, a]))
        return finish(trace, r, a)


@each_level
def test_a_chain_of_a_hundred_thousand_ops(level: str) -> None:
    """Half of them are dead."""
    result = optimize(chain(), level)
    assert len(result.bound_symbols) == MANY // 2 + 2
    assert "cos" not in op_names(result)


@each_level
def test_a_hundred_thousand_duplicates(level: str) -> None:
    """One query is left at level "full"; "compat" keeps those that thunder keeps."""
    result = optimize(duplicates(), level)
    names = op_names(result)
    assert names[-2:] == ["use", "python_return"]
    if level == "full":
        assert names.count("shape") == 1
        assert result.bound_symbols[-2].args[1].name in made_names(result)
    else:
        assert 1 <= names.count("shape") < MANY


@each_level
def test_a_hundred_thousand_operands_and_results(level: str) -> None:
    """Inside an op and at the top level."""
    trace = wide()
    result = optimize(trace, level)
    assert op_names(result) == ["unpack_trivial", "outer", "python_return"]
    assert result.bound_symbols[1] is trace.bound_symbols[1]


@each_level
def test_ten_thousand_scopes(level: str) -> None:
    """Changes at the bottom reach the top."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        layer, noop = symbol("layer", primitive=False), symbol("noop", primitive=False)
        op = BoundSymbol(layer, (a,), {}, r, [noop.bind(a, output=a), prims.sin.bind(a, output=r)])
        for _ in range(DEEP):
            op = BoundSymbol(layer, (a,), {}, r, [op])
        trace.bound_symbols.append(op)
        finish(trace, r, a)
    result = on_a_small_stack(lambda: shapetrace_rs.optimize(trace, level=level))
    kept, original, levels = result.bound_symbols[1], op, 0
    while kept.sym is layer:
        assert kept is not original
        kept, original, levels = kept.subsymbols[0], original.subsymbols[0], levels + 1
    assert levels == DEEP + 1
    assert kept.sym is prims.sin
    # Taken apart by hand: the interpreter frees such a structure by recursion.
    for top in (op, result.bound_symbols[1]):
        while top.subsymbols:
            top, top.subsymbols = top.subsymbols[0], ()


def test_few_objects_that_are_more_ops_than_memory_holds() -> None:
    """Ops that share what is inside them, forty times over, are refused before memory ends."""
    with new_trace() as trace:
        x, r = tensor("x"), tensor("r")
        op = symbol("leaf").bind(x, output=r)
        for _ in range(40):
            op = symbol("outer", primitive=False).bind(x, output=r, subsymbols=[op, op])
        trace.bound_symbols.append(op)
        finish(trace, r, x)
    with pytest.raises(shapetrace_rs.InvalidTraceError, match="more than 16777216 ops"):
        shapetrace_rs.optimize(trace)
