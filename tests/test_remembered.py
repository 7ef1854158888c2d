"""A list that comes again is not read again: only if nothing in it is different, wherever, and however it came about.

What is remembered must never be seen: an optimizer that met the list before gives what one gives that did not.
"""

from __future__ import annotations

import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thunder.core import devices, prims
from thunder.core.proxies import CollectionProxy, FloatProxy, IntegerProxy, NumberProxy, Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol

from shapetrace_rs import _core, _thunder
from trace_strategies import Drawn, traces
from trace_tools import (
    EFFECT,
    LEVELS,
    emit,
    examples,
    find,
    finish,
    floating,
    integer,
    new_trace,
    op_names,
    symbol,
    tensor,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable

each_level = pytest.mark.parametrize("level", LEVELS)


def optimizer(level: str, remember_from: int = 1) -> _core.Optimizer:
    """A native optimizer that has met nothing yet."""
    return _core.Optimizer(
        _thunder.host(),
        level=level,
        keep_random=False,
        keep_shape_numbers=False,
        floor_division=True,
        remember_from=remember_from,
    )


def outcome(made: _core.Optimizer, ops: Any) -> Any:
    """What a call gives: ops that did not change by identity, all others as they look; or the error."""
    given = {id(op) for op in walk(ops)}

    def look(value: Any) -> Any:
        if isinstance(value, Proxy):
            numbers = (value.value, value.python_type) if isinstance(value, NumberProxy) else None
            shape = vars(value).get("_shape")
            # A shape may have the very tensor in it: anything may.
            dimensions = [getattr(part, "name", part) for part in shape] if isinstance(shape, (tuple, list)) else shape
            return (type(value), value.name, numbers, dimensions)
        if isinstance(value, (tuple, list)):
            return (type(value), [look(part) for part in value])
        if isinstance(value, dict):
            return {key: look(part) for key, part in value.items()}
        if isinstance(value, slice):
            return (value.start, value.stop, value.step)
        return (type(value), repr(value))

    def tree(op: Any) -> Any:
        if id(op) in given:
            return id(op)
        return (id(op.sym), look(op.args), look(op.kwargs), look(op.output), [tree(inner) for inner in op.subsymbols])

    try:
        kept, statistics = made.run(ops)
    except Exception as error:  # noqa: BLE001 (whatever it is, it must be the same)
        return (type(error), str(error))
    counts = (statistics.ops_in, statistics.nested_in, statistics.nested_out, statistics.removed, statistics.renamed)
    warnings = ([id(op) for op in statistics.only_hands_back], [id(op) for op in statistics.kept_for_effect])
    return ([tree(op) for op in kept], counts, warnings)


def meet(made: _core.Optimizer, ops: Any) -> bool:
    """Shows a list to an optimizer until it may know it; whether it does."""
    # The first call learns of symbols and types, which runs Python code; the second reads without any.
    return [made.run(ops)[1].remembered for _ in range(3)][-1]


FOLD = symbol("fold", tags=[prims.OpTags.RANDOM_OP])


def example() -> Any:
    """A trace in which there is something of everything that is read, dead and alive."""
    with new_trace() as trace:
        a, b, n, x = tensor("a"), tensor("b"), integer("n", 3), floating("x")
        inside = tensor("inside")
        collection, other = CollectionProxy([a, b], name="C"), Proxy(name="other")
        wide = tensor("wide", (n, 2))
        emit(trace, symbol("f"), a, (b, [n, 4], other), output=tensor("f"), key={"deep": [x]})
        composite = symbol("g", primitive=False)
        inner = [symbol("h").bind(a, output=inside), symbol("i").bind(inside, output=tensor("i"))]
        emit(trace, composite, a, output=inside, inside=inner)
        emit(trace, FOLD, b, output=tensor("random"))
        emit(trace, prims.mul, n, 2, output=integer("twice", 6))
        emit(trace, prims.shape, wide, output=(n, integer("two", 2)))
        emit(trace, symbol("take"), a, slice(0, n, 2), output=(wide, tensor("rest")))
        emit(trace, prims.unpack_sequence, collection, 2, output=[a, b])
        emit(trace, symbol("effect", tags=[EFFECT]), a, output=None)
        finish(trace, (inside, wide), a, b, n, x, collection)
    return trace


def set_tag(trace: Any) -> None:
    find(trace, "f").tags.add(EFFECT)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an op less": lambda trace: trace.bound_symbols.pop(0),
    "an op more": lambda trace: trace.bound_symbols.insert(0, copy.copy(trace.bound_symbols[0])),
    "another op": lambda trace: trace.bound_symbols.__setitem__(0, copy.copy(trace.bound_symbols[1])),
    "another order": lambda trace: trace.bound_symbols.insert(0, trace.bound_symbols.pop(1)),
    "another symbol": lambda trace: setattr(find(trace, "f"), "sym", symbol("f", tags=[EFFECT])),
    "other arguments": lambda trace: setattr(find(trace, "f"), "args", (tensor("new"),)),
    "an argument in a list": lambda trace: find(trace, "f").args[1][1].append(tensor("new")),
    "an argument exchanged in a list": lambda trace: find(trace, "f").args[1][1].__setitem__(1, tensor("new")),
    "a keyword less": lambda trace: find(trace, "f").kwargs.clear(),
    "a keyword more": lambda trace: find(trace, "g").kwargs.update(key=tensor("new")),
    "a keyword exchanged": lambda trace: find(trace, "f").kwargs["key"].update(deep=tensor("new")),
    "another output": lambda trace: setattr(find(trace, "g"), "output", tensor("new")),
    "an output less in a list": lambda trace: find(trace, "unpack_sequence").output.pop(),
    "another return": lambda trace: setattr(trace.bound_symbols[-1], "args", (find(trace, "f").output,)),
    "a tag of an op": set_tag,
    "a tag of an op inside": lambda trace: find(trace, "g").subsymbols[0].tags.add(EFFECT),
    "a tag of a symbol": lambda trace: find(trace, "fold").sym.tags.__setitem__(0, EFFECT),
    "an op less inside": lambda trace: find(trace, "g").subsymbols.pop(),
    "an op more inside": lambda trace: find(trace, "f").subsymbols.append(copy.copy(trace.bound_symbols[1])),
    "nothing inside": lambda trace: setattr(find(trace, "g"), "subsymbols", ()),
    "another name": lambda trace: setattr(find(trace, "f").output, "_name", "inside"),
    "another class of an argument": lambda trace: setattr(find(trace, "f").args[1][0], "__class__", Proxy),
    "another class of an output": lambda trace: setattr(find(trace, "mul").output, "__class__", FloatProxy),
}

FULL_CHANGES: dict[str, Callable[[Any], Any]] = {
    "the value of a number": lambda trace: setattr(find(trace, "mul").output, "value", 7),
    "the type of a number": lambda trace: setattr(find(trace, "mul").output, "python_type", float),
    "the shape of a tensor": lambda trace: setattr(find(trace, "shape").args[0], "_shape", (integer("m", 3), 2)),
    "the name of a number in a shape": lambda trace: setattr(
        find(trace, "shape").args[0], "_shape", (copy.copy(find(trace, "mul").output), 2)
    ),
    "what a collection is": lambda trace: setattr(find(trace, "unpack_sequence").args[0], "coll", [tensor("new")]),
    "what a collection holds": lambda trace: find(trace, "unpack_sequence").args[0].coll.pop(),
    "a literal of arithmetic": lambda trace: setattr(find(trace, "mul"), "args", (find(trace, "mul").args[0], 1)),
}


@each_level
def test_a_list_that_comes_again_is_known(level: str) -> None:
    """Or the tests below would show nothing; and what comes of it is the same."""
    trace = example()
    made = optimizer(level)
    assert meet(made, trace.bound_symbols)
    # Not the list counts, but what is in it.
    for again in (list(trace.bound_symbols), tuple(trace.bound_symbols)):
        assert outcome(made, again) == outcome(optimizer(level), again)
        assert made.run(again)[1].remembered


@each_level
@pytest.mark.parametrize("change", [*CHANGES, *FULL_CHANGES])
def test_a_change_in_place_is_seen(change: str, level: str) -> None:
    """Each of them, at each level that looks at it; what comes of the list is what it is to one that never saw it."""
    trace = example()
    made, other = optimizer(level), optimizer(level)
    assert meet(made, trace.bound_symbols)
    assert meet(other, trace.bound_symbols)
    before = list(FOLD.tags)
    # What was there before still looks as it did, for whoever should look at it and not at what is there now.
    held = [copy.copy(vars(thing)) for op in walk(trace) for thing in (op, *op.flat_proxy_args, *op.flat_proxy_outs)]
    try:
        with new_trace():
            (CHANGES | FULL_CHANGES)[change](trace)
        if level == "full" or change in CHANGES:
            assert not made.run(trace.bound_symbols)[1].remembered
        assert outcome(other, trace.bound_symbols) == outcome(optimizer(level), trace.bound_symbols)
        del held
    finally:
        FOLD.tags[:] = before


def at_address(address: int, make: Callable[[], Any]) -> Any:
    """What `make` gives, made until it lies at an address that was given up just now, or else the last one made.

    Which free place the interpreter takes next depends on what went before. Those that come first are held, so that
    they take the other places.
    """
    taken = []
    for _ in range(20_000):
        made = make()
        if id(made) == address:
            break
        taken.append(made)
    return made


@each_level
def test_another_object_at_the_same_address_is_seen(level: str) -> None:
    """No object of a trace is held, so a new one may be where an old one was."""
    trace = example()
    made = optimizer(level)
    met = 0
    for index in range(50):
        assert meet(made, trace.bound_symbols)
        op = find(trace, "f")
        with new_trace():
            first, second = tensor(f"first{index}"), tensor(f"second{index}")
        address = id(op.args)
        op.args = None
        op.args = at_address(address, lambda first=first, second=second, index=index: (first, [second, index]))
        met += id(op.args) == address
        assert not made.run(trace.bound_symbols)[1].remembered
        assert outcome(made, trace.bound_symbols) == outcome(optimizer(level), trace.bound_symbols)
    assert met > 0, "no address came twice: this showed nothing"


def test_another_number_at_the_same_address_is_seen() -> None:
    """Arithmetic reads literals, and a new one may be where an old one was."""
    trace = example()
    made = optimizer("full")
    op = find(trace, "mul")
    number = op.args[0]
    met = 0
    for index in range(50):
        op.args = (number, 1000 + index)
        assert meet(made, trace.bound_symbols)
        of_arguments, of_literal = id(op.args), id(op.args[1])
        op.args = None
        literal = at_address(of_literal, lambda index=index: 5000 + index)
        op.args = at_address(of_arguments, lambda literal=literal: (number, literal))
        met += (id(op.args), id(op.args[1])) == (of_arguments, of_literal)
        assert not made.run(trace.bound_symbols)[1].remembered
    assert met > 0, "no address came twice: this showed nothing"


@each_level
def test_a_proxy_at_the_address_of_a_literal_is_seen(level: str) -> None:
    """An argument was no value, and is one now: the op that makes it must not go."""
    with new_trace() as trace:
        x, y, r = tensor("x"), tensor("y"), tensor("r")
        emit(trace, symbol("f"), x, output=y)
        place: list[Any] = [None]
        emit(trace, symbol("g"), x, place, output=r)
        finish(trace, r, x)
    made = optimizer(level)
    attributes = list(vars(y).items())
    met = 0
    for _ in range(50):
        place[0] = object.__new__(devices.Device)
        assert meet(made, trace.bound_symbols)
        assert "f" not in op_names(made.run(trace.bound_symbols)[0])
        address = id(place[0])
        place[0] = None
        twin = at_address(address, lambda: object.__new__(TensorProxy))
        for name, value in attributes:
            setattr(twin, name, value)
        place[0] = twin
        met += id(twin) == address
        assert "f" in op_names(made.run(trace.bound_symbols)[0])
        del twin
    assert met > 0, "no address came twice: this showed nothing"


@each_level
def test_other_calls_in_between_are_not_taken_for_it(level: str) -> None:
    """What is needed beside the list, what it gives, other lists, and looking at it with the verifier."""
    trace, other = example(), example()
    made = optimizer(level)
    expected = outcome(optimizer(level), trace.bound_symbols)
    of_other = outcome(optimizer(level), other.bound_symbols)
    alone = find(trace, "f").output
    between: list[Callable[[], Any]] = [
        lambda: made.verify(trace.bound_symbols),
        lambda: made.verify(other.bound_symbols),
        lambda: made.run(trace.bound_symbols, None, set()),
        lambda: made.run(trace.bound_symbols[:-1], alone),
        lambda: made.run(other.bound_symbols),
        lambda: made.explain(trace.bound_symbols),
        lambda: made.explain(other.bound_symbols),
    ]
    for call in between:
        assert meet(made, trace.bound_symbols)
        call()
        assert outcome(made, trace.bound_symbols) == expected
        assert meet(made, trace.bound_symbols)
        call()
        assert outcome(made, other.bound_symbols) == of_other
    assert meet(made, trace.bound_symbols)
    kept = made.run(trace.bound_symbols, alone)[0]
    assert "f" in op_names(kept), "what the list gives is asked for, not remembered"


@each_level
def test_nothing_of_a_trace_is_kept_alive(level: str) -> None:
    """A trace may hold on to modules and their memory."""
    trace = example()
    made = optimizer(level)
    assert meet(made, trace.bound_symbols)
    objects = [trace, *walk(trace), *(proxy for op in walk(trace) for proxy in op.flat_proxy_args)]
    alive = [weakref.ref(thing) for thing in objects]
    del trace, objects
    gc.collect()
    assert [reference() for reference in alive if reference() is not None] == []
    # And what is known of it leads nowhere.
    fresh = example()
    assert outcome(made, fresh.bound_symbols) == outcome(optimizer(level), fresh.bound_symbols)


@each_level
def test_short_lists_are_not_remembered(level: str) -> None:
    """To know them again would take as long as to read them."""
    trace = example()
    assert not meet(optimizer(level, remember_from=len(trace.bound_symbols) + 1), trace.bound_symbols)
    assert meet(optimizer(level, remember_from=len(trace.bound_symbols)), trace.bound_symbols)


@each_level
def test_results_of_two_calls_share_nothing_that_was_made_anew(level: str) -> None:
    """The caller may edit what it gets: the next call must not hand out the same objects."""
    trace = example()
    made = optimizer(level)
    assert meet(made, trace.bound_symbols)
    given = {id(op) for op in walk(trace)}
    first, second = made.run(trace.bound_symbols)[0], made.run(trace.bound_symbols)[0]
    assert first is not second
    shared = {id(op) for op in first} & {id(op) for op in second}
    assert shared <= given


class Chooser:
    """Draws what a change needs."""

    def __init__(self, data: Any, trace: Any) -> None:
        self._data = data
        self.ops = list(walk(trace))
        parts = [part for op in self.ops for part in (*(op.args if isinstance(op.args, tuple) else ()), op.output)]
        with new_trace():
            self._proxies = [*(part for part in parts if isinstance(part, Proxy)), tensor("new")]

    def one(self, choices: Any) -> Any:
        return self._data.draw(st.sampled_from(list(choices)))

    def proxy(self) -> Any:
        return self.one(self._proxies)

    def op(self) -> Any:
        """With nothing inside, for it may go inside anything."""
        op = copy.copy(self.one(self.ops))
        op.subsymbols = []
        return op

    def anything(self) -> Any:
        proxy = self.proxy()
        return self.one([proxy, (proxy,), [proxy, 1], None, 3, ()])


ATTRIBUTES: dict[str, Callable[[Chooser], Any]] = {
    "args": Chooser.anything,
    "output": Chooser.anything,
    "value": lambda choose: choose.one([2, 3, 2.5, True, None, "a string"]),
    "_shape": Chooser.anything,
    "coll": Chooser.anything,
    "_name": lambda choose: choose.proxy().name,
    "python_type": lambda choose: choose.one([int, float, bool]),
    "sym": lambda choose: choose.one(choose.ops).sym,
    "kwargs": lambda choose: choose.one([{}, {"key": choose.proxy()}]),
    "subsymbols": lambda choose: choose.one([[], [choose.op()]]),
    "tags": lambda choose: choose.one([{EFFECT}, set()]),
}


def change_attribute(thing: Any, choose: Chooser) -> None:
    """Of an op or a proxy."""
    name = choose.one(name for name in ATTRIBUTES if name in vars(thing))
    setattr(thing, name, ATTRIBUTES[name](choose))


def change_class(thing: Any, choose: Chooser) -> None:
    """Of a number."""
    thing.__class__ = choose.one([FloatProxy, IntegerProxy])


def change_scope(thing: list[Any], choose: Chooser) -> None:
    """A list of ops."""
    _change_list(thing, choose.op(), choose)


def change_list(thing: list[Any], choose: Chooser) -> None:
    """One among arguments."""
    _change_list(thing, choose.anything(), choose)


def _change_list(thing: list[Any], new: Any, choose: Chooser) -> None:
    place = choose.one(range(len(thing) + 1))
    choose.one([thing.insert, thing.__setitem__ if place < len(thing) else thing.insert])(place, new)
    if choose.one([True, False]):
        del thing[place : place + 1]
        thing.reverse()


def change_dict(thing: dict[Any, Any], choose: Chooser) -> None:
    """One among arguments."""
    if choose.one([True, False]):
        thing.clear()
    thing[choose.one(["new", *map(str, thing)])] = choose.anything()


def changes_of(trace: Any) -> list[tuple[Callable[[Any, Chooser], None], Any]]:
    """Every place where a trace can be changed, and how."""
    found: list[tuple[Callable[[Any, Chooser], None], Any]] = []
    seen: set[int] = set()
    pending: list[Any] = [trace.bound_symbols]
    scopes = {id(trace.bound_symbols), *(id(op.subsymbols) for op in walk(trace))}
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, (Proxy, BoundSymbol)):
            found.append((change_attribute, thing))
            pending += [vars(thing)[name] for name in ATTRIBUTES if name in vars(thing) and name != "sym"]
            if isinstance(thing, IntegerProxy):
                found.append((change_class, thing))
        elif isinstance(thing, (tuple, list)):
            pending += thing
            if isinstance(thing, list):
                found.append((change_scope if id(thing) in scopes else change_list, thing))
        elif isinstance(thing, dict):
            pending += thing.values()
            found.append((change_dict, thing))
    return found


@each_level
@given(drawn=traces(), data=st.data())
@examples(60)
def test_any_change_anywhere_is_seen(level: str, drawn: Drawn, data: Any) -> None:
    """Random traces, changed in place at random, again and again, under one optimizer that remembers."""
    trace = drawn.trace
    made = optimizer(level)
    for _ in range(3):
        for _ in range(3):
            outcome(made, trace.bound_symbols)
        if not trace.bound_symbols:
            return
        choose = Chooser(data, trace)
        change, thing = choose.one(changes_of(trace))
        change(thing, choose)
        assert outcome(made, trace.bound_symbols) == outcome(optimizer(level), trace.bound_symbols)
