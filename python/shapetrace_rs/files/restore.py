"""Plain data as thunder's objects again: the way back from `describe`.

Names are looked up in modules that are loaded already; nothing is imported and nothing in a file is run. What a file
asks for and is not there gives an error that says so.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import sys
from types import SimpleNamespace
from typing import Any

from .. import _thunder
from ..errors import TraceFileError
from .places import attribute_of, is_open_module, tensor_defaults

__all__ = ["can_compile", "restorer"]


def restorer() -> SimpleNamespace:
    """The functions that the native part calls while it makes a trace, under the names that it asks for.

    Returns:
        A namespace; see `Restorer` in the binding crate.
    """
    return SimpleNamespace(object=restore, proxy=restore_proxy, bound_symbol=restore_bound_symbol)


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
    try:
        return make(*arguments)
    except TraceFileError:
        raise
    except Exception as error:
        message = f"{word} cannot be made of {arguments!r:.200}: {error}"
        raise TraceFileError(message) from error


@functools.cache
def _makers() -> dict[str, Any]:
    thunder, torch = _thunder.modules(), sys.modules["torch"]
    of_torch = (torch.dtype, torch.layout, torch.memory_format)

    def expect(value: Any, kinds: type | tuple[type, ...], what: str) -> Any:
        if not isinstance(value, kinds):
            message = f"there is no {what}"
            raise TraceFileError(message, hint=_versions_hint())
        return value

    def find_type(module: str, name: str) -> Any:
        if (module, name) == ("builtins", "NoneType"):
            return type(None)
        found = attribute_of(module, name) if is_open_module(module) else None
        return expect(found, type, f"class {module}.{name} that a file may name")

    def find_symbol(module: str, name: str) -> Any:
        found = attribute_of(module, name) if is_open_module(module) else None
        return expect(found, thunder.symbol.Symbol, f"symbol {name} in {module}")

    def find_executor(name: str) -> Any:
        return expect(thunder.extend.get_executor(name), thunder.extend.Executor, f"executor {name}")

    def find_operation(executor: str, name: str) -> Any:
        found = find_executor(executor).opmap.get(name)
        return expect(found, thunder.symbol.Symbol, f"operation {name} of the executor {executor}")

    def find_implementation(executor: str, implemented: Any) -> Any:
        info = find_executor(executor).implmap.get(implemented)
        found = None if info is None else info.symbol
        return expect(found, thunder.symbol.Symbol, f"implementation of {implemented} by the executor {executor}")

    def make_fusion(executor: str, name: str) -> Any:
        return thunder.symbol.Symbol(checked_name(name), meta=None, is_fusion=True, executor=find_executor(executor))

    def make_signature(state: dict[str, Any]) -> Any:
        names = [state["name"], *(name for name, _ in state["args"]), *state["kwargs"]]
        for name in (*names, *(state[kind][0] for kind in ("varargs", "varkwargs") if state[kind] is not None)):
            checked_name(name)
        signature = thunder.codeutils.SigInfo(state["name"])
        for name in vars(signature):
            if name != "unwrapped_fn":
                setattr(signature, name, state[name])
        return signature

    def make_provenance(text: str) -> Any:
        if len(text.splitlines()) > 1:
            # Thunder prints it as a comment in the code of the trace.
            message = "the provenance of a trace is one line"
            raise TraceFileError(message)
        return thunder.trace.TraceProvenance(text)

    def make_dataclass(module: str, name: str, fields: dict[str, Any]) -> Any:
        kind = find_type(module, name)
        if not dataclasses.is_dataclass(kind) or {field.name for field in dataclasses.fields(kind)} != set(fields):
            message = f"{module}.{name} is no dataclass with the fields {', '.join(map(str, fields))}"
            raise TraceFileError(message, hint=_versions_hint())
        # Not through the initializer, which may do anything.
        made = object.__new__(kind)
        for field, value in fields.items():
            object.__setattr__(made, field, value)
        return made

    def make_named_tuple(module: str, name: str, *items: Any) -> Any:
        kind = expect(find_type(module, name), type, f"class {name}")
        if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(items):
            message = f"{module}.{name} is no tuple of {len(items)} named fields"
            raise TraceFileError(message, hint=_versions_hint())
        return tuple.__new__(kind, items)

    def find_tag(module: str, name: str, tag: str) -> Any:
        return expect(attribute_in(find_type(module, name), tag), thunder.baseutils.TagBase, f"tag {name}.{tag}")

    def find_enum(module: str, name: str, member: str) -> Any:
        kind = find_type(module, name)
        return expect(kind, type(thunder.enum.Enum), f"enumeration {name}")[member]

    def find_dtype(name: str) -> Any:
        return expect(attribute_of("thunder.core.dtypes", name), thunder.dtypes.dtype, f"dtype {name}")

    kinds_of_symbols = {"symbol": find_symbol, "operation": find_operation}
    kinds_of_symbols |= {"implementation": find_implementation, "fusion": make_fusion}
    return {
        "complex": complex,
        "slice": slice,
        "ellipsis": lambda: Ellipsis,
        "set": lambda *items: set(items),
        "frozenset": lambda *items: frozenset(items),
        "OrderedDict": lambda *parts: collections.OrderedDict(zip(parts[::2], parts[1::2], strict=True)),
        "range": range,
        "torch.Size": lambda *sizes: torch.Size(sizes),
        "torch": lambda name: expect(attribute_of("torch", name), of_torch, f"torch.{name}"),
        "element count": lambda shape, _: _thunder.element_count(shape),
        "torch.device": torch.device,
        "device": thunder.devices.to_device,
        "dtype": find_dtype,
        "dataclass": make_dataclass,
        "named tuple": make_named_tuple,
        "tag": find_tag,
        "enum": find_enum,
        "type": find_type,
        "executor": find_executor,
        "positions": thunder.codeutils.Positions,
        "signature": make_signature,
        "provenance": make_provenance,
        "symbol of": lambda kind, *place: kinds_of_symbols[kind](*place),
        **kinds_of_symbols,
    }


def checked_name(name: Any) -> str:
    """A name that thunder prints into the code of a trace, which is compiled when the trace is run.

    Args:
        name: What the file has.

    Returns:
        The name.

    Raises:
        TraceFileError: It is more than a name.
    """
    if isinstance(name, str) and name.isidentifier():
        return name
    message = f"{name!r:.80} is no name"
    raise TraceFileError(message)


def attribute_in(kind: type, name: str) -> Any:
    """An attribute that a class itself has."""
    return vars(kind).get(name)


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
        state: Its other attributes.

    Returns:
        The proxy. No trace is asked for its name.

    Raises:
        TraceFileError: There is no such class.
    """
    thunder = _thunder.modules()
    found = attribute_of("thunder.core.proxies", kind)
    if not (isinstance(found, type) and issubclass(found, thunder.proxies.Proxy)):
        message = f"there is no proxy class {kind}"
        raise TraceFileError(message, hint=_versions_hint())
    checked_name(name)
    items = state.pop("items", ())
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
                functools.reduce(operator.mul, shape, 1)
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
        TraceFileError: It is a fusion whose executor is not here to compile it.
    """
    thunder = _thunder.modules()
    filename, positions = details.get("source", (None, None))
    bound_symbol = thunder.symbol.BoundSymbol(
        symbol,
        args,
        kwargs,
        output,
        tuple(subsymbols) if details.get("subsymbols") == "tuple" else subsymbols,
        details.get("header", ""),
        filename,
        positions,
        details.get("tags", set()),
        _executor=details.get("executor"),
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


def _compile(bound_symbol: Any) -> Any:
    """A fusion with a callable, made from the ops inside it as its executor makes it."""
    symbol = bound_symbol.sym
    executor, inputs, inside = symbol.executor, list(bound_symbol.args), list(bound_symbol.subsymbols)
    outputs = list(bound_symbol.output) if isinstance(bound_symbol.output, (list, tuple)) else [bound_symbol.output]
    if type(executor).__name__ == "TorchCompileExecutor":
        from thunder.executors.torch_compile import make_compiled

        bound_symbol._call_ctx = {symbol.name: make_compiled(inside, inputs, outputs, mode=executor.mode)}
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
