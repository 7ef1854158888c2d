"""Traces as files: save one, look at it, optimize it, load it in another process and run it.

A file is plain data. Reading one runs nothing, imports nothing and needs neither thunder nor torch; only `load` and
`loads`, which make a thunder trace again, need both.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core, _thunder
from ..errors import InvalidTraceError, TraceFileError
from ..optimize import optimizer
from ..options import OptimizeOptions
from ..versions import installed_version
from .checks import checked, checked_name, typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

__all__ = ["dumps", "dumps_text", "load", "loads", "save"]

_CHUNK_BYTES = 1 << 20


def save(trace: Any, path: str | os.PathLike[str], *, text: bool = False) -> None:
    """Save a trace as a file.

    Args:
        trace: A thunder trace; it is not changed.
        path: Where to. What is there is replaced, all at once.
        text: Write the text form, to read and to compare, instead of the small one.

    Raises:
        TraceFileError: The trace holds something that cannot be written down, such as a tensor or a function. The
            message names the op.
        InvalidTraceError: What was passed is no trace.
        OSError: The file cannot be written.

    Examples:
        >>> shapetrace_rs.save(thunder.last_traces(jfn)[0], "first.trace")  # doctest: +SKIP
    """
    data = dumps_text(trace).encode() if text else dumps(trace)
    write_whole(Path(path), data)


def dumps(trace: Any) -> bytes:
    """A trace as bytes, for `loads`.

    Args:
        trace: A thunder trace; it is not changed.

    Returns:
        What `save` writes. Equal traces give equal bytes. Takes time linear in the size of the trace.

    Raises:
        TraceFileError: The trace holds something that cannot be written down. The message names the op.
        InvalidTraceError: What was passed is no trace.
    """
    return record(trace).to_bytes()


def dumps_text(trace: Any) -> str:
    """A trace as text that `loads` reads again.

    Args:
        trace: A thunder trace; it is not changed.

    Returns:
        The text form: first the program, as `shapetrace show` prints it, then what only thunder needs.

    Raises:
        TraceFileError: The trace holds something that cannot be written down. The message names the op.
        InvalidTraceError: What was passed is no trace.
    """
    return record(trace).to_text()


def load(path: str | os.PathLike[str], *, function: Any = None) -> Any:
    """Make a trace again that `save` wrote, in either form.

    Args:
        path: The file.
        function: What the trace was made of, for a prologue that unpacks a module: it is not in the file.

    Returns:
        A thunder trace that prints the same and runs the same.

    Raises:
        TraceFileError: The file is damaged, is too large, is from a later version, or names what is not here.
        UnsupportedVersionError: thunder or torch is missing or has an unsuitable version.
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        data = read_whole(file, os.fspath(path))
    return loads(data, function=function)


def loads(data: bytes | bytearray | memoryview | str, *, function: Any = None) -> Any:
    """Make a trace again that `dumps` or `dumps_text` gave.

    Args:
        data: The bytes, or anything that holds bytes, or the text.
        function: What the trace was made of, for a prologue that unpacks a module.

    Returns:
        A thunder trace that prints the same and runs the same.

    Raises:
        TraceFileError: The data is damaged, is from a later version, or names what is not here.
        UnsupportedVersionError: thunder or torch is missing or has an unsuitable version.
    """
    return restore_trace(_core.TraceFile.read(_bytes_of(data)), function)


def _bytes_of(data: Any) -> bytes:
    """What `loads` got, as bytes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            message = f"the text cannot be read: character {error.start} is half of one"
            raise TraceFileError(message) from None
    try:
        return bytes(memoryview(data))
    except TypeError:
        message = f"expected the bytes or the text of a trace file, not {type(data).__name__}"
        raise TraceFileError(message) from None


def record(trace: Any) -> _core.TraceFile:
    """A trace as the native part keeps it.

    Args:
        trace: A thunder trace; it is not changed.

    Returns:
        What `dumps` writes.

    Raises:
        TraceFileError: The trace holds something that cannot be written down. The message names the op.
        InvalidTraceError: What was passed is no trace.
    """
    from .describe import describer

    thunder = _thunder.modules()
    if not isinstance(trace, thunder.trace.TraceCtx):
        message = f"expected a thunder trace, not {type(trace).__name__}"
        raise InvalidTraceError(message, hint="pass a TraceCtx, such as one of thunder.last_traces(jfn)")
    inputs = None if trace.args is None else (trace.args, trace.kwargs)
    return optimizer(OptimizeOptions()).record(
        trace.bound_symbols, inputs, _versions(), _state_of(trace), tuple(trace.names), describer()
    )


@functools.cache
def _versions() -> dict[str, str]:
    versions = {name: installed_version(name) for name in ("shapetrace-rs", "lightning-thunder", "torch")}
    return {name: version for name, version in versions.items() if version is not None} | {
        "python": platform.python_version()
    }


@functools.cache
def _trace_attributes() -> dict[str, Any]:
    """What of a trace is kept as it is, with its types. Futures and source locations only matter while tracing."""
    return {
        "args": (tuple, list, type(None)),
        "kwargs": (dict, type(None)),
        "name_ctr": int,
        "obj_name_ctr": int,
        "_tags": (set, type(None)),
        "_provenance": (_thunder.modules().trace.TraceProvenance, type(None)),
        "_complete": bool,
    }


def _state_of(trace: Any) -> dict[str, Any]:
    """All of a trace but its ops and names."""
    state = {name: getattr(trace, name) for name in _trace_attributes()}
    signature = trace._siginfo
    if signature is None and trace.fn is not None:
        signature = _thunder.modules().codeutils.get_siginfo(trace.fn, trace.args, dict(trace.kwargs))
    state["signature"] = signature
    # Objects that thunder cannot print go by names of their own, which count up.
    state["objects"] = [(known.name, known.obj) for known in trace._object_ctx.values()]
    return state


def restore_trace(file: _core.TraceFile, function: Any = None) -> Any:
    """A thunder trace from what the native part keeps.

    Args:
        file: What `record` gave, or what was read.
        function: What the trace was made of.

    Returns:
        A new trace.

    Raises:
        TraceFileError: The file has no data of thunder, or names what is not here.
        UnsupportedVersionError: thunder or torch is missing or has an unsuitable version.
    """
    if not file.has_host_data:
        message = "the file holds a program only, and no data of thunder"
        raise TraceFileError(message, hint="save the trace with shapetrace_rs.save")
    thunder = _thunder.modules()
    trace = thunder.trace.TraceCtx(function)
    typed("a trace", _fill)(trace, file)
    return trace


def _fill(trace: Any, file: _core.TraceFile) -> None:
    """Give a new trace all that a file has."""
    from .restore import restorer

    bound_symbols, state, names = file.restore(restorer())
    missing = [name for name in (*_trace_attributes(), "signature", "objects") if name not in state]
    if missing:
        message = f"the file says nothing of {', '.join(missing)} of the trace"
        raise TraceFileError(message)
    for name, kind in _trace_attributes().items():
        setattr(trace, name, checked(state[name], kind, f"{name} of the trace"))
    codeutils = _thunder.modules().codeutils
    trace._siginfo = checked(state["signature"], (codeutils.SigInfo, type(None)), "the signature of the trace")
    for known in checked(state["objects"], list, "the objects of the trace"):
        name, value = checked(known, tuple, "an object of the trace")
        trace._object_ctx[id(value)] = codeutils.ContextObject(checked_name(name), value)
    trace.names = set(names)
    trace.bound_symbols = bound_symbols


def read_whole(file: BinaryIO, name: str, tell: Callable[[int], None] | None = None) -> bytes:
    """Read a file to its end, unless it is larger than any trace file.

    Args:
        file: What to read: a file, a pipe, a device.
        name: What to call it in errors.
        tell: Called now and then with the number of bytes so far.

    Returns:
        All of it.

    Raises:
        TraceFileError: There is more than a trace file can have. No more than that has been read.
        OSError: It cannot be read.
    """
    limit = _core.max_file_bytes
    chunks, size = [], 0
    while chunk := file.read(min(_CHUNK_BYTES, limit + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            message = f"{name}: more than {limit} bytes, which is too much for a trace file"
            raise TraceFileError(message)
        if tell is not None:
            tell(size)
    return b"".join(chunks)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it.

    Args:
        path: Where to. A link is followed; a device or a pipe is written to and stays what it is.
        data: What.

    Raises:
        OSError: It cannot be written; what was there is still there. The error names the path.
    """
    # Not `Path.resolve`, which raises errors of several kinds.
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        beside.write_bytes(data)
        beside.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            # The file beside is nobody's business.
            error.filename = os.fspath(path)
            del error.filename2
        raise
