"""Objects of the shape of thunder's bound symbols, symbols and proxies, and a host for the native part.

The native part knows thunder only through the namespace that `shapetrace_rs._thunder.host()` makes. These classes
keep their attributes as thunder's do (frozen dataclasses, properties over `_name`, attributes that are cached later),
so the reading of attributes can be tried on each Python version without torch.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from shapetrace_rs import _core, errors

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

EFFECT, RANDOM, IN_PLACE, PRIMITIVE, FUSION, RETURN, DEFINES_NOTHING, TRUSTED, SHAPE_QUERY, USUAL_PRINTER = (
    1 << bit for bit in range(10)
)


class Proxy:
    """A value of a trace."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.prefix: str | None = None

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return self._name


class TensorProxy(Proxy):
    """A tensor with numbers in its shape."""

    def __init__(self, name: str, shape: tuple[Any, ...] = (2, 3)) -> None:
        super().__init__(name)
        self._shape = shape
        self._device, self._dtype, self._requires_grad = "cpu", "float32", False


class NumberProxy(Proxy):
    """A number that is known when the program runs."""

    def __init__(self, name: str, value: Any = 2, python_type: type = int) -> None:
        super().__init__(name)
        self.value, self.python_type = value, python_type


class CollectionProxy(Proxy):
    """A collection with a name of its own."""

    def __init__(self, name: str, coll: Any) -> None:
        super().__init__(name)
        self.coll = coll


@dataclasses.dataclass(frozen=True, eq=False)
class Variable:
    """What `needed_proxies` holds."""

    proxy: Any

    def __hash__(self) -> int:
        return hash(self.proxy.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variable) and self.proxy.name == other.proxy.name


@dataclasses.dataclass(frozen=True, eq=False)
class Symbol:
    """What an op does."""

    name: str
    flags: int = PRIMITIVE | TRUSTED | USUAL_PRINTER
    scalar: str | None = None
    tags: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class BoundSymbol:
    """An op, with the fields that thunder's have."""

    sym: Symbol
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    subsymbols: Sequence[Any] = ()
    header: Any = dataclasses.field(default_factory=list)
    source_filename: str | None = None
    source_positions: Any = None
    tags: set[Any] = dataclasses.field(default_factory=set)
    _call_ctx: Any = None
    _import_ctx: dict[str, Any] = dataclasses.field(default_factory=dict)
    _object_ctx: dict[str, Any] = dataclasses.field(default_factory=dict)
    _executor: Any = None

    @functools.cached_property
    def flat_args(self) -> tuple[Any, ...]:
        return self.args


class GrownBoundSymbol(BoundSymbol):
    """A class of its own, as some executor might have one."""


EFFECT_TAG = object()
SINK = Symbol("return", RETURN | EFFECT | DEFINES_NOTHING | TRUSTED | USUAL_PRINTER)
SHAPE = Symbol("shape", PRIMITIVE | TRUSTED | USUAL_PRINTER | SHAPE_QUERY)
COMPOSITE = Symbol("composite", TRUSTED | USUAL_PRINTER)
UNARY = tuple(Symbol(name) for name in ("sin", "cos", "exp"))
SCALARS = {name: Symbol(name, scalar=name) for name in ("add", "mul", "sub", "py_floordiv", "eq")}


def op(sym: Symbol, *args: Any, output: Any = None, inside: Sequence[Any] = (), **kwargs: Any) -> BoundSymbol:
    """One op."""
    return BoundSymbol(sym, args, kwargs, output, list(inside))


def host() -> SimpleNamespace:
    """What the native part asks for, with the toys in it."""

    def rebuild(bound_symbol: Any, changes: dict[str, Any]) -> Any:
        return dataclasses.replace(bound_symbol, **changes)

    def reshape(proxy: Any, shape: Any) -> Any:
        clone = copy.copy(proxy)
        clone._shape = shape
        return clone

    return SimpleNamespace(
        bound_symbol=BoundSymbol,
        proxy=Proxy,
        tensor_proxy=TensorProxy,
        number_proxy=NumberProxy,
        collection_proxy=CollectionProxy,
        proxy_name=Proxy.name,
        variable=Variable,
        effect_tag=EFFECT_TAG,
        symbol_facts=lambda symbol: (f"toy.{symbol.name}", symbol.flags, symbol.scalar, True),
        is_leaf=lambda _: True,
        flatten=list,
        unflatten=lambda container, children: type(container)(children),
        rebuild=rebuild,
        fields=(tuple(field.name for field in dataclasses.fields(BoundSymbol)), ()),
        reshape=reshape,
        scalar_symbol=SCALARS.__getitem__,
        invalid_trace_error=errors.InvalidTraceError,
        missing_return_error=errors.MissingReturnError,
        internal_error=errors.InternalError,
    )


def optimizer(level: str = "full", *, direct: bool = True) -> _core.Optimizer:
    """A native optimizer over the toys."""
    return _core.Optimizer(
        host(), level=level, keep_random=False, keep_shape_numbers=False, floor_division=True, direct=direct
    )


def program(random: random.Random, size: int) -> list[BoundSymbol]:
    """A program at random: chains, dead ops, shape queries, arithmetic on numbers, nested ops, tags, structures."""
    tensors: list[Any] = [TensorProxy("x"), TensorProxy("y", (4, 5))]
    numbers: list[Any] = [2, 3]
    ops: list[BoundSymbol] = []
    for index in range(size):
        source, result = random.choice(tensors), TensorProxy(f"t{index}")
        kind = random.randrange(7)
        if kind == 0:
            made = tuple(NumberProxy(f"i{index}_{place}", size) for place, size in enumerate(source._shape))
            ops.append(op(SHAPE, source, output=made))
            numbers.extend(made)
        elif kind == 1:
            name = random.choice(("add", "mul"))
            left, right = random.choice(numbers), random.choice(numbers)
            value = {"add": int.__add__, "mul": int.__mul__}[name](*(getattr(n, "value", n) for n in (left, right)))
            number = NumberProxy(f"n{index}", value)
            ops.append(op(SCALARS[name], left, right, output=number))
            numbers.append(number)
        elif kind == 2:
            inside = [op(random.choice(UNARY), source, output=TensorProxy(f"u{index}"))]
            inside += [op(random.choice(UNARY), source, output=result)]
            ops.append(op(COMPOSITE, source, output=result, inside=inside))
        elif kind == 3:
            both = [source, {"b": random.choice(tensors), "a": (random.choice(numbers),)}]
            ops.append(op(random.choice(UNARY), both, slice(None, 3), output=result, flag=random.choice(tensors)))
        else:
            ops.append(op(random.choice(UNARY), source, output=result))
        if kind > 1:
            tensors.append(result)
        if random.randrange(20) == 0:
            ops[-1].tags.add(EFFECT_TAG)
    ops.append(op(SINK, (tensors[-1], random.choice(tensors), random.choice(numbers)), output=None))
    return ops


def walk(bound_symbols: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """All ops, nested ones too."""
    found = []
    for bound_symbol in bound_symbols:
        found += [bound_symbol, *walk(bound_symbol.subsymbols)]
    return found


def disturb(bound_symbols: Sequence[BoundSymbol], random: random.Random) -> None:
    """Bring objects into the states that objects get into: asked for their `__dict__`, grown, with other keys."""
    states: list[Callable[[Any], Any]] = [
        lambda _: None,
        lambda item: item.__dict__,
        lambda item: getattr(item, "flat_args", None),
        lambda item: object.__setattr__(item, "later", 1),
        lambda item: [object.__setattr__(item, f"later_{number}", 1) for number in range(40)],
        lambda item: object.__setattr__(item, "__dict__", dict(reversed(list(item.__dict__.items())))),
        lambda item: object.__setattr__(item, "__dict__", dict(item.__dict__)),
    ]
    for bound_symbol in walk(bound_symbols):
        for item in (bound_symbol, *bound_symbol.args, bound_symbol.output):
            if isinstance(item, (BoundSymbol, Proxy)):
                random.choice(states)(item)


def needed_at_the_top(bound_symbols: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Dead code elimination of the top level, written down a second time: what level "compat" has to leave.

    Right for programs in which every value is defined once.
    """
    live: set[str] = set()
    kept = []
    for bound_symbol in reversed(bound_symbols):
        has_effect = bound_symbol.sym.flags & EFFECT or EFFECT_TAG in bound_symbol.tags
        if has_effect or names(bound_symbol.output) & live:
            kept.append(bound_symbol)
            live |= names(bound_symbol.args) | names(bound_symbol.kwargs)
    return kept[::-1]


def names(structure: Any) -> set[str]:
    """The names of the proxies in a structure."""
    if isinstance(structure, Proxy):
        return {structure.name}
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (tuple, list)):
        return set().union(*map(names, structure)) if structure else set()
    return set()


def outline(bound_symbols: Sequence[BoundSymbol]) -> list[Any]:
    """Ops as text, to compare programs by what they say."""
    return [
        (each.sym.name, repr(each.args), repr(each.kwargs), repr(each.output), outline(each.subsymbols))
        for each in bound_symbols
    ]
