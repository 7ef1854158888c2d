"""Values are found, and renamed, in whatever structure thunder allows: arguments, keyword arguments and outputs."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from thunder.core.proxies import CollectionProxy, TensorProxy
from torch.fx.immutable_collections import immutable_list

import shapetrace_rs
from trace_tools import (
    LEVELS,
    assert_settled,
    copied,
    emit,
    find,
    finish,
    integer,
    made_names,
    needed_names,
    new_trace,
    op_names,
    optimized,
    prims,
    result_names,
    symbol,
    tensor,
    transform_common,
)


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclasses.dataclass
class Pack:
    zulu: Any
    alpha: Any = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    other: Any = "text"


@dataclasses.dataclass
class Inherits(Pack):
    more: Any = None


class Subclass(tuple):
    """Not a named tuple: thunder takes it for a leaf."""

    __slots__ = ()


WRAPPERS = {
    "bare": lambda value: value,
    "tuple": lambda value: (1, value, None),
    "list": lambda value: ["text", [value]],
    "dict": lambda value: {"b": value, "a": 2.0},
    "dict with int keys": lambda value: {2: value, 1: None},
    "dict with keys of several types": lambda value: {"b": None, 1: value, (3, "c"): 0, None: 1},
    "named tuple": Pair,
    "second of a named tuple": lambda value: Pair(None, [value]),
    "dataclass": Pack,
    "frozen dataclass": Frozen,
    "inherited dataclass": lambda value: Inherits(1, more=(value,)),
    "dataclass in a dataclass": lambda value: Pack(Frozen([Pack(value)]), alpha={"x": 1}),
    "start of a slice": lambda value: slice(value, None),
    "stop of a slice": lambda value: slice(None, value, 2),
    "step of a slice": lambda value: slice(0, None, value),
    "ordered dict": lambda value: collections.OrderedDict(z=1, a=value),
    "default dict": lambda value: collections.defaultdict(list, a=[value]),
    "deque": lambda value: collections.deque([None, value]),
    "bounded deque": lambda value: collections.deque([value, 1], maxlen=2),
    "immutable list": lambda value: immutable_list([value, 1]),
    "struct sequence": lambda value: torch.return_types.max((value, None)),
    "a mixture": lambda value: {
        "k": [Pair(1, (Pack(slice(None, {"deep": collections.OrderedDict(x=[value])})),))],
        "l": Pack([], {}),
    },
}

each_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
each_level = pytest.mark.parametrize("level", LEVELS)


@each_level
@each_wrapper
@pytest.mark.parametrize("keyword", [False, True], ids=["positional", "keyword"])
def test_value_is_found_in_arguments(wrap: Any, keyword: bool, level: str) -> None:
    """What an op reads from inside a structure is live, and its producer stays."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        read = prims.sin(a)
        prims.cos(a)
        i0 = integer("i0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        if keyword:
            emit(trace, symbol("use"), output=r, tensors=wrap(read), numbers=wrap(i0))
        else:
            emit(trace, symbol("use"), wrap(read), wrap(i0), output=r)
        finish(trace, r, a)
    needed: set[Any] = set()
    result = optimized(trace, needed, level=level)
    assert op_names(result) == ["unpack_trivial", "sin", "shape", "use", "python_return"]
    assert {"a", read.name, "i0", "r"} <= needed_names(needed)
    assert find(result, "use") is find(trace, "use")
    if level == "full":
        assert result_names(find(result, "shape")) == ["i0", 3]


@each_level
@each_wrapper
def test_value_is_found_in_the_return(wrap: Any, level: str) -> None:
    """What is returned inside a structure is live, and the return stays as it is."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        returned = prims.sin(a)
        prims.cos(a)
        emit(trace, prims.python_return, wrap(returned), output=None)
        trace.args = (a,)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "sin", "python_return"]
    assert result.bound_symbols[-1] is trace.bound_symbols[-1]


@each_level
@each_wrapper
def test_value_is_found_in_outputs(wrap: Any, level: str) -> None:
    """An op defines what stands anywhere in its output."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        emit(trace, symbol("make"), a, output=[wrap(r)])
        emit(trace, symbol("make"), a, output=[wrap(tensor("dead"))])
        finish(trace, r, a)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "make", "python_return"]
    assert find(result, "make") is trace.bound_symbols[1]


@each_wrapper
def test_value_is_renamed_in_arguments(wrap: Any) -> None:
    """A number that gets another name gets it inside of structures too, which keep their type and all else."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.shape, a, output=(j0, integer("j1", 3)))
        inside = [symbol("inner").bind(wrap(j0), a, output=r, named=wrap(j0))]
        before = wrap(j0)
        emit(trace, symbol("outer", primitive=False), before, a, output=r, inside=inside, named=wrap(j0))
        finish(trace, (r, i0), a)
    result = optimized(trace)
    outer = find(result, "outer")
    (inner,) = outer.subsymbols
    assert op_names(result) == ["unpack_trivial", "shape", "outer", "python_return"]
    expected = wrap(i0)
    for op in (outer, inner):
        for structure in (op.args[0], op.kwargs["named"]):
            assert type(structure) is type(expected)
            assert same(structure, expected), f"{structure} is not {expected}"
        assert op.args[1] is a
    assert same(before, wrap(j0)), "the original structure was changed"
    assert_settled(result)


def test_default_dict_and_deque_keep_what_makes_them_special() -> None:
    """A container that is made anew keeps its factory, its bound and its order."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, 3))
        emit(trace, prims.shape, a, output=(j0, 3))
        default = collections.defaultdict(list, z=j0, a=1)
        bounded = collections.deque([j0], maxlen=3)
        ordered = collections.OrderedDict(z=j0, a=1)
        plain = {"z": j0, "a": 1, 3: j0}
        emit(trace, symbol("use"), default, bounded, ordered, plain, output=r)
        finish(trace, (r, i0), a)
    default, bounded, ordered, plain = find(optimized(trace), "use").args
    assert default.default_factory is list
    assert bounded.maxlen == 3
    assert list(ordered) == ["z", "a"]
    assert list(plain) == ["z", "a", 3]
    assert all(container["z"] is i0 for container in (default, ordered, plain))


@each_level
def test_subclass_of_tuple_is_a_leaf(level: str) -> None:
    """Thunder does not look into a subclass of `tuple` that is no named tuple, so what it holds is not read."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        hidden = prims.sin(a)
        emit(trace, symbol("use"), a, Subclass((hidden,)), output=r)
        finish(trace, r, a)
    stock = transform_common.dce(copied(trace))
    assert op_names(optimized(trace, level=level)) == op_names(stock)


@each_level
def test_fields_of_a_dataclass_that_thunder_meets_later(level: str) -> None:
    """A dataclass that the optimizer meets first can be met by thunder afterwards, and the other way round."""

    @dataclasses.dataclass
    class Fresh:
        value: Any
        size: Any = None

    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.shape, a, output=(j0, integer("j1", 3)))
        read = prims.sin(a)
        trace.bound_symbols.append(symbol("use").bind(Fresh(read, j0), output=r))
        emit(trace, prims.python_return, Fresh(r, i0), output=None)
        trace.args = (a,)
    from shapetrace_rs import optimize

    result = optimize(trace, level=level)
    assert "sin" in op_names(result)
    use = find(result, "use")
    size = "i0" if level == "full" else "j0"
    assert [proxy.name for proxy in use.flat_proxy_args] == [size, read.name]
    assert [proxy.name for proxy in result.bound_symbols[-1].flat_proxy_args] == ["i0", "r"]
    transform_common.dce(copied(result))


@each_level
def test_collections_of_thunder(level: str) -> None:
    """What a collection proxy holds, and what is unpacked from it, stays."""
    with new_trace() as trace:
        a, b, r = tensor("a"), tensor("b"), tensor("r")
        collection = CollectionProxy([a, b], name="collection")
        prims.unpack_trivial(collection, name="collection")
        trace.bound_symbols.append(prims.unpack_sequence.bind(collection, 2, output=[a, b]))
        emit(trace, symbol("use"), collection, a, output=r)
        finish(trace, r, collection)
    result = optimized(trace, level=level)
    assert op_names(result) == ["unpack_trivial", "unpack_sequence", "use", "python_return"]
    assert result.bound_symbols[1] is trace.bound_symbols[1], "unpacking keeps its arity"


def test_what_a_collection_holds_counts_as_read() -> None:
    """An op that takes a collection takes what is in it; level "full" keeps that under its name."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.shape, a, output=(j0, integer("j1", 3)))
        held = prims.sin(a)
        emit(trace, symbol("use"), CollectionProxy([held, {"n": j0}], name="collection"), output=r)
        finish(trace, (r, i0), a)
    result = optimized(trace)
    assert "sin" in op_names(result)
    assert {"i0", "j0"} & made_names(result)
    assert find(result, "use").args[0].coll[1]["n"].name in made_names(result)


@each_level
def test_leaves_that_must_not_be_asked(level: str) -> None:
    """Constants are carried along without being compared, hashed or tested."""

    class Prickly:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __bool__(self) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    constants = (Prickly(), torch.ones(3), torch.float32, Ellipsis, int, b"bytes", 1j, {1, 2}, frozenset([3]), object())
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        for _ in range(2):
            emit(trace, symbol("use"), a, constants, [*constants], output=r)
        finish(trace, r, a)
    result = optimized(trace, level=level)
    assert result.bound_symbols[1] is trace.bound_symbols[1]
    assert op_names(result)[:2] == ["unpack_trivial", "use"]


def same(a: Any, b: Any) -> bool:
    """Whether two structures are alike, with the very same proxies in them."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    return a is b or (not hasattr(a, "name") and a == b)


class MadeWhenAsked(CollectionProxy):
    """A collection that nobody keeps: each time it is asked for, it is another, of other proxies."""

    @property
    def coll(self) -> list[Any]:
        made = [copy.copy(self.like) for _ in range(60)]
        for number, proxy in enumerate(made):
            proxy._name = f"held_{number}"
        return made

    @coll.setter
    def coll(self, like: Any) -> None:
        self.like = like


@pytest.mark.parametrize("effects", [None, lambda _: None])
def test_what_a_collection_makes_when_asked_lives_as_long_as_it_is_looked_at(effects: Any) -> None:
    """The proxies are gone with the list, were they not held; and the values are known by their names."""
    with new_trace() as trace:
        x, r = tensor("x"), tensor("r")
        held = [tensor(f"held_{number}") for number in range(40)]
        for value in held:
            emit(trace, symbol("f"), x, output=value)
        emit(trace, symbol("use"), MadeWhenAsked(x, name="collection"), output=r)
        for value in held:
            emit(trace, symbol("g"), value, output=tensor(f"of_{value.name}"))
        finish(trace, r, x)
        for _ in range(50):
            assert op_names(optimized(trace, effects=effects)) == ["f"] * 40 + ["use", "python_return"]


class ShapedWhenAsked(TensorProxy):
    """The same of a shape."""

    @property
    def _shape(self) -> tuple[Any, ...]:
        made = [copy.copy(self.like) for _ in range(60)]
        for number, proxy in enumerate(made):
            proxy._name = f"size_{number}"
        return tuple(made)

    @_shape.setter
    def _shape(self, _: Any) -> None:
        pass


def test_a_shape_that_is_made_when_asked_lives_as_long_as_it_is_looked_at() -> None:
    """As above: what the shape has in it is known by name, and is gone with the tuple."""
    with new_trace() as trace:
        n, r = integer("n"), tensor("r")
        ShapedWhenAsked.like = n
        odd = copy.copy(tensor("odd"))
        odd.__class__ = ShapedWhenAsked
        for number in range(40):
            emit(trace, symbol("f"), n, output=integer(f"size_{number}"))
        emit(trace, symbol("use"), odd, n, output=r)
        finish(trace, r, odd, n)
        for _ in range(50):
            assert op_names(shapetrace_rs.optimize(trace)) == ["use", "python_return"]
            kept = shapetrace_rs.optimize(trace, keep_shape_numbers=True)
            assert op_names(kept) == ["f"] * 40 + ["use", "python_return"]
