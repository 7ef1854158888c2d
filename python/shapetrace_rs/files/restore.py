"""Plain data as thunder's objects again: the way back from `describe`.

Names are looked up in modules that are loaded already; nothing is imported and nothing in a file is run. What a file
asks for and is not there gives an error that says so.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .. import _thunder
from ..errors import TraceFileError
from .checks import (
    QUOTE_MARKER,
    checked,
    checked_header,
    checked_line,
    checked_name,
    checked_positions,
    checked_source,
    checked_state,
    checked_strings,
    typed,
)
from .places import attribute_of, is_open_module, tensor_defaults

__all__ = ["can_compile", "restorer"]


def restorer() -> SimpleNamespace:
    """The functions that the native part calls while it makes a trace, under the names that it asks for.

    Returns:
        A namespace; see `Restorer` in the binding crate.
    """
    return SimpleNamespace(
        object=restore,
        proxy=typed("a proxy", restore_proxy),
        bound_symbol=typed("an op", restore_bound_symbol),
        quote_marker=QUOTE_MARKER,
    )


def restore(word: str, arguments: tuple[Any, ...]) -> Any:
    """The object that `describe` gave a word and arguments for.

    Args:
        word: What it is.
        arguments: What it is made of.

    Returns:
        The object.

    Raises:
        TraceFileError: There is no such word, the arguments do not fit, or what they name is not there.
    """
    make = _makers().get(word)
    if make is None:
        message = f"a file of a trace cannot hold {word!r}"
        raise TraceFileError(message, hint="see whether a later version of shapetrace_rs wrote the file")
    return make(*arguments)


def _expect(value: Any, kinds: Any, what: str) -> Any:
    """What was looked up, if it is what it has to be."""
    if not isinstance(value, kinds):
        message = f"there is no {what}"
        raise TraceFileError(message, hint=_versions_hint())
    return value


def _find_type(module: str, name: str) -> Any:
    if (module, name) == ("builtins", "NoneType"):
        return type(None)
    found = attribute_of(module, name) if is_open_module(module) else None
    return _expect(found, type, f"class {module}.{name} that a file may name")


def _find_symbol(module: str, name: str) -> Any:
    found = attribute_of(module, name) if is_open_module(module) else None
    return _expect(found, _thunder.modules().symbol.Symbol, f"symbol {name} in {module}")


def _find_executor(name: str) -> Any:
    extend = _thunder.modules().extend
    return _expect(extend.get_executor(name), extend.Executor, f"executor {name}")


def _find_operation(executor: str, name: str) -> Any:
    found = _find_executor(executor).opmap.get(name)
    return _expect(found, _thunder.modules().symbol.Symbol, f"operation {name} of the executor {executor}")


def _find_implementation(executor: str, implemented: Any) -> Any:
    info = _find_executor(executor).implmap.get(implemented)
    found = None if info is None else info.symbol
    what = f"implementation of {implemented} by the executor {executor}"
    return _expect(found, _thunder.modules().symbol.Symbol, what)


def _make_fusion(executor: str, name: str) -> Any:
    symbol = _thunder.modules().symbol.Symbol
    return symbol(checked_name(name), meta=None, is_fusion=True, executor=_find_executor(executor))


def _make_signature(state: dict[str, Any]) -> Any:
    for attribute, kind in (("args", (list, tuple)), ("kwargs", dict), ("defaultdict", dict)):
        checked(state[attribute], kind, f"{attribute} of a signature")
    names = [state["name"], *(name for name, _ in state["args"]), *state["kwargs"]]
    for name in (*names, *(state[kind][0] for kind in ("varargs", "varkwargs") if state[kind] is not None)):
        checked_name(name)
    signature = _thunder.modules().codeutils.SigInfo(state["name"])
    for name in vars(signature):
        if name != "unwrapped_fn":
            setattr(signature, name, state[name])
    return signature


def _make_provenance(text: str) -> Any:
    # Thunder prints it as a comment in the code of the trace.
    checked_line(text, "the provenance of a trace")
    return _thunder.modules().trace.TraceProvenance(text)


def _make_dataclass(module: str, name: str, fields: dict[str, Any]) -> Any:
    kind = _find_type(module, name)
    if not dataclasses.is_dataclass(kind) or {field.name for field in dataclasses.fields(kind)} != set(fields):
        message = f"{module}.{name} is no dataclass with the fields {', '.join(map(str, fields))}"
        raise TraceFileError(message, hint=_versions_hint())
    # Not through the initializer, which may do anything.
    made: Any = object.__new__(kind)  # type: ignore[arg-type]
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


def _make_named_tuple(module: str, name: str, *items: Any) -> Any:
    kind = _find_type(module, name)
    if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(items):
        message = f"{module}.{name} is no tuple of {len(items)} named fields"
        raise TraceFileError(message, hint=_versions_hint())
    return tuple.__new__(kind, items)


def _find_tag(module: str, name: str, tag: str) -> Any:
    found = vars(_find_type(module, name)).get(tag)
    return _expect(found, _thunder.modules().baseutils.TagBase, f"tag {name}.{tag}")


def _find_enum(module: str, name: str, member: str) -> Any:
    kind = _find_type(module, name)
    return _expect(kind, type(_thunder.modules().enum.Enum), f"enumeration {name}")[member]


def _find_dtype(name: str) -> Any:
    return _expect(attribute_of("thunder.core.dtypes", name), _thunder.modules().dtypes.dtype, f"dtype {name}")


def _find_in_torch(name: str) -> Any:
    torch = sys.modules["torch"]
    return _expect(attribute_of("torch", name), (torch.dtype, torch.layout, torch.memory_format), f"torch.{name}")


_KINDS_OF_SYMBOLS: dict[str, Callable[..., Any]] = {
    "symbol": _find_symbol,
    "operation": _find_operation,
    "implementation": _find_implementation,
    "fusion": _make_fusion,
}


@functools.cache
def _makers() -> dict[str, Callable[..., Any]]:
    """What makes the object of each word. Nothing that is not here can be made."""
    thunder, torch = _thunder.modules(), sys.modules["torch"]
    makers: dict[str, Callable[..., Any]] = {
        "complex": complex,
        "slice": slice,
        "ellipsis": lambda: Ellipsis,
        "set": lambda *items: set(items),
        "frozenset": lambda *items: frozenset(items),
        "OrderedDict": lambda *parts: collections.OrderedDict(zip(parts[::2], parts[1::2], strict=True)),
        "range": range,
        "torch.Size": lambda *sizes: torch.Size(sizes),
        "torch": _find_in_torch,
        "element count": lambda shape, _: _thunder.element_count(shape),
        "torch.device": torch.device,
        "device": thunder.devices.to_device,
        "dtype": _find_dtype,
        "dataclass": _make_dataclass,
        "named tuple": _make_named_tuple,
        "tag": _find_tag,
        "enum": _find_enum,
        "type": _find_type,
        "executor": _find_executor,
        "positions": checked_positions,
        "signature": _make_signature,
        "provenance": _make_provenance,
        "symbol of": lambda kind, *place: _KINDS_OF_SYMBOLS[kind](*place),
        **_KINDS_OF_SYMBOLS,
    }
    return {word: typed(word, make) for word, make in makers.items()}


def _versions_hint() -> str:
    from ..versions import installed_version

    return (
        f"this is lightning-thunder {installed_version('lightning-thunder')} with torch {installed_version('torch')}; "
        "`shapetrace stat` tells which versions wrote the file"
    )


def restore_proxy(kind: str, name: Any, state: dict[str, Any]) -> Any:
    """The proxy that `describe_proxy` gave the class, the name and the state of.

    Args:
        kind: The name of the class in `thunder.core.proxies`.
        name: Its own name.
        state: Its other attributes; they are taken out.

    Returns:
        The proxy. No trace is asked for its name.

    Raises:
        TraceFileError: There is no such class, or the state is not what the class has.
    """
    thunder = _thunder.modules()
    found = attribute_of("thunder.core.proxies", checked(kind, str, "the class of a proxy"))
    if not (isinstance(found, type) and issubclass(found, thunder.proxies.Proxy)):
        message = f"there is no proxy class {kind}"
        raise TraceFileError(message, hint=_versions_hint())
    checked_name(name)
    items = state.pop("items", ())
    checked_state(found, state)
    if issubclass(found, str):
        proxy: Any = str.__new__(found, state.get("value", ""))
    elif issubclass(found, tuple):
        proxy = tuple.__new__(found, items)
    elif issubclass(found, list):
        proxy = list.__new__(found)
        list.extend(proxy, items)
    elif issubclass(found, dict):
        proxy = dict.__new__(found)
        dict.update(proxy, items)
    else:
        proxy = object.__new__(found)
    attributes: dict[str, Any] = {"_name": name, **tensor_defaults(found), "_tags": set(), **state}
    if "_shape" in attributes:
        shape = attributes["_shape"]
        attributes.setdefault("_ndim", len(shape))
        attributes.setdefault("_true_dtype", attributes.get("_dtype"))
        if "_numel" not in attributes:
            attributes["_numel"] = (
                math.prod(shape)
                if all(type(size) is int for size in shape)
                # As thunder has it under symbolic values: computed when it is asked for.
                else _thunder.element_count(shape)
            )
    for attribute, value in attributes.items():
        object.__setattr__(proxy, attribute, value)
    return proxy


def restore_bound_symbol(  # noqa: PLR0917 (called by the native part)
    symbol: Any, args: Any, kwargs: Any, output: Any, subsymbols: Any, details: dict[str, Any]
) -> Any:
    """One op.

    Args:
        symbol: What it applies.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        output: Its output.
        subsymbols: The ops inside, a list.
        details: All else, as `describe` and the native part wrote it down.

    Returns:
        A bound symbol, ready to be printed and run.

    Raises:
        TraceFileError: It is a fusion whose executor is not here to compile it, or something of the file is not what
            an op has.
    """
    thunder = _thunder.modules()
    usual = type(symbol) is thunder.symbol.Symbol and type(args) is tuple and type(kwargs) is type(details) is dict
    if not usual:
        checked(symbol, thunder.symbol.Symbol, "what an op applies")
        checked(details, dict, "the details of an op")
        checked(args, (tuple, list), "args of an op")
        checked(kwargs, dict, "kwargs of an op")
    checked_strings(symbol, args, kwargs)
    filename = positions = executor = None
    header: Any = ""
    tags: set[Any] = set()
    if details:
        filename, positions = checked_source(details.get("source", (None, None)))
        header = checked_header(details.get("header", ""))
        tags = checked(details.get("tags", tags), set, "the tags of an op")
        executor = checked(details.get("executor"), (thunder.extend.Executor, type(None)), "the executor of an op")
    bound_symbol = thunder.symbol.BoundSymbol(
        symbol,
        args,
        kwargs,
        output,
        tuple(subsymbols) if details.get("subsymbols") == "tuple" else subsymbols,
        header,
        filename,
        positions,
        tags,
        _executor=executor,
    )
    if "call" in details:
        return bound_symbol
    if symbol.is_fusion:
        return _compile(bound_symbol)
    if symbol._bind_postprocess is not None:
        symbol._bind_postprocess(bound_symbol)
    return bound_symbol


def can_compile(executor: Any) -> bool:
    """Whether a fusion of an executor can be made again from the ops inside it.

    Args:
        executor: The executor of the fusion.

    Returns:
        `True` for thunder's executors for `torch.compile` and nvFuser.
    """
    return type(executor).__name__ in {"TorchCompileExecutor", "nvFuserExecutor"}


class _CompiledLater:
    """A fusion that is compiled when it is called first: whoever only loads a file compiles nothing of it.

    Args:
        compile_fusion: Makes the callable.
    """

    def __init__(self, compile_fusion: Callable[[], Any]) -> None:
        self._compile: Callable[[], Any] | None = compile_fusion
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the fusion."""
        compile_fusion = self._compile
        if compile_fusion is not None:
            self._compiled = compile_fusion()
            self._compile = None
        return self._compiled(*arguments)


def _compile(bound_symbol: Any) -> Any:
    """A fusion with a callable, made from the ops inside it as its executor makes it, when it is needed."""
    symbol = bound_symbol.sym
    executor, inputs, inside = symbol.executor, list(bound_symbol.args), list(bound_symbol.subsymbols)
    outputs = list(bound_symbol.output) if isinstance(bound_symbol.output, (list, tuple)) else [bound_symbol.output]
    if type(executor).__name__ == "TorchCompileExecutor":
        from thunder.executors.torch_compile import make_compiled

        compile_fusion = functools.partial(make_compiled, inside, inputs, outputs, mode=executor.mode)
        bound_symbol._call_ctx = {symbol.name: _CompiledLater(compile_fusion)}
        return bound_symbol
    if type(executor).__name__ == "nvFuserExecutor":
        from thunder.executors.nvfuserex_impl import create_fusion_definition_wrapper

        annotation = f"{symbol.name}: ({', '.join(op.sym.name for op in inside)})"
        compiled = create_fusion_definition_wrapper(inside, annotation, inputs, outputs)
        # The symbol of an nvFuser fusion knows its callable itself.
        fusion = executor.register_temporary_operation(
            symbol.name, compiled, inputs=inputs, outputs=outputs, bsyms=inside
        )
        for name in ("header", "source_filename", "source_positions", "tags", "_executor"):
            setattr(fusion, name, getattr(bound_symbol, name))
        return fusion
    message = f"the fusion {symbol.name} of the executor {executor.name} cannot be compiled again"
    raise TraceFileError(message, op=symbol.name, hint="save the trace from before the fusion pass")
