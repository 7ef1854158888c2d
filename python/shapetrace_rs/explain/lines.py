"""Bound symbols as lines of code, and the names that they read and define."""

from __future__ import annotations

import copy
import logging
import re
import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["Line", "Printer"]

logger = logging.getLogger("shapetrace_rs")


@dataclass(frozen=True, slots=True)
class Line:
    """One op as text.

    Attributes:
        name: The symbol, as it is called in the trace.
        text: The code, several lines for some ops.
        types: The comment that tells the type of the result, without the name, shortened.
        source: The file and line of the program that it comes from.
        operands: The names of the values that it reads.
        results: The names of the values that it defines.
        is_return: Whether it is the return of a trace.
    """

    name: str
    text: str
    types: str
    source: str | None
    operands: tuple[str, ...]
    results: tuple[str, ...]
    is_return: bool


class Printer:
    """Prints bound symbols, each of them once.

    Ops go through many calls of one compile as the same objects, so a report of all calls prints few of them anew.
    """

    def __init__(self) -> None:
        """Begin with nothing printed."""
        # The bound symbol stays in the entry, so that its identity is not given to another one.
        self._known: dict[int, tuple[Any, Line]] = {}
        self._surroundings: Any = None

    def enter(self, trace: Any) -> None:
        """Print the ops of this trace from now on.

        Args:
            trace: The trace. Objects that are named when they are printed are named in a copy of it.
        """
        from thunder.core.trace import from_trace

        self._surroundings = from_trace(trace)
        self._surroundings.names = set(trace.names)

    def line(self, bound_symbol: Any) -> Line:
        """The line of an op.

        Args:
            bound_symbol: The op; nothing is cached on it.

        Returns:
            Its line, the same object each time.
        """
        known = self._known.get(id(bound_symbol))
        if known is not None:
            return known[1]
        line = self._make(bound_symbol)
        self._known[id(bound_symbol)] = (bound_symbol, line)
        return line

    def _make(self, bound_symbol: Any) -> Line:
        from thunder.core.prims import PrimIDs
        from thunder.core.trace import reset_tracectx, set_tracectx

        bare = _bare(bound_symbol)
        token = set_tracectx(self._surroundings)
        try:
            text = "\n".join(bare.python(0, print_depth=1))
        except Exception as error:  # noqa: BLE001 (printers are code of executors and of users)
            logger.debug("%s cannot be printed: %r", bound_symbol.sym.name, error)
            text = f"{bound_symbol.sym.name}(...)  # thunder cannot print this op"
        finally:
            reset_tracectx(token)
        text, types = _without_types(_short(text), bare.output)
        try:
            operands = tuple(dict.fromkeys(proxy.name for proxy in bare.flat_proxy_args))
            results = tuple(dict.fromkeys(proxy.name for proxy in bare.flat_proxy_outs))
        except Exception as error:  # noqa: BLE001 (containers are classes of users)
            logger.debug("%s cannot be flattened: %r", bound_symbol.sym.name, error)
            operands = results = ()
        is_return = bare.sym.id is PrimIDs.RETURN
        return Line(
            name=_name(bare),
            text=text,
            types=types,
            source=_source(bare),
            operands=operands,
            results=() if is_return else results,
            is_return=is_return,
        )


_LONG_NUMBER = re.compile(r"\[IntegerProxy name=(\w+), value=(-?\d+), static=CONSTRAINT\.\w+\]")


def _short(text: str) -> str:
    """Types with `i0=2` for a number, where thunder writes out the whole proxy."""
    return _LONG_NUMBER.sub(r"\1=\2", text) if "IntegerProxy" in text else text


def _bare(bound_symbol: Any) -> Any:
    """A copy of an op without what is inside it and without anything cached."""
    bare = object.__new__(type(bound_symbol))
    values = vars(bound_symbol)
    vars(bare).update({name: values[name] for name in bound_symbol.__dataclass_fields__ if name in values})
    vars(bare).update(
        subsymbols=(),
        _import_ctx=copy.copy(values.get("_import_ctx", {})),
        _object_ctx=copy.copy(values.get("_object_ctx", {})),
    )
    return bare


def _name(bound_symbol: Any) -> str:
    """The name of the symbol with its module."""
    try:
        return str(bound_symbol.name_with_module())
    except Exception:  # noqa: BLE001 (a symbol without a module, for example)
        return str(bound_symbol.sym.name)


def _source(bound_symbol: Any) -> str | None:
    """Where in the program an op comes from."""
    filename = bound_symbol.source_filename
    if filename is None:
        return None
    line = getattr(bound_symbol.source_positions, "lineno", None)
    # Of an installed package, the place inside it says enough.
    place = str(filename).replace("\\", "/").rpartition("/site-packages/")[2]
    return sys.intern(f"{place}:{line}" if line is not None else place)


def _without_types(text: str, output: Any) -> tuple[str, str]:
    """The code, and the comment on its type that thunder puts behind an op with one result."""
    name = getattr(output, "name", None)
    if not isinstance(name, str):
        return text, ""
    code, mark, types = text.rpartition(f'  # {name}: "')
    if not mark or "\n" in types:
        return text, ""
    return code, types.removesuffix('"')
