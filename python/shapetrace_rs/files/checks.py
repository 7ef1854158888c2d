"""What the strings and attributes of a file may be.

Thunder prints a trace as Python source and compiles that when the trace is run. Much of a trace gets into the source as
it is: names, comments, types of values. So each string of a file is checked for what it will become there, and each
attribute for the type that its printing relies on; then nothing in a file can become code.
"""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .. import _thunder
from ..errors import ShapetraceError, TraceFileError

__all__ = [
    "QUOTE_MARKER",
    "checked",
    "checked_header",
    "checked_line",
    "checked_name",
    "checked_positions",
    "checked_source",
    "checked_state",
    "checked_strings",
    "typed",
]

QUOTE_MARKER = "_@_"
"""What thunder's printer puts around strings in containers, and takes out of the source with the quotes beside it."""

_MOST_DIMENSIONS = 64
"""As many as torch has."""

_NUMBERS = (int, float, bool, complex)


def checked(value: Any, kinds: Any, what: str) -> Any:
    """A value, if it is of the right type.

    Args:
        value: What the file has.
        kinds: A type, or several.
        what: What it is, for the message.

    Returns:
        The value.

    Raises:
        TraceFileError: It is of another type.
    """
    if isinstance(value, kinds):
        return value
    message = f"{what} is {value!r:.80}, of type {type(value).__name__}"
    raise TraceFileError(message)


def checked_name(name: Any) -> str:
    """A name that thunder prints into the code of a trace.

    Args:
        name: What the file has.

    Returns:
        The name.

    Raises:
        TraceFileError: It is more than a name.
    """
    if isinstance(name, str) and _is_name(name):
        return name
    message = f"{name!r:.80} is no name"
    raise TraceFileError(message)


@functools.lru_cache(maxsize=4096)
def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def checked_line(text: Any, what: str) -> str:
    """A text that thunder prints behind a `#`.

    Args:
        text: What the file has.
        what: What it is, for the message.

    Returns:
        The text.

    Raises:
        TraceFileError: It is no text, or has a line break in it.
    """
    checked(text, str, what)
    if "".join(text.splitlines()) == text and "\0" not in text:
        return text  # type: ignore[no-any-return]
    message = f"{what} is one line, and not {text!r:.80}"
    raise TraceFileError(message)


def checked_header(header: Any) -> Any:
    """What thunder prints above an op: a text, of which each line becomes a comment, or lines.

    Args:
        header: What the file has.

    Returns:
        The header.

    Raises:
        TraceFileError: It is something else, or a line of it is more than a line.
    """
    if isinstance(header, str):
        for line in header.splitlines():
            checked_line(line, "a line of the header of an op")
        return header
    for line in checked(header, (list, tuple), "the header of an op"):
        checked_line(line, "a line of the header of an op")
    return header


def checked_positions(*positions: Any) -> Any:
    """Where an op comes from: lines and columns.

    Args:
        *positions: What the file has.

    Returns:
        Thunder's object for it.

    Raises:
        TraceFileError: They are no numbers.
    """
    for position in positions:
        checked(position, (int, type(None)), "a position in a source")
    return _thunder.modules().codeutils.Positions(*positions)


@functools.lru_cache(maxsize=1024)
def _checked_file_name(name: str) -> str:
    checked_line(name, "the name of a source file")
    # Thunder reads the line to show it. A device has no end.
    path = Path(name)
    if path.exists() and not path.is_file():
        message = f"the source file {name!r:.80} is no file"
        raise TraceFileError(message)
    return name


@functools.lru_cache(maxsize=4096)
def checked_source(source: Any) -> tuple[str | None, Any]:
    """Where an op comes from: name of a file, and positions in it.

    Args:
        source: What the file has.

    Returns:
        Both.

    Raises:
        TraceFileError: It is something else.
    """
    name, positions = checked(source, tuple, "the source of an op")
    if name is not None:
        _checked_file_name(checked(name, str, "the name of a source file"))
    checked(positions, (_thunder.modules().codeutils.Positions, type(None)), "the position in the source")
    return name, positions


def checked_strings(symbol: Any, args: Iterable[Any], kwargs: dict[Any, Any]) -> None:
    """Check what an op takes for what its printer writes without quotes.

    Args:
        symbol: What the op applies.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        TraceFileError: A string would become code.
    """
    for name in kwargs:
        checked_name(name)
    check = _printers().get(symbol.python_printer, _check_words)
    if check is not None:
        for argument in args:
            if isinstance(argument, str):
                check(argument)


def _check_words(text: str) -> None:
    """Nothing is known of the printer: it may write all that it gets as it is."""
    if text and not all(part and _is_name(part) for part in text.split(".")):
        message = f"{text!r:.80} could become code where the op is printed"
        raise TraceFileError(message)


def _check_comment(text: str) -> None:
    checked_line(text, "a comment")


@functools.cache
def _printers() -> dict[Any, Callable[[str], Any] | None]:
    """What is asked of the strings that each of thunder's own printers gets; nothing where it puts them in quotes."""
    prims, usual = _thunder.modules().prims, _thunder.modules().symbol.default_python_printer
    raw: dict[Any, Callable[[str], Any] | None] = {
        prims.unpack_attr.python_printer: checked_name,
        prims.pack_attr.python_printer: checked_name,
        prims.comment.python_printer: _check_comment,
    }
    symbols = [value for value in vars(prims).values() if isinstance(value, _thunder.modules().symbol.Symbol)]
    quoted = {symbol.python_printer: None for symbol in symbols if symbol.python_printer.__module__ == prims.__name__}
    return {usual: None, **quoted, **raw}


def checked_state(kind: type, state: Any) -> dict[str, Any]:
    """The attributes of a proxy.

    Args:
        kind: The class of the proxy.
        state: What the file has.

    Returns:
        The attributes.

    Raises:
        TraceFileError: One would stand in the way of the class, or is of another type than its printing relies on.
    """
    _check_attributes(kind, tuple(checked(state, dict, "the state of a proxy")))
    thunder = _thunder.modules()
    if "_shape" in state:
        _check_shape(state["_shape"])
        checked(state.get("_device"), thunder.devices.Device, "the device of a tensor")
        for name in ("_dtype", "_true_dtype"):
            checked(state.get(name, state.get("_dtype")), thunder.dtypes.dtype, "the dtype of a tensor")
    elif issubclass(kind, thunder.proxies.TensorProxy | thunder.proxies.FutureTensorProxy):
        message = "a tensor has a shape"
        raise TraceFileError(message)
    if issubclass(kind, thunder.proxies.NumberProxy):
        numbers = (*_NUMBERS, type(None), thunder.proxies.NumberProxy)
        checked(state.get("value"), numbers, "the value of a number")
        if state.get("python_type") not in _NUMBERS:
            message = f"the type of a number is {state.get('python_type')!r:.80}"
            raise TraceFileError(message)
    elif issubclass(kind, str):
        checked(state.get("value"), str, "the value of a string")
    return state  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=1024)
def _check_attributes(kind: type, attributes: tuple[Any, ...]) -> None:
    for attribute in attributes:
        if not (isinstance(attribute, str) and _may_be_set(kind, attribute)):
            message = f"{attribute!r:.80} is no attribute of a {kind.__name__} that a file may set"
            raise TraceFileError(message)


def _may_be_set(kind: type, attribute: str) -> bool:
    if not _is_name(attribute) or attribute.startswith("__") or attribute == "_name":
        return False
    # Nothing that the class does: a method, a property.
    hidden = inspect.getattr_static(kind, attribute, None)
    return hidden is None or isinstance(hidden, (str, int, float, bool, tuple))


def _check_shape(shape: Any) -> None:
    number_proxy = _thunder.modules().proxies.NumberProxy
    if len(checked(shape, (tuple, list), "the shape of a tensor")) > _MOST_DIMENSIONS:
        message = f"a tensor of {len(shape)} dimensions"
        raise TraceFileError(message)
    for size in shape:
        if not isinstance(size, number_proxy) and (type(size) is not int or abs(size) >= 1 << 63):
            message = f"a dimension of a tensor is {size!r:.80}"
            raise TraceFileError(message)


def typed(what: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes something of a file, so that all that it raises is an error of the file.

    Args:
        what: What it makes, for the message.
        make: The function.

    Returns:
        The function, with other errors turned into `TraceFileError`.
    """

    def made(*arguments: Any) -> Any:
        try:
            return make(*arguments)
        except ShapetraceError:
            raise
        except Exception as error:
            message = f"{what} cannot be made of what the file has: {type(error).__name__}: {error}"
            raise TraceFileError(message) from error

    return made
