"""Traces that are odd, huge or broken, and arguments that misbehave: a right answer or a clear error, never a crash."""

from __future__ import annotations

import concurrent.futures
import functools
import gc
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from thunder.core.proxies import Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol

import shapetrace_rs
from shapetrace_rs.errors import InvalidTraceError, MissingReturnError
from trace_tools import (
    EFFECT,
    LEVELS,
    TraceCtx,
    emit,
    finish,
    integer,
    made_names,
    needed_names,
    new_trace,
    op_names,
    optimized,
    prims,
    symbol,
    tensor,
    transform_common,
    variables,
)

each_level = pytest.mark.parametrize("level", LEVELS)


# Nothing to do, nothing to say, nothing at all.


@each_level
def test_empty_trace(level: str) -> None:
    """An empty trace gives an empty trace."""
    for ops in ([], ()):
        trace = TraceCtx()
        trace.args = ()
        trace.bound_symbols = ops
        needed: set[Any] = set()
        assert list(optimized(trace, level=level).bound_symbols) == []
        assert list(optimized(trace, needed, level=level).bound_symbols) == []
        assert not needed
    assert shapetrace_rs.dce_bsyms([], None) == []


@each_level
def test_trace_without_a_return(level: str) -> None:
    """Without a return the caller has to say what is needed; otherwise there is an error of its own kind."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        needed = prims.sin(a)
        prims.cos(a)
        trace.args = (a,)
    with pytest.raises(MissingReturnError, match="python_return") as caught:
        optimized(trace, level=level)
    assert isinstance(caught.value, (ValueError, shapetrace_rs.ShapetraceError))
    assert op_names(optimized(trace, variables(needed), level=level)) == ["unpack_trivial", "sin"]
    assert op_names(optimized(trace, set(), level=level)) == []
    with shapetrace_rs.enabled(level=level):
        assert op_names(shapetrace_rs.dce_bsyms(trace.bound_symbols, {"out": [needed]})) == ["unpack_trivial", "sin"]
        assert op_names(shapetrace_rs.dce_bsyms(tuple(trace.bound_symbols), needed)) == ["unpack_trivial", "sin"]
        assert shapetrace_rs.dce_bsyms(trace.bound_symbols, None) == []


@each_level
def test_tuple_of_ops(level: str) -> None:
    """The ops of a trace may be a tuple, at the top level and inside."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        prims.cos(a)
        op = emit(trace, symbol("both", primitive=False), a, output=r)
        op.subsymbols = (symbol("noop", primitive=False).bind(a, output=a), prims.sin.bind(a, output=r))
        finish(trace, r, a)
    trace.bound_symbols = tuple(trace.bound_symbols)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "both", "python_return"]
    assert op_names(result.bound_symbols[1].subsymbols) == ["sin"]
    assert isinstance(op.subsymbols, tuple)


@each_level
def test_needed_value_that_nothing_makes(level: str) -> None:
    """A name that the trace does not know keeps nothing and stays in the set; everything needed is added to it."""
    with new_trace() as trace:
        a, ghost = tensor("a"), tensor("ghost")
        prims.unpack_trivial(a, name="a")
        keep, drop = prims.sin(a), prims.cos(a)
        r = prims.exp(a)
        finish(trace, r, a)
    needed = variables(keep, ghost)
    same_set = needed
    assert op_names(optimized(trace, needed, level=level)) == ["unpack_trivial", "sin", "exp", "python_return"]
    assert needed is same_set
    assert {keep.name, "ghost", r.name, "a"} == needed_names(needed)
    assert drop.name not in needed_names(needed)


@each_level
def test_output_that_is_also_an_input(level: str) -> None:
    """Whatever mixture of new and given values an op returns, only the new ones are made by it."""
    with new_trace() as trace:
        a, b, r = tensor("a"), tensor("b"), tensor("r")
        prims.unpack_trivial(a, name="a")
        emit(trace, symbol("mixed"), a, b, output=(a, r, [b]))
        emit(trace, symbol("mixed"), b, output=(b, tensor("dead")))
        finish(trace, (r, a, b), a, b)
    assert op_names(optimized(trace, level=level)) == ["unpack_trivial", "mixed", "python_return"]


@each_level
def test_return_in_the_middle_and_returns_inside(level: str) -> None:
    """Of several returns, each stays; ops behind the first one are judged by the same rules."""
    with new_trace() as trace:
        a = tensor("a")
        first = prims.sin(a)
        prims.python_return(first)
        second = prims.cos(a)
        prims.tan(a)
        finish(trace, second, a)
    names = op_names(optimized(trace, level=level))
    assert names.count("python_return") == 2
    assert names[0] == "sin"
    assert "tan" not in names


# What is no trace.


@pytest.mark.parametrize("thing", [None, 3, "trace", [], object(), TensorProxy, torch.ones(1)])
def test_what_is_no_trace(thing: Any) -> None:
    """The error says what was expected and what came instead."""
    with pytest.raises(InvalidTraceError, match=f"expected a thunder trace, not {type(thing).__name__}"):
        shapetrace_rs.dce(thing)


@each_level
@pytest.mark.parametrize("thing", [None, "op", 3, prims.sin, object()], ids=lambda thing: type(thing).__name__)
def test_what_is_no_bound_symbol(thing: Any, level: str) -> None:
    """At the top level and inside an op: the error says where and what, and is not a crash."""
    with new_trace() as trace:
        a = tensor("a")
        op = emit(trace, symbol("both", primitive=False), a, output=tensor("r"))
        finish(trace, op.output, a)
    inside = [prims.sin.bind(a, output=op.output), thing]
    for ops in ([*trace.bound_symbols, thing], [thing, *trace.bound_symbols]):
        broken = TraceCtx()
        broken.bound_symbols = ops
        with pytest.raises(InvalidTraceError, match="BoundSymbol"):
            shapetrace_rs.optimize(broken, level=level)
    op.subsymbols = inside
    with pytest.raises(InvalidTraceError, match="BoundSymbol"):
        shapetrace_rs.optimize(trace, level=level)
    op.subsymbols = inside[:1]
    assert op_names(shapetrace_rs.optimize(trace, level=level)) == ["both", "python_return"]


@each_level
@pytest.mark.parametrize("field", ["bound_symbols", "subsymbols"])
@pytest.mark.parametrize("thing", [None, 3, "text"], ids=lambda thing: type(thing).__name__)
def test_what_is_no_list_of_ops(thing: Any, field: str, level: str) -> None:
    """Something else in the place of a list of ops ends in an ordinary exception."""
    with new_trace() as trace:
        a = tensor("a")
        op = emit(trace, symbol("f"), a, output=tensor("r"))
        finish(trace, op.output, a)
    setattr(trace if field == "bound_symbols" else op, field, thing)
    with pytest.raises((TypeError, InvalidTraceError)):
        shapetrace_rs.optimize(trace, level=level)


@each_level
@pytest.mark.parametrize("field", ["sym", "args", "kwargs", "output", "subsymbols", "tags"])
def test_bound_symbol_without_a_field(field: str, level: str) -> None:
    """A bound symbol that is not whole ends in an ordinary exception, and the next call works."""
    with new_trace() as trace:
        a = tensor("a")
        op = emit(trace, symbol("f"), a, output=tensor("r"))
        finish(trace, op.output, a)
    value = getattr(op, field)
    delattr(op, field)
    if field != "subsymbols":  # That has a default, which is a class attribute.
        with pytest.raises((AttributeError, InvalidTraceError)):
            shapetrace_rs.optimize(trace, level=level)
    setattr(op, field, value)
    assert op_names(shapetrace_rs.optimize(trace, level=level)) == ["f", "python_return"]


# Arguments that misbehave.


class Prickly:
    """An object that nobody may ask anything."""

    def refuse(self, *_: object) -> Any:
        message = "the optimizer asked a constant"
        raise RuntimeError(message)

    __eq__ = __ne__ = __lt__ = __bool__ = __len__ = __iter__ = __getitem__ = __index__ = refuse  # type: ignore[assignment]
    __hash__ = refuse  # type: ignore[assignment]


class Lying:
    """An object that claims to have every attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


@each_level
@pytest.mark.parametrize(
    "thing",
    [
        torch.ones(2, 3), np.ones((2, 3)), np.float64(2.0), Prickly(), Lying(), lambda: None, Ellipsis, NotImplemented,
        {1, 2}, frozenset([3]), bytearray(b"x"), memoryview(b"x"), range(3), torch.Size([2, 3]), torch.nn.Linear(1, 1),
        torch.float32, torch.device("cpu"), type, Prickly, int, sys, (x for x in ()), np.array([None, Prickly()]),
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_unknown_objects_among_the_arguments(thing: Any, level: str) -> None:
    """Anything may be a constant: it is neither compared nor hashed nor tested nor iterated, and it stays."""
    with new_trace() as trace:
        a, r, s = tensor("a"), tensor("r"), tensor("s")
        prims.unpack_trivial(a, name="a")
        i0 = integer("i0")
        for _ in range(2):
            emit(trace, prims.shape, a, output=(i0, 3))
            emit(trace, symbol("f"), a, thing, [thing, (a, thing)], output=r)
            emit(trace, symbol("g"), r, output=(s, thing), key=thing)
            emit(trace, prims.add, i0, thing, output=integer("n" if _ else "m"))
        finish(trace, (s, trace.bound_symbols[-1].output, trace.bound_symbols[-5].output), a)
    result = shapetrace_rs.optimize(trace, level=level)
    assert op_names(result)[-1] == "python_return"
    kept = {id(op) for op in result.bound_symbols}
    first_f, first_g = trace.bound_symbols[2:4]
    assert id(first_f) in kept
    assert id(first_g) in kept


@each_level
@pytest.mark.parametrize("error", [RuntimeError, KeyError, MemoryError, StopIteration, KeyboardInterrupt])
def test_proxy_whose_name_cannot_be_read(error: type[BaseException], level: str) -> None:
    """The error of the property is what the caller sees, and the next call works."""

    class Nameless(Proxy):
        fails = True

        @property
        def name(self) -> str:
            if Nameless.fails:
                raise error("no name")
            return "nameless"

    with new_trace() as trace:
        a = Nameless("nameless")
        r = tensor("r")
        trace.bound_symbols.append(symbol("f").bind(a, output=r))
        trace.bound_symbols.append(prims.python_return.bind(r, output=None))
    with pytest.raises(error, match="no name"):
        shapetrace_rs.optimize(trace, level=level)
    Nameless.fails = False
    assert op_names(shapetrace_rs.optimize(trace, level=level)) == ["f", "python_return"]


@each_level
@pytest.mark.parametrize("name", [None, 3, b"a", ["a"]], ids=lambda name: type(name).__name__)
def test_name_that_is_no_string(name: Any, level: str) -> None:
    """Values are known by name, so a name must be one."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        emit(trace, symbol("f"), a, output=r)
        finish(trace, r, a)
    a._name = name
    with pytest.raises((TypeError, InvalidTraceError), match="name"):
        shapetrace_rs.optimize(trace, level=level)


@each_level
def test_names_of_every_kind(level: str) -> None:
    """Long, empty and foreign names, equal strings that are different objects: a name is its characters."""
    for name in ("", "x" * 10_000, "größe", "名前", "\N{GRINNING FACE}", "a\0b", "\ud800"):
        with new_trace() as trace:
            a, r = tensor("a"), tensor("r")
            written, read = tensor("w1"), tensor("w2")
            written._name, read._name = name, "".join(list(name))
            emit(trace, symbol("f"), a, output=written)
            emit(trace, symbol("g"), read, output=r)
            finish(trace, r, a)
        assert op_names(shapetrace_rs.optimize(trace, level=level)) == ["f", "g", "python_return"]


@each_level
def test_container_that_contains_itself(level: str) -> None:
    """It would be walked for ever, and is refused."""
    endless: list[Any] = [1]
    endless.append(endless)
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        trace.bound_symbols.append(BoundSymbol(symbol("f"), (a, endless), {}, r))
        trace.bound_symbols.append(prims.python_return.bind(r, output=None))
    with pytest.raises(InvalidTraceError, match="contains itself"):
        shapetrace_rs.optimize(trace, level=level)
    endless.clear()


@each_level
def test_op_that_contains_itself(level: str) -> None:
    """It would be read for ever, and is refused."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        op = emit(trace, symbol("f", primitive=False), a, output=r)
        op.subsymbols = [op]
        trace.bound_symbols.append(prims.python_return.bind(r, output=None))
    with pytest.raises(InvalidTraceError, match="contains itself"):
        shapetrace_rs.optimize(trace, level=level)
    op.subsymbols = []


@each_level
def test_structure_that_changes_while_it_is_read(level: str) -> None:
    """Code of the user that runs in the middle may empty the very lists that are being walked."""
    held: list[Any] = []

    class Sly(Proxy):
        @property
        def name(self) -> str:
            for container in held:
                container.clear()
            return "sly"

    with new_trace() as trace:
        sly, r = Sly("sly"), tensor("r")
        ops = trace.bound_symbols
        for _ in range(20):
            arguments: Any = [sly, *(tensor(f"t{len(held)}_{k}") for k in range(20))]
            keywords = {"x": [sly, [[[sly]]]], "y": arguments}
            held += [arguments, keywords["x"], keywords]
            op = symbol("f").bind(arguments, output=[r, arguments])
            op.kwargs = keywords
            op.subsymbols = [symbol("g").bind(arguments, output=None)] * 3
            held.append(op.subsymbols)
            ops.append(op)
        del arguments, keywords, op
        held.append(ops)
    try:
        result = shapetrace_rs.optimize(trace, {*()}, level=level)
    except (shapetrace_rs.ShapetraceError, AttributeError, TypeError, IndexError, KeyError, RuntimeError):
        return
    assert isinstance(result.bound_symbols, list)


# Size.


@functools.cache
def chain(length: int) -> Any:
    """A live chain, and as many dead ops beside it."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        value, sin, cos = a, prims.sin, prims.cos
        for index in range(length):
            made, dead = tensor(f"t{index}"), tensor(f"d{index}")
            trace.bound_symbols.append(BoundSymbol(sin, (value,), {}, made))
            trace.bound_symbols.append(BoundSymbol(cos, (made,), {}, dead))
            value = made
        return finish(trace, value, a)


@each_level
def test_arguments_nested_deep(level: str) -> None:
    """A value is found ten thousand lists deep; where the lists would have to be made anew, the error says so."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        read = prims.sin(a)
        nested: Any = read
        for _ in range(10_000):
            nested = [nested]
        trace.bound_symbols.append(BoundSymbol(symbol("f"), (nested,), {}, r))
        finish(trace, r, a)
    result = shapetrace_rs.optimize(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "sin", "f", "python_return"]


def test_names_that_would_change_deep_in_arguments() -> None:
    """A structure that is too deep to be made anew is refused in words."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, 3))
        emit(trace, prims.shape, a, output=(j0, 3))
        nested: Any = j0
        for _ in range(2_000):
            nested = [nested]
        trace.bound_symbols.append(BoundSymbol(symbol("f"), (nested,), {}, r))
        finish(trace, (r, i0), a)
    with pytest.raises(InvalidTraceError, match="deep"):
        shapetrace_rs.optimize(trace)
    assert "f" in op_names(shapetrace_rs.optimize(trace, level="compat"))


@each_level
def test_op_with_many_arguments(level: str) -> None:
    """Ten thousand arguments, and as many results."""
    with new_trace() as trace:
        given = [tensor(f"a{index}") for index in range(10_000)]
        made = [tensor(f"r{index}") for index in range(10_000)]
        trace.bound_symbols.append(BoundSymbol(symbol("f"), tuple(given), {}, tuple(made)))
        finish(trace, made[-1], *given)
    needed: set[Any] = set()
    result = shapetrace_rs.optimize(trace, needed, level=level)
    assert op_names(result) == ["f", "python_return"]
    assert len(needed) == 10_001
    assert len(made_names(result)) >= 10_000


# Interruption, threads, reentrance, leaks.


def small_trace() -> Any:
    """A trace in which both levels find something to do."""
    with new_trace() as trace:
        a, b, r = tensor("a"), tensor("b"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1, j0 = integer("i0"), integer("i1", 3), integer("j0")
        emit(trace, prims.shape, a, output=(i0, i1))
        emit(trace, prims.shape, a, output=(j0, i1))
        prims.cos(a)
        inside = [symbol("noop", primitive=False).bind(a, output=a), symbol("use").bind(a, j0, output=r)]
        emit(trace, symbol("both", primitive=False), a, j0, output=r, inside=inside, key=[j0, {"x": i1}])
        emit(trace, symbol("log", tags=[EFFECT]), a, output=())
        return finish(trace, (r, i0), a, b)


@each_level
def test_interruption_in_a_predicate(level: str) -> None:
    """Ctrl-C reaches the user, and the optimizer works afterwards as before."""
    trace = small_trace()
    expected = op_names(shapetrace_rs.optimize(trace, level=level))
    calls = []

    def predicate(op: Any) -> None:
        calls.append(op)
        if len(calls) in (3, 20):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            shapetrace_rs.optimize(trace, level=level, effects=predicate)
        assert op_names(shapetrace_rs.optimize(trace, level=level, effects=predicate)) == expected
        calls = list(range(15))


@each_level
def test_predicate_that_optimizes(level: str) -> None:
    """A predicate may compile something itself, which comes back to the same optimizer."""
    trace, other = small_trace(), small_trace()
    options = {"level": level}
    expected = op_names(shapetrace_rs.optimize(trace, **options))
    depth = []

    def predicate(_: Any) -> None:
        if len(depth) < 3:
            depth.append(None)
            try:
                assert op_names(shapetrace_rs.optimize(other, effects=predicate, **options)) == expected
                assert op_names(shapetrace_rs.dce(trace))
            finally:
                depth.pop()

    depth.extend([None, None])
    assert op_names(shapetrace_rs.optimize(trace, effects=predicate, **options)) == expected


@each_level
@pytest.mark.parametrize("wait", [1, 3, 20])
def test_predicate_that_changes_what_is_read_next(level: str, wait: int) -> None:
    """What a predicate does to an op that is still to be read counts, however far ahead memory was asked for."""
    trace = chain(60)
    expected = op_names(shapetrace_rs.optimize(trace, level=level))
    assert len(expected) == 62
    early, late = trace.bound_symbols[3], trace.bound_symbols[31]
    # What lies between them is dead, until a predicate says that it is not.
    needed, late.args = late.args, early.args

    def predicate(op: Any) -> None:
        if op is trace.bound_symbols[31 - wait]:
            late.args = needed

    assert op_names(shapetrace_rs.optimize(trace, level=level, effects=predicate)) == expected


@each_level
def test_threads(level: str) -> None:
    """Several threads may optimize several traces, and one and the same trace, at once."""
    traces = [small_trace() for _ in range(3)]
    shared = chain(300)
    expected = op_names(shapetrace_rs.optimize(traces[0], level=level))
    barrier = threading.Barrier(4)

    def work(index: int) -> None:
        barrier.wait(timeout=30)
        for round_ in range(30):
            trace = traces[(index + round_) % 3]
            # The predicate runs Python code, at which threads take turns.
            effects = (lambda _: time.sleep(0)) if round_ % 3 == 0 else None
            assert op_names(shapetrace_rs.optimize(trace, level=level, effects=effects)) == expected
            assert len(shapetrace_rs.optimize(shared, level=level).bound_symbols) == 302

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, index) for index in range(4)]:
            future.result(timeout=60)


@each_level
def test_nothing_leaks(level: str) -> None:
    """A thousand calls leave no object behind and no reference to what they were given, errors included."""
    trace = small_trace()
    broken = TraceCtx()
    broken.bound_symbols = [*trace.bound_symbols, None]
    watched: list[Any] = [trace]
    for op in trace.bound_symbols:
        watched += [op, op.sym, op.args, op.kwargs, op.output, op.subsymbols, op.tags, *op.flat_proxy_args]
        watched += [*op.subsymbols, *(inside.output for inside in op.subsymbols)]

    def effects(_: Any) -> None:
        return None

    def once() -> None:
        shapetrace_rs.optimize(trace, level=level)
        shapetrace_rs.optimize(trace, set(), level=level, effects=effects)
        with pytest.raises(InvalidTraceError):
            shapetrace_rs.optimize(broken, level=level)

    for _ in range(20):
        once()
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in watched]
    objects = len(gc.get_objects())
    for _ in range(350):
        once()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in watched] == counts
    assert len(gc.get_objects()) - objects < 100


@each_level
def test_what_was_optimized_can_be_freed(level: str) -> None:
    """The optimizer keeps no trace alive: neither its ops nor its proxies outlive the last reference of the user."""
    import weakref

    class Watched:
        """A constant that tells when it is gone."""

    def make() -> Any:
        with new_trace() as trace:
            a, r = tensor("a"), tensor("r")
            constant = Watched()
            emit(trace, symbol("f"), a, constant, output=r)
            finish(trace, r, a)
        shapetrace_rs.optimize(trace, level=level)
        trace.bound_symbols.append(None)
        with pytest.raises(InvalidTraceError):
            shapetrace_rs.optimize(trace, level=level)
        return weakref.ref(constant)

    references = [make() for _ in range(10)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 10


def test_stock_error_is_seen_when_both_refuse() -> None:
    """What our optimizer refuses in a compile goes to thunder's pass, whose error the user sees."""
    with new_trace() as trace:
        a = tensor("a")
        prims.sin(a)
    with shapetrace_rs.enabled(), pytest.raises(AssertionError, match="no return"):
        transform_common.dce(trace)
