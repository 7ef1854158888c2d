"""The errors and warnings of the package. All errors derive from `ShapetraceError`."""

from __future__ import annotations

__all__ = [
    "InternalError",
    "InvalidTraceError",
    "MissingReturnError",
    "ShapetraceError",
    "ShapetraceWarning",
    "TraceFileError",
    "UnsupportedVersionError",
]


class ShapetraceError(Exception):
    """What every error of this package derives from."""


class InvalidTraceError(ShapetraceError, ValueError):
    """A trace, or something handed over in its place, that cannot be optimized.

    Args:
        message: What is wrong.
        op: The op at fault, as it is spelled in the trace, if one is.
        value: The value at fault, by name, if one is.
        hint: What to do about it.
    """

    def __init__(self, message: str, op: str | None = None, value: str | None = None, hint: str | None = None) -> None:
        """Keep the parts as attributes; the message shows them all."""
        super().__init__(f"{message} (to fix it: {hint})" if hint else message)
        self.op = op
        self.value = value
        self.hint = hint


class MissingReturnError(InvalidTraceError):
    """A trace without a return, where nothing else says which values are needed."""


class InternalError(ShapetraceError, RuntimeError):
    """A fault of the optimizer itself, a panic of its native part included."""


class TraceFileError(ShapetraceError, ValueError):
    """A file that holds no trace, or that cannot be read here; or a trace that no file can hold.

    Args:
        message: What is wrong, and where.
        op: The op at fault, if one is.
        hint: What to do about it.
    """

    def __init__(self, message: str, op: str | None = None, hint: str | None = None) -> None:
        """Keep the parts as attributes; the message shows them all."""
        super().__init__(f"{message} (to fix it: {hint})" if hint else message)
        self.op = op
        self.hint = hint


class UnsupportedVersionError(ShapetraceError, ImportError):
    """lightning-thunder or torch is missing, or has a version that this package does not work with."""


class ShapetraceWarning(UserWarning):
    """What every warning of this package is an instance of."""
