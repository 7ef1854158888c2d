"""Keeps the traces of a running program as files, before and after each call of dead code elimination."""

from __future__ import annotations

import json
import platform
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TraceFileError
from ..versions import installed_version

if TYPE_CHECKING:
    from ..report import CallRecord

__all__ = ["TraceKeeper"]


class TraceKeeper:
    """Writes traces to a directory: `0001-dce-before.trace`, `0001-dce-after.trace`, and `index.json`.

    What was handed over is written before the optimizer sees it, so it is there even if the process dies in the call.
    A trace that no file can hold is missing, and the index says why.

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
        self._lock = threading.Lock()

    def keep_input(self, trace: Any) -> int:
        """Write down what a call got.

        Args:
            trace: The trace.

        Returns:
            The number of the call, for `keep_output`.
        """
        with self._lock:
            number = len(self.calls) + 1
            entry: dict[str, Any] = {"call": number}
            self.calls.append(entry)
        name = getattr(trace._siginfo, "name", None) or "trace"
        entry["trace"] = name
        if self._most_calls is None or number <= self._most_calls:
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
        entry["record"] = record.as_dict()
        if self._most_calls is None or number <= self._most_calls:
            self._write(entry, trace, "after")
        self.write_index()

    def write_index(self) -> None:
        """Write `index.json`: the versions, and for each call its files and its facts."""
        from . import write_whole

        versions = {name: installed_version(name) for name in ("shapetrace-rs", "lightning-thunder", "torch")}
        with self._lock:
            index = {"versions": {**versions, "python": platform.python_version()}, "calls": self.calls}
            write_whole(self.directory / "index.json", (json.dumps(index, indent=1) + "\n").encode())

    def _write(self, entry: dict[str, Any], trace: Any, when: str) -> None:
        from . import dumps, write_whole

        word = re.sub(r"\W+", "-", str(entry["trace"]))
        path = self.directory / f"{entry['call']:04}-{word}-{when}.trace"
        try:
            write_whole(path, dumps(trace))
        except TraceFileError as error:
            entry[f"{when}_missing"] = str(error)
        else:
            entry[when] = path.name
