"""Keeps the traces of a running program as files, before and after each call of dead code elimination."""

from __future__ import annotations

import json
import platform
import re
import threading
from typing import TYPE_CHECKING, Any

from ..errors import ShapetraceError
from ..versions import installed_version

if TYPE_CHECKING:
    from pathlib import Path

    from ..report import CallRecord

__all__ = ["TraceKeeper"]

_INDEX_SHARE = 8
"""The index is written again when one call in so many is missing from it: time linear in the calls."""


class TraceKeeper:
    """Writes traces to a directory: `0001-prologue-before.trace`, `0001-prologue-after.trace`, and `index.json`.

    What was handed over is written before the optimizer sees it, so it is there even if the process dies in the call.
    The index is written from time to time. If the process dies, an eighth of the calls may be missing from it, the
    latest ones; if it does not, `write_index` has to be called at the end. A trace that no file can hold or no disk
    takes is missing, and the index says why: nothing here ends the program.

    Attributes:
        directory: Where the files are.
        calls: What the index tells of each call.
    """

    def __init__(self, directory: Path, *, most_calls: int | None = None) -> None:
        """Begin with an empty index.

        Args:
            directory: Where to; it must exist.
            most_calls: Keep no more than so many calls; none for all.
        """
        self.directory = directory
        self.calls: list[dict[str, Any]] = []
        self._most_calls = most_calls
        self._ended = 0
        self._next_index = 1
        self._lock = threading.Lock()

    def keep_input(self, trace: Any) -> int:
        """Write down what a call got.

        Args:
            trace: The trace.

        Returns:
            The number of the call, for `keep_output`.
        """
        name = getattr(getattr(trace, "_siginfo", None), "name", None) or "trace"
        with self._lock:
            number = len(self.calls) + 1
            entry: dict[str, Any] = {"call": number, "trace": name}
            self.calls.append(entry)
        self._write(entry, trace, "before")
        return number

    def keep_output(self, number: int, record: CallRecord, trace: Any) -> None:
        """Write down what a call gave, and the facts of the call.

        Args:
            number: What `keep_input` returned.
            record: The facts.
            trace: The trace that came out.
        """
        entry = self.calls[number - 1]
        self._write(entry, trace, "after", record=record.as_dict())
        with self._lock:
            self._ended += 1
            is_time = self._ended >= self._next_index
            if is_time:
                self._next_index = self._ended + self._ended // _INDEX_SHARE + 1
        if is_time:
            try:
                self.write_index()
            except OSError:
                # It is tried again, and at the end somebody is told.
                return

    def write_index(self) -> None:
        """Write `index.json`: the versions, and for each call its files and its facts.

        Raises:
            OSError: It cannot be written.
        """
        from . import write_whole

        versions = {name: installed_version(name) for name in ("shapetrace-rs", "lightning-thunder", "torch")}
        with self._lock:
            index = {"versions": {**versions, "python": platform.python_version()}, "calls": self.calls}
            write_whole(self.directory / "index.json", (json.dumps(index, indent=1) + "\n").encode())

    def missing(self) -> list[tuple[int, str]]:
        """The calls of which a trace is missing.

        Returns:
            The number of each, and why.
        """
        reasons = ((call, call.get("before_missing") or call.get("after_missing")) for call in self.calls)
        return [(call["call"], reason) for call, reason in reasons if reason]

    def _write(self, entry: dict[str, Any], trace: Any, when: str, **facts: Any) -> None:
        from . import dumps, write_whole

        if self._most_calls is None or entry["call"] <= self._most_calls:
            word = re.sub(r"\W+", "-", str(entry["trace"]))
            path = self.directory / f"{entry['call']:04}-{word}-{when}.trace"
            try:
                write_whole(path, dumps(trace))
                facts[when] = path.name
            except Exception as error:  # noqa: BLE001 (the program that compiles has nothing to do with it)
                facts[f"{when}_missing"] = _words(error)
        with self._lock:
            entry.update(facts)


def _words(error: Exception) -> str:
    """Why a trace could not be kept, in a line."""
    if isinstance(error, ShapetraceError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
