"""A pytest plugin that runs somebody else's tests with the drop-in installed and writes down how each one ended.

    pytest -p shapetrace_conformance --shapetrace-level full --shapetrace-outcomes outcomes.jsonl ...

At level `stock` nothing of shapetrace_rs is imported. At `compat` and `full` the drop-in is installed before any test
is collected, and a test during which it fell back to thunder's own pass counts as failed, whatever the test itself
says: else a silent fallback would be a pass that proves nothing.

Each line of the outcomes is a JSON object: `test`, `outcome`, `seconds`, `calls` (calls of the optimizer during the
test) and, for a failure, `why`. A line with `began` is written when a test begins, so that a crash has a name.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

LEVELS = ("stock", "compat", "full")
_plugin_key = pytest.StashKey["Conformance"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("shapetrace conformance")
    group.addoption("--shapetrace-level", choices=LEVELS, default="stock", help="what does dead code elimination")
    group.addoption("--shapetrace-strict", action="store_true", help="check every answer, raise for every failure")
    group.addoption("--shapetrace-outcomes", type=Path, help="the file for the outcomes, one JSON object a line")
    group.addoption("--shapetrace-parts", type=Path, help="a JSON file that says which tests of each file to run")


def pytest_configure(config: pytest.Config) -> None:
    """Install the drop-in."""
    plugin = Conformance(
        level=config.getoption("--shapetrace-level"),
        strict=config.getoption("--shapetrace-strict"),
        outcomes=config.getoption("--shapetrace-outcomes"),
        parts=config.getoption("--shapetrace-parts"),
    )
    config.pluginmanager.register(plugin, "shapetrace-conformance")


def test_name(item: pytest.Item) -> str:
    """The name of a test, without the place where its package is installed.

    Args:
        item: The test as pytest collected it.

    Returns:
        File and test, such as `"test_core.py::test_integer_return[...]"`.
    """
    _, separator, inside = item.nodeid.partition("::")
    return item.path.name + separator + inside


def chosen(names: list[str], parts: list[dict[str, Any]]) -> set[str]:
    """The tests that a selection takes.

    Args:
        names: Names of tests, as `test_name` gives them.
        parts: What to take: `file`, and optionally `only` (the rest of one name), `match` and `without` (regular
            expressions on the rest of the name) and `one_in` (n takes about one of n, chosen by a checksum of the name:
            thunder's files do not collect the same tests in every run).

    Returns:
        The names that are taken.
    """
    taken: set[str] = set()
    for part in parts:
        for name in names:
            file, _, inside = name.partition("::")
            if file != part["file"] or not re.search(part.get("match", ""), inside):
                continue
            if part.get("only", inside) != inside:
                continue
            if "without" in part and re.search(part["without"], inside):
                continue
            if zlib.crc32(name.encode()) % part.get("one_in", 1) == 0:
                taken.add(name)
    return taken


class Conformance:
    """What the plugin does between the beginning and the end of a session."""

    def __init__(self, level: str, strict: bool, outcomes: Path | None, parts: Path | None) -> None:
        self._parts = None if parts is None else json.loads(parts.read_text())
        self._file = None if outcomes is None else outcomes.open("w", buffering=1)
        self._level = level
        self._shapetrace: Any = None
        self._why = ""
        if level != "stock":
            import shapetrace_rs

            shapetrace_rs.install(level=level, strict=strict)
            self._shapetrace = shapetrace_rs

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take the tests of the selection, and leave the order as it is."""
        if self._parts is not None:
            names = chosen([test_name(item) for item in items], self._parts)
            config.hook.pytest_deselected(items=[item for item in items if test_name(item) not in names])
            items[:] = [item for item in items if test_name(item) in names]
        self._write(selected=len(items))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Run one test and write down how it ended."""
        name = test_name(item)
        self._write(began=name)
        self._outcome, self._why = "passed", ""
        start = time.perf_counter()
        calls_before, fallbacks_before = self._counted()
        result = yield
        calls, fallbacks = self._counted()
        # Whatever the test says: it may expect an error, and a warning may be swallowed.
        if fallbacks > fallbacks_before:
            self._outcome = "failed"
            self._why = f"shapetrace_rs fell back to thunder's own pass {fallbacks - fallbacks_before} times"
        elif self._shapetrace is not None and not self._shapetrace.installed():
            self._outcome, self._why = "failed", "the test left thunder without the drop-in"
        why = {"why": self._why} if self._why else {}
        seconds = round(time.perf_counter() - start, 3)
        self._write(test=name, outcome=self._outcome, seconds=seconds, calls=calls - calls_before, **why)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What one of setup, call and teardown of a test came to."""
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        elif report.failed:
            outcome = "failed" if report.when == "call" else "error"
        else:
            outcome = report.outcome
        if outcome != "passed" and self._outcome not in {"failed", "error"}:
            self._outcome = outcome
            if report.failed:
                self._why = _last_line(report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is an outcome as well."""
        if report.failed:
            name = Path(report.nodeid.partition("::")[0]).name
            self._write(test=name, outcome="error", seconds=0, calls=0, why=_last_line(report.longreprtext))

    def pytest_sessionfinish(self) -> None:
        """The totals."""
        calls, fallbacks = self._counted()
        installed = self._shapetrace is not None and self._shapetrace.installed()
        self._write(finished=True, calls=calls, fallbacks=fallbacks, installed=installed, level=self._level)

    def _counted(self) -> tuple[int, int]:
        """Calls of the optimizer until now, and how many fell back."""
        if self._shapetrace is None:
            return 0, 0
        counters = self._shapetrace.counters()
        return counters.calls, counters.fallbacks

    def _write(self, **facts: Any) -> None:
        if self._file is not None:
            self._file.write(json.dumps(facts) + "\n")


def _last_line(text: str) -> str:
    """The line of a failure's text that says most: the last one that pytest marks as the error."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (marked or text.strip().splitlines() or ["no message"])[-1 if not marked else 0][:300]
