"""Random traces, made of real bound symbols, with everything that a pass over traces can meet.

A trace is drawn line by line from the values at hand. It says which kinds of lines it got, so that a test can see to
it that all kinds are reached.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import event
from hypothesis import strategies as st
from thunder.core.proxies import CollectionProxy, NumberProxy, TensorProxy

from trace_tools import EFFECT, boolean, emit, floating, integer, new_trace, prims, symbol, tensor, variables

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES: dict[str, Callable[[_Writer], None]] = {}
"""The kinds of lines, by name."""

MAX_DEPTH = 3


@dataclasses.dataclass
class Pack:
    """A structure that only dataclass-aware flattening looks into."""

    value: Any
    size: Any = None


class Drawn:
    """A random trace, what else the caller of a pass would have in hand, and what is in it."""

    def __init__(self, trace: Any, needed: set[Any] | None, features: set[str]) -> None:
        self.trace, self.needed, self.features = trace, needed, features

    def __repr__(self) -> str:
        """The lines of the trace, for the report of a failure."""
        from trace_tools import text

        names = None if self.needed is None else sorted(variable.proxy.name for variable in self.needed)
        return f"{text(self.trace)}\nneeded: {names}\nfeatures: {sorted(self.features)}"


def feature(function: Callable[[_Writer], None]) -> Callable[[_Writer], None]:
    """Registers a kind of line under the name of its function."""
    FEATURES[function.__name__.strip("_").replace("_", " ")] = function
    return function


class _Writer:
    """Writes one scope."""

    def __init__(self, draw: Any, state: _State, ops: list[Any], values: list[Any], depth: int) -> None:
        self.draw, self.state, self.ops, self.values, self.depth = draw, state, ops, values, depth

    # What a line is made of.

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(1, 100)) <= percent

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def some(self, kind: Any = None, otherwise: Any = None) -> Any:
        """A value at hand, if there is one of this kind."""
        choices = [value for value in self.values if kind is None or isinstance(value, kind)]
        return self.pick(choices) if choices else otherwise

    def fresh(self) -> Any:
        """A new value: a tensor, whose shape may have numbers in it, or a number."""
        name = self.state.name()
        kind = self.pick(["tensor", "tensor", "shaped", "integer", "boolean", "floating"])
        if kind == "tensor":
            return tensor(name)
        if kind == "shaped":
            return tensor(name, (self.some(NumberProxy, 2), 3))
        if kind == "integer":
            return integer(name, self.pick([0, 1, 2, 3]))
        return boolean(name) if kind == "boolean" else floating(name)

    def structure(self, leaves: list[Any]) -> Any:
        """The leaves in some structure, in their order where there is one."""
        if len(leaves) == 1 and self.chance(60):
            return leaves[0]
        kind = self.pick(["tuple", "list", "dict", "pack", "slice", "ordered", "nested"])
        if kind == "list":
            return list(leaves)
        if kind == "dict":
            return dict(zip("zyxwvu", leaves, strict=False))
        if kind == "ordered":
            return [collections.OrderedDict(zip("zyxwvu", leaves, strict=False))]
        if kind == "pack" and leaves:
            return Pack(leaves[0], tuple(leaves[1:]))
        if kind == "slice" and leaves and len(leaves) <= 3:
            return slice(*(*leaves, None, None)[:3])
        if kind == "nested":
            return (leaves, {"n": (None, [*leaves[:1]])})
        return tuple(leaves)

    def arguments(self) -> list[Any]:
        leaves = [value for value in (self.some() for _ in range(self.draw(st.integers(0, 3)))) if value is not None]
        literals = [self.pick([1, -1, 2.5, None, "text", True]) for _ in range(self.draw(st.integers(0, 1)))]
        return [self.structure(leaves), *literals] if leaves else literals

    def put(self, sym: Any, *args: Any, output: Any, inside: Any = (), **kwargs: Any) -> Any:
        return self.append(sym.bind(*args, output=output, subsymbols=list(inside), **kwargs))

    def append(self, op: Any) -> Any:
        self.ops.append(op)
        self.values.extend(proxy for proxy in op.flat_proxy_outs if all(proxy is not other for other in self.values))
        return op

    def write(self, lines: int) -> None:
        names = [*FEATURES, *["composite"] * 4]
        for _ in range(lines):
            name = self.pick(names)
            before = len(self.ops)
            FEATURES[name](self)
            if len(self.ops) > before:
                self.state.features.add(name)
                if self.depth:
                    self.state.features.add("nested " + name)


@dataclasses.dataclass
class _State:
    features: set[str]
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"


# The kinds of lines.


@feature
def plain(w: _Writer) -> None:
    w.put(symbol(w.pick(["f", "g", "h"])), *w.arguments(), output=w.fresh())


@feature
def keywords(w: _Writer) -> None:
    w.put(symbol("f"), *w.arguments(), output=w.fresh(), key=w.structure([w.some(otherwise=1)]), other=w.some())


@feature
def several_results(w: _Writer) -> None:
    leaves = [w.fresh() for _ in range(w.draw(st.integers(1, 3)))]
    if w.chance(50):
        leaves.insert(w.draw(st.integers(0, len(leaves))), w.pick([None, 3, "text"]))
    if w.chance(50) and (old := w.some()) is not None:
        leaves.insert(w.draw(st.integers(0, len(leaves))), old)
    w.put(symbol("many"), *w.arguments(), output=w.structure(leaves))


@feature
def shape_query(w: _Writer) -> None:
    if (queried := w.some(TensorProxy)) is None:
        return
    numbers: list[Any] = []
    for dimension in queried._shape:
        how = w.pick(["own", "new", "value"])
        hint = getattr(dimension, "value", dimension)
        own = isinstance(dimension, NumberProxy) and dimension.python_type is int
        if how == "own" and own:
            numbers.append(dimension)
        elif how == "value" and not own:
            numbers.append(hint)
        else:
            numbers.append(integer(w.state.name(), hint if type(hint) is int else 2))
    w.put(prims.shape, queried, output=tuple(numbers))


@feature
def query_again(w: _Writer) -> None:
    earlier = [op for op in w.ops if op.sym is prims.shape]
    if earlier:
        w.append(w.pick(earlier).from_bsym())


@feature
def arithmetic(w: _Writer) -> None:
    a, b = w.some(NumberProxy), w.some(NumberProxy)
    if a is None:
        return
    b = b if w.chance(50) else w.pick([0, 1, 2, -1])
    w.put(w.pick([prims.add, prims.mul, prims.sub, prims.eq, prims.div]), a, b, output=integer(w.state.name(), 2))


@feature
def duplicate(w: _Writer) -> None:
    if w.ops:
        w.append(_copied(w.pick(w.ops)))


def _copied(op: Any) -> Any:
    """A copy that shares nothing inside: thunder's pass edits what is inside, and would see its own edits."""
    return op.from_bsym(subsymbols=[_copied(inside) for inside in op.subsymbols])


@feature
def the_same_object_again(w: _Writer) -> None:
    alone = [op for op in w.ops if not op.subsymbols]
    if alone:
        w.ops.append(w.pick(alone))


@feature
def other_op_for_the_same_results(w: _Writer) -> None:
    if w.ops:
        w.put(symbol("again"), *w.arguments(), output=w.pick(w.ops).output)


@feature
def effect(w: _Writer) -> None:
    output = w.pick([(), [], {}, None, (None,), 3, "new", "known", "argument"])
    arguments = w.arguments()
    if output == "new":
        output = w.fresh()
    elif output == "known":
        output = [w.some()]
    elif output == "argument":
        output = w.some()
        arguments.append(output)
    w.put(symbol("effect", tags=[EFFECT]), *arguments, output=output)


@feature
def effect_by_its_own_tag(w: _Writer) -> None:
    w.put(symbol("f"), *w.arguments(), output=w.fresh()).tags.add(EFFECT)


@feature
def in_place(w: _Writer) -> None:
    if (changed := w.some()) is not None:
        w.put(symbol("change_", tags=w.pick([None, [prims.OpTags.IN_PLACE], [EFFECT]])), changed, output=changed)


@feature
def random_op(w: _Writer) -> None:
    w.put(symbol("draw", tags=[prims.OpTags.RANDOM_OP]), *w.arguments(), output=w.fresh())


@feature
def nothing_made(w: _Writer) -> None:
    w.put(symbol("note", primitive=w.chance(50)), *w.arguments(), output=w.pick([None, (), 3, ["text", None]]))


@feature
def comment(w: _Writer) -> None:
    w.put(prims.comment, "a remark", output=None)


@feature
def composite(w: _Writer) -> None:
    if w.depth >= MAX_DEPTH:
        return
    given = [value for value in (w.some() for _ in range(w.draw(st.integers(0, 3)))) if value is not None]
    inner = _Writer(w.draw, w.state, [], list({id(value): value for value in given}.values()), w.depth + 1)
    inner.write(w.draw(st.integers(0, 6)))
    results = [value for value in (inner.some() for _ in range(w.draw(st.integers(0, 2)))) if value is not None]
    fields = {"is_fusion": True} if w.chance(10) else {}
    if fields:
        w.state.features.add("fusion")
    w.put(
        symbol(w.pick(["both", "all"]), primitive=bool(fields), **fields),
        w.structure(given),
        output=w.structure(results),
        inside=inner.ops,
    )


@feature
def no_op(w: _Writer) -> None:
    if (value := w.some()) is not None:
        sym = symbol("noop", primitive=False, tags=[EFFECT] if w.chance(10) else None)
        inside = [sym.bind(value, output=value)] if w.chance(30) else []
        w.put(sym, value, output=value, inside=inside)


@feature
def collection(w: _Writer) -> None:
    held = [value for value in (w.some(), w.some()) if value is not None]
    if held:
        whole = CollectionProxy(held, name=w.state.name())
        w.put(prims.unpack_trivial, whole, output=whole, name=whole.name)
        w.put(prims.unpack_sequence, whole, len(held), output=held)


@feature
def dead_chain(w: _Writer) -> None:
    value = w.some()
    for _ in range(w.draw(st.integers(2, 4))):
        made = tensor(w.state.name())
        w.ops.append(symbol("dead").bind(value, output=made))
        value = made


@feature
def deleted(w: _Writer) -> None:
    if not w.depth and (value := w.some(TensorProxy)) is not None:
        w.put(prims.python_del, value, output=None)


ALL_FEATURES = {
    *FEATURES,
    *("nested " + name for name in FEATURES if name != "deleted"),
    "fusion",
    "a tuple of ops",
    "no return",
    "extra values needed",
    "an unknown value needed",
    "an undefined value",
    "an input returned",
    "nothing returned",
    "no unpack",
}


@st.composite
def traces(draw: Any, *, well_formed: bool = False) -> Drawn:
    """Random traces; `well_formed` ones return, and use nothing that nothing defines."""
    state = _State(set())
    needed = None
    with new_trace() as trace:
        number = integer("n", 2)
        # In the traces of compiles the number in a shape may be another object than the one of the same name in an op.
        mentioned = copy.copy(number) if draw(st.booleans()) else number
        inputs = [tensor("a"), tensor("b", (mentioned, 3)), number, floating("x")]
        writer = _Writer(draw, state, trace.bound_symbols, [], 0)
        for value in inputs:
            if well_formed or writer.chance(80):
                emit(trace, prims.unpack_trivial, value, output=value, name=value.name)
            else:
                state.features.add("no unpack")
            writer.values.append(value)
        if not well_formed and writer.chance(25):
            state.features.add("an undefined value")
            writer.values.append(tensor("undefined"))
        writer.write(draw(st.integers(0, 12)))
        trace.args = tuple(inputs)
        returned = [writer.some() for _ in range(draw(st.integers(0, 3)))]
        if not returned:
            state.features.add("nothing returned")
        if any(value is given for value in returned for given in inputs):
            state.features.add("an input returned")
        if well_formed or writer.chance(90):
            result = writer.structure(returned)
            output = writer.pick([None, result])
            emit(trace, prims.python_return, result, output=output)
        else:
            state.features.add("no return")
            needed = set()
        if writer.chance(30):
            state.features.add("extra values needed")
            needed = variables(*(writer.some() for _ in range(2)))
            if writer.chance(50):
                state.features.add("an unknown value needed")
                needed |= variables(tensor("ghost"))
        if not well_formed and writer.chance(15):
            state.features.add("a tuple of ops")
            trace.bound_symbols = tuple(trace.bound_symbols)
    for name in sorted(state.features):
        event(name)
    return Drawn(trace, needed, state.features)
