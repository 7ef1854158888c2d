"""Thunder's objects as plain data: what a trace file keeps of each.

An object becomes a word and arguments that are plain data themselves; `restore` holds the way back. What cannot be
named, such as a function or a tensor, is refused: a file never holds anything that would have to be run.

The native part walks the containers and calls the functions here for everything else, once per object.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import sys
from types import SimpleNamespace
from typing import Any

from .. import _thunder
from ..errors import TraceFileError
from .places import attribute_of, is_open_module, tensor_defaults

__all__ = ["describer"]


class _NotPlainError(Exception):
    """An object that no file can hold."""


def describer() -> SimpleNamespace:
    """The functions that the native part calls while it reads a trace, under the names that it asks for.

    Returns:
        A namespace; see `Describer` in the binding crate.
    """
    serial = itertools.count()

    def describe_object(value: Any) -> tuple[str, tuple[Any, ...]]:
        shape = _thunder.counted_shape(value)
        # Thunder prints each function under a name of its own, so two of the same shape are two.
        return describe(value) if shape is None else ("element count", (shape, next(serial)))

    return SimpleNamespace(
        object=describe_object,
        proxy=describe_proxy,
        symbol=describe_symbol,
        details=_Details(),
        not_plain=_NotPlainError,
        refuse=refuse,
    )


def refuse(error: _NotPlainError, bound_symbol: Any) -> TraceFileError:
    """The error for an object that cannot be kept, with the op that holds it.

    Args:
        error: What `describe` raised.
        bound_symbol: The op; `None` if it is the trace itself.

    Returns:
        The error to raise.
    """
    name = None if bound_symbol is None else bound_symbol.sym.name
    where = "the trace" if name is None else f"op {name}"
    return TraceFileError(f"{where} holds {error}, which a file cannot keep", op=name, hint=_hint(bound_symbol))


def _hint(bound_symbol: Any) -> str:
    if bound_symbol is not None and bound_symbol.sym.is_fusion:
        return "save the trace from before the fusion pass, see thunder.last_traces"
    return "pass tensors and numbers as arguments of the function, or save an earlier trace"


def describe(value: Any) -> tuple[str, tuple[Any, ...]]:  # noqa: PLR0911 (one for each kind)
    """A word and arguments for an object that is no container of Python's own and no proxy.

    Args:
        value: The object.

    Returns:
        What `restore` makes it of. The arguments may hold further objects.
    """
    describe_type = _describers().get(type(value))
    if describe_type is not None:
        return describe_type(value)  # type: ignore[no-any-return]
    thunder = _thunder.modules()
    if isinstance(value, thunder.dtypes.dtype):
        return "dtype", (value.full_name,)
    if isinstance(value, thunder.baseutils.TagBase):
        return "tag", (*_place_of_type(type(value)), value._value)
    if isinstance(value, thunder.extend.Executor):
        return "executor", (_executor_name(value),)
    if isinstance(value, type):
        return "type", _place_of_type(value)
    if isinstance(value, thunder.enum.Enum) and is_open_module(type(value).__module__):
        return "enum", (*_place_of_type(type(value)), value.name)
    kind = type(value)
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return "dataclass", (*_place_of_type(kind), fields)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return "named tuple", (*_place_of_type(kind), *value)
    message = f"{_short(value)} of type {kind.__module__}.{kind.__qualname__}"
    raise _NotPlainError(message)


def _short(value: Any, longest: int = 60) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (a user's object, which may do anything)
        text = "an object"
    text = text.replace("\n", " ")
    return text if len(text) <= longest else text[: longest - 3] + "..."


@functools.cache
def _describers() -> dict[type, Any]:
    """What describes the objects of each type."""
    thunder, torch = _thunder.modules(), sys.modules["torch"]

    def unordered(value: Any) -> tuple[str, tuple[Any, ...]]:
        # The order of a set depends on addresses; a file must not.
        return type(value).__name__, tuple(sorted(value, key=repr))

    def named(value: Any) -> tuple[str, tuple[Any, ...]]:
        return "torch", (str(value).removeprefix("torch."),)

    def signature(value: Any) -> tuple[str, tuple[Any, ...]]:
        state = {name: item for name, item in vars(value).items() if name != "unwrapped_fn"}
        return "signature", (state,)

    describers: dict[type, Any] = {
        complex: lambda value: ("complex", (value.real, value.imag)),
        slice: lambda value: ("slice", (value.start, value.stop, value.step)),
        type(Ellipsis): lambda _: ("ellipsis", ()),
        set: unordered,
        frozenset: unordered,
        # Pairs, not a dictionary: here the order means something.
        collections.OrderedDict: lambda value: ("OrderedDict", tuple(itertools.chain.from_iterable(value.items()))),
        range: lambda value: ("range", (value.start, value.stop, value.step)),
        torch.Size: lambda value: ("torch.Size", tuple(value)),
        torch.dtype: named,
        torch.layout: named,
        torch.memory_format: named,
        torch.device: lambda value: ("torch.device", (str(value),)),
        thunder.devices.Device: lambda value: ("device", (value.device_str(),)),
        thunder.codeutils.Positions: lambda value: ("positions", tuple(value)),
        thunder.codeutils.SigInfo: signature,
        thunder.trace.TraceProvenance: lambda value: ("provenance", (value.pss,)),
        thunder.symbol.Symbol: lambda value: ("symbol of", (*describe_symbol(value),)),
    }
    return describers


def _place_of_type(kind: type) -> tuple[str, str]:
    """Module and name of a class that can be found again."""
    if is_open_module(kind.__module__) and attribute_of(kind.__module__, kind.__qualname__) is kind:
        return kind.__module__, kind.__qualname__
    if kind is type(None):
        return "builtins", "NoneType"
    message = f"the class {kind.__module__}.{kind.__qualname__}"
    raise _NotPlainError(message)


def _executor_name(executor: Any) -> str:
    thunder = _thunder.modules()
    if not isinstance(executor.name, str) or thunder.extend.get_executor(executor.name) is not executor:
        message = f"the executor {executor.name}, which is not registered with thunder"
        raise _NotPlainError(message)
    return executor.name


def describe_symbol(symbol: Any) -> tuple[Any, ...]:
    """Where a symbol is found again.

    Args:
        symbol: A thunder symbol.

    Returns:
        `("symbol", module, attribute)`, `("operation", executor, name)`, `("implementation", executor, what it
        implements)`, or `("fusion", executor, name)`.
    """
    if symbol.is_fusion and symbol.executor is not None:
        return "fusion", _executor_name(symbol.executor), symbol.name
    if symbol.executor is not None:
        name = _executor_name(symbol.executor)
        for key in (symbol.name, symbol.id):
            if isinstance(key, str) and symbol.executor.opmap.get(key) is symbol:
                return "operation", name, key
    module = getattr(symbol.module, "__name__", None)
    if module is not None and is_open_module(module) and attribute_of(module, symbol.name) is symbol:
        return "symbol", module, symbol.name
    place = _places_of_symbols.find(symbol)
    if place is not None:
        return "symbol", *place
    for implemented, info in {} if symbol.executor is None else symbol.executor.implmap.items():
        # Two operations may have one name, and then the executor lists the later one only.
        if info.symbol is symbol:
            return "implementation", _executor_name(symbol.executor), implemented
    message = f"the symbol {symbol.name}, which neither thunder nor an executor has under a name"
    raise _NotPlainError(message)


class _SymbolPlaces:
    """Where symbols are found whose name is not the one that thunder's modules keep them under."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[str, str]] = {}

    def find(self, symbol: Any) -> tuple[str, str] | None:
        """Module and attribute of a symbol; looks through the modules again for one that was not there before."""
        place = self._places.get(id(symbol))
        # An address that was another symbol's is no proof.
        if place is None or attribute_of(*place) is not symbol:
            self._refresh()
            place = self._places.get(id(symbol))
        return place

    def _refresh(self) -> None:
        symbol_type = _thunder.modules().symbol.Symbol
        self._places = {
            id(value): (module_name, name)
            for module_name, module in sorted(sys.modules.items())
            if module is not None and is_open_module(module_name)
            for name, value in sorted(vars(module).items())
            if type(value) is symbol_type
        }


_places_of_symbols = _SymbolPlaces()


def describe_proxy(proxy: Any) -> tuple[str, str, dict[str, Any]]:
    """The class of a proxy, its name and its state.

    What follows from the rest (the number of elements, of dimensions) and what is as usual is left out, and so is how
    an input was reached, which thunder needs while it traces and never again.

    Args:
        proxy: A proxy of thunder.

    Returns:
        The name of its class in `thunder.core.proxies`, its own name, and its other attributes.
    """
    thunder = _thunder.modules()
    kind = type(proxy)
    if getattr(thunder.proxies, kind.__name__, None) is not kind:
        message = f"a proxy of the class {kind.__module__}.{kind.__qualname__}"
        raise _NotPlainError(message)
    state = dict(vars(proxy))
    name = state.pop("_name")
    if isinstance(state.get("history"), thunder.interpreter.ProvenanceRecord):
        state["history"] = None
    if not state.get("_tags", True):
        del state["_tags"]
    _forget_what_follows(state)
    for attribute, usual in tensor_defaults(kind).items():
        if attribute in state and state[attribute] is usual:
            del state[attribute]
    # Kinds of strings, lists and dictionaries hold their content twice; that of the base class may differ.
    if isinstance(proxy, list):
        state["items"] = list(list.__iter__(proxy))
    elif isinstance(proxy, dict):
        state["items"] = dict(dict.items(proxy))
    elif isinstance(proxy, tuple):
        state["items"] = list(tuple.__iter__(proxy))
    # In an order of our own: that of the attributes depends on who made the proxy.
    ordered = {key: state.pop(key) for key in _FIRST_IN_STATE if key in state}
    ordered.update(sorted(state.items()) if len(state) > 1 else state)
    return kind.__name__, name, ordered


def _forget_what_follows(state: dict[str, Any]) -> None:
    """Take out of the state of a tensor what follows from its shape and its type."""
    if "_shape" not in state:
        return
    shape = state["_shape"]
    if state.get("_ndim") == len(shape):
        del state["_ndim"]
    count = state.get("_numel")
    if callable(count) or (all(type(size) is int for size in shape) and count == math.prod(shape)):
        state.pop("_numel", None)
    if state.get("_true_dtype") is state.get("_dtype"):
        state.pop("_true_dtype", None)


_FIRST_IN_STATE = ("value", "python_type", "_shape", "_device", "_dtype")


class _Details:
    """What is particular of single ops, beside arguments and output.

    How an operation of an executor is called is the same for all its ops: it is checked once.
    """

    def __init__(self) -> None:
        self._usual_calls: set[tuple[int, int]] = set()

    def __call__(self, bound_symbol: Any) -> dict[str, Any]:
        """The details of one op that are not as usual; the native part has those of the source."""
        details: dict[str, Any] = {}
        if bound_symbol.header:
            details["header"] = bound_symbol.header
        if bound_symbol.tags:
            details["tags"] = bound_symbol.tags
        if bound_symbol._executor is not None:
            details["executor"] = bound_symbol._executor
        if not self._is_called_as_usual(bound_symbol):
            if bound_symbol._call_ctx is None:
                details["call"] = None
            else:
                message = "a function of its own to be called by"
                raise _NotPlainError(message)
        return details

    def _is_called_as_usual(self, bound_symbol: Any) -> bool:
        symbol, context = bound_symbol.sym, bound_symbol._call_ctx
        if symbol.is_fusion:
            from .restore import can_compile

            return can_compile(symbol.executor)
        if symbol._bind_postprocess is None:
            return context is None
        key = (id(symbol), id(context))
        if key not in self._usual_calls:
            probe = SimpleNamespace(_call_ctx=None, sym=symbol, args=bound_symbol.args, kwargs=bound_symbol.kwargs)
            symbol._bind_postprocess(probe)
            if probe._call_ctx is not context:
                return False
            self._usual_calls.add(key)
        return True
