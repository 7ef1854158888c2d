"""What the native part needs to know of thunder: its types, its tags, and what is true of each symbol.

Everything here runs once per process or once per symbol, never per op.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import operator
from types import SimpleNamespace
from typing import Any

from . import errors
from .versions import check_versions

__all__ = [
    "counted_shape",
    "element_count",
    "floor_division_can_run",
    "host",
    "make_runnable",
    "symbol_facts",
    "trace_module",
    "withdraw_implementations",
]

# The bits of `SymbolFlags` in the core.
EFFECT = 1
RANDOM = 1 << 1
IN_PLACE = 1 << 2
PRIMITIVE = 1 << 3
FUSION = 1 << 4
RETURN = 1 << 5
DEFINES_NOTHING = 1 << 6
TRUSTED = 1 << 7
SHAPE_QUERY = 1 << 8
USUAL_PRINTER = 1 << 9

_SCALAR_PRIMITIVES = frozenset(
    "ADD SUB MUL DIV PY_FLOORDIV REMAINDER FMOD POW EQ NE LT LE GT GE BITWISE_AND BITWISE_OR BITWISE_XOR "  # noqa: SIM905
    "SIGNBIT NEG PY_ABS CONVERT_ELEMENT_TYPE".split()
)
"""Primitives of thunder that are arithmetic when they are applied to numbers; the core knows them by these names."""

_EFFECTS_WITHOUT_A_TAG = ("ASSERT_TENSOR_METADATA", "ASSERT_COMPARE", "PACK_SETITEM")
"""thunder's primitives that define nothing, raise or write, and are not tagged for it."""

_RANDOM_WITHOUT_A_TAG = ("dropout", "multinomial_helper", "randint", "randn", "uniform")
"""Primitives of thunder, and operations of its executors, that draw random numbers and are not all tagged for it."""

_LANGUAGES = ("thunder.torch", "thunder.clang", "thunder.numpy", "thunder.core")
"""Modules whose composites consist of their subsymbols and do nothing else."""


@functools.cache
def modules() -> SimpleNamespace:
    """All of thunder that is used here, imported at the first use.

    Raises:
        UnsupportedVersionError: thunder or torch is missing or has an unsuitable version.
    """
    check_versions()
    load = importlib.import_module
    return SimpleNamespace(
        enum=load("enum"),
        baseutils=load("thunder.core.baseutils"),
        codeutils=load("thunder.core.codeutils"),
        devices=load("thunder.core.devices"),
        dtypes=load("thunder.core.dtypes"),
        interpreter=load("thunder.core.interpreter"),
        prims=load("thunder.core.prims"),
        proxies=load("thunder.core.proxies"),
        pytree=load("thunder.core.pytree"),
        symbol=load("thunder.core.symbol"),
        compile_data=load("thunder.core.compile_data"),
        trace=load("thunder.core.trace"),
        extend=load("thunder.extend"),
        pythonex=load("thunder.executors.pythonex"),
        torchex=load("thunder.executors.torchex"),
        custom_op_ex=load("thunder.executors.custom_op_ex"),
        optree=load("optree"),
    )


@functools.cache
def host() -> SimpleNamespace:
    """Thunder's types and functions under the names that the native part asks for.

    Returns:
        A namespace; see `Host` in the binding crate.

    Raises:
        UnsupportedVersionError: thunder or torch is missing or has an unsuitable version.
    """
    thunder = modules()
    proxies, prims = thunder.proxies, thunder.prims
    return SimpleNamespace(
        bound_symbol=thunder.symbol.BoundSymbol,
        proxy=proxies.Proxy,
        tensor_proxy=thunder.baseutils.TensorProxyInterface,
        number_proxy=thunder.baseutils.NumberProxyInterface,
        collection_proxy=proxies.CollectionProxy,
        proxy_name=proxies.Proxy.name,
        variable=proxies.Variable,
        effect_tag=prims.OpTags.DONT_DCE,
        symbol_facts=symbol_facts,
        is_leaf=_is_leaf,
        flatten=_children,
        unflatten=_with_children,
        rebuild=rebuild,
        fields=_fields_to_copy(thunder.symbol.BoundSymbol),
        reshape=_reshape,
        scalar_symbol=_scalar_symbol,
        invalid_trace_error=errors.InvalidTraceError,
        missing_return_error=errors.MissingReturnError,
        internal_error=errors.InternalError,
    )


def symbol_facts(symbol: Any) -> tuple[str, int, str | None, bool]:
    """What is true of every op of a symbol.

    Args:
        symbol: A thunder `Symbol`.

    Returns:
        Its name with the module or executor it is from, its flags, the scalar arithmetic that it is, and whether the
        answer may be kept beyond the call (not for symbols that are made for one compile).
    """
    thunder = modules()
    tags = symbol.tags or ()
    op_tags, ids = thunder.prims.OpTags, thunder.prims.PrimIDs
    is_primitive_of_thunder = type(symbol.id) is ids and symbol.executor is None
    is_composite_of_thunder = (
        symbol.executor is None and not symbol.is_prim and _module_name(symbol).startswith(_LANGUAGES)
    )
    draws = (is_primitive_of_thunder or symbol.executor is not None) and symbol.name in _RANDOM_WITHOUT_A_TAG
    has_hidden_effect = is_primitive_of_thunder and symbol.id.name in _EFFECTS_WITHOUT_A_TAG
    facts = {
        EFFECT: op_tags.DONT_DCE in tags,
        RANDOM: op_tags.RANDOM_OP in tags or symbol.id == "torch.nn.functional.dropout" or draws,
        IN_PLACE: op_tags.IN_PLACE in tags,
        PRIMITIVE: symbol.is_prim,
        FUSION: symbol.is_fusion,
        RETURN: symbol.id is ids.RETURN,
        DEFINES_NOTHING: is_primitive_of_thunder and symbol.id in (ids.RETURN, ids.COMMENT, ids.PRINT),
        TRUSTED: (is_primitive_of_thunder or is_composite_of_thunder) and not has_hidden_effect,
        SHAPE_QUERY: symbol.id is ids.SHAPE or any(symbol is query for query in _executor_queries()),
        USUAL_PRINTER: symbol.python_printer is thunder.symbol.default_python_printer,
    }
    flags = sum(bit for bit, holds in facts.items() if holds)
    scalar = symbol.id.name.lower() if is_primitive_of_thunder and symbol.id.name in _SCALAR_PRIMITIVES else None
    keep = not symbol.is_fusion and not isinstance(symbol.executor, thunder.extend.TemporaryExecutor)
    origin = symbol.executor.name if symbol.executor is not None else _module_name(symbol).rpartition(".")[2]
    return (f"{origin}.{symbol.name}" if origin else symbol.name, flags, scalar, keep)


def _module_name(symbol: Any) -> str:
    """The module that a symbol is called from, or an empty string."""
    module = symbol.module
    return str(getattr(module, "__name__", ""))


def _executor_queries() -> tuple[Any, ...]:
    """The operations with which thunder's own executors ask for a shape."""
    thunder = modules()
    return (thunder.pythonex.shape, thunder.torchex.shape)


def floor_division_can_run() -> bool:
    """Whether an executor that is always there runs Python's floor division as one op.

    Returns:
        `True` if `prims.py_floordiv` exists and one of thunder's always-executors implements it.
    """
    thunder = modules()
    identity = getattr(thunder.prims.PrimIDs, "PY_FLOORDIV", None)
    return identity is not None and any(
        identity in executor.implmap for executor in thunder.extend.get_always_executors()
    )


def _scalar_symbol(name: str) -> Any:
    """Thunder's primitive for a scalar operation of the core."""
    return getattr(modules().prims, name)


def _is_leaf(value: Any) -> bool:
    """Whether thunder's flattening takes an object for a leaf."""
    thunder = modules()
    return bool(thunder.optree.tree_is_leaf(value, none_is_leaf=True, namespace=thunder.pytree.OPTREE_NAMESPACE))


def _one_level(container: Any) -> tuple[list[Any], Any]:
    """The direct children of a container that is no dataclass, and how to put it together again."""
    thunder = modules()
    return thunder.optree.tree_flatten(  # type: ignore[no-any-return]
        container,
        is_leaf=lambda item: item is not container,
        none_is_leaf=True,
        namespace=thunder.pytree.OPTREE_NAMESPACE,
    )


def _children(container: Any) -> list[Any]:
    """The direct children of a container that is not walked natively."""
    return list(_one_level(container)[0])


def _with_children(container: Any, children: list[Any]) -> Any:
    """A container like this one with other direct children."""
    if isinstance(container, slice):
        return slice(*children)
    if dataclasses.is_dataclass(container):
        # Not through thunder's flattening, which flattens all that is inside at once. Nor through the initializer:
        # it need not take the fields.
        made = copy.copy(container)
        names = sorted(field.name for field in dataclasses.fields(container))
        for name, child in zip(names, children, strict=True):
            object.__setattr__(made, name, child)
        return made
    return modules().optree.tree_unflatten(_one_level(container)[1], children)


def rebuild(bound_symbol: Any, changes: dict[str, Any]) -> Any:
    """A bound symbol with some fields changed.

    thunder's `from_bsym` would run the symbol's post-processing again, which resets the call context of a fusion and
    makes stateful executors allocate their state anew; an op that is only renamed or loses a result needs neither.

    Args:
        bound_symbol: The original; not changed.
        changes: The fields that differ.

    Returns:
        A new bound symbol with fresh caches.
    """
    take = changes.get
    # Another symbol is printed and run in its own way, and its imports are its own.
    same = "sym" not in changes
    return type(bound_symbol)(
        sym=bound_symbol.sym if same else changes["sym"],
        args=take("args", bound_symbol.args),
        kwargs=take("kwargs", bound_symbol.kwargs if same else {}),
        output=take("output", bound_symbol.output),
        subsymbols=take("subsymbols", bound_symbol.subsymbols),
        header=bound_symbol.header,
        source_filename=take("source_filename", bound_symbol.source_filename),
        source_positions=take("source_positions", bound_symbol.source_positions),
        tags=changes["tags"] if "tags" in changes else bound_symbol.tags.copy(),
        _call_ctx=bound_symbol._call_ctx if same else None,
        _import_ctx=bound_symbol._import_ctx if same else {},
        _object_ctx=bound_symbol._object_ctx if same else {},
        _executor=bound_symbol._executor,
    )


_COPIED = (
    *("sym", "args", "kwargs", "output", "subsymbols", "header", "source_filename", "source_positions", "tags"),
    *("_call_ctx", "_import_ctx", "_object_ctx", "_executor"),
)
_EMPTY = ("_line_no",)


def _fields_to_copy(bound_symbol_class: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """What `rebuild` sets if the symbol stays, for the native part to do the same without running Python code.

    Args:
        bound_symbol_class: Thunder's `BoundSymbol`.

    Returns:
        The fields that a new bound symbol has from the original, and those that are `None` in it, in the order in which
        the class sets them. `None` if the class does more, or other things, than the one that is known here.
    """
    known = (
        tuple(field.name for field in dataclasses.fields(bound_symbol_class)) == _COPIED + _EMPTY
        and bound_symbol_class.__new__ is object.__new__
        and bound_symbol_class.__setattr__ is object.__setattr__
        # It turns `args` into a tuple, which they are by then.
        and bound_symbol_class.__post_init__.__code__.co_names == ("tuple", "args")
    )
    return (_COPIED, _EMPTY) if known else None


def _reshape(proxy: Any, shape: Any) -> Any:
    """A tensor proxy that differs in the numbers of its shape alone.

    `TensorProxy.replace` would ask the current trace for the name once more, which is taken.
    """
    clone = object.__new__(type(proxy))
    clone.__dict__.update(proxy.__dict__)
    clone._tags = copy.copy(proxy._tags)
    clone._shape = shape
    if callable(proxy._numel):
        # Under symbolic values the number of elements is computed when asked for, from the numbers in the shape.
        clone._numel = element_count(shape)
    return clone


def element_count(shape: Any) -> Any:
    """What thunder keeps as the number of elements of a tensor under symbolic values.

    Args:
        shape: The dimensions, numbers of the trace among them.

    Returns:
        A function that multiplies them when it is called.
    """
    return lambda *_: functools.reduce(operator.mul, shape, 1)


_ELEMENT_COUNTS = frozenset(
    {
        ("thunder.core.proxies", "_infer_tensor_properties.<locals>.<lambda>"),
        (__name__, "element_count.<locals>.<lambda>"),
    }
)


def counted_shape(function: Any) -> Any:
    """The shape whose elements a function counts.

    Args:
        function: Any object. thunder hands its function out as the output of `numel`.

    Returns:
        The dimensions, or `None` if it is not such a function.
    """
    if (getattr(function, "__module__", None), getattr(function, "__qualname__", None)) not in _ELEMENT_COUNTS:
        return None
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return next((cell.cell_contents for name, cell in cells if name.endswith("shape")), None)


def trace_module() -> Any:
    """Thunder's module of traces.

    Returns:
        `thunder.core.trace`.

    Raises:
        UnsupportedVersionError: thunder or torch is missing or has an unsuitable version.
    """
    return modules().trace


_made_runnable: list[Any] = []


def make_runnable(bound_symbol: Any) -> None:
    """Let thunder run a custom op that is kept for its effect, wherever its executor is not listed.

    thunder drops a registered `torch.library.custom_op` without results before it looks for an executor. Kept, it
    needs one: thunder's own for custom ops, which `thunder.jit` uses only if it is asked to. The implementation is
    lent to the Python executor, which is always there and comes last.

    Args:
        bound_symbol: A bound symbol that defines no value.
    """
    symbol = bound_symbol.sym
    if symbol.executor is not None or symbol.id is None:
        return
    thunder = modules()
    implementation = thunder.custom_op_ex.custom_op_ex.implmap.get(symbol.id)
    python = thunder.pythonex.ex
    if implementation is not None and symbol.id not in python.implmap:
        python.register_implementation(symbol, implementation.symbol, checker=implementation.checker)
        _made_runnable.append(symbol.id)


def withdraw_implementations() -> None:
    """Undo all that `make_runnable` did."""
    while _made_runnable:
        modules().pythonex.ex.implmap.pop(_made_runnable.pop(), None)
