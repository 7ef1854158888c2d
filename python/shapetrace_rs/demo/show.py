"""How the demo shows itself: with rich on a terminal when it is installed, as plain lines everywhere else."""

from __future__ import annotations

import importlib.util
import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..report import CallRecord
    from .measure import Measurement

__all__ = ["Display", "make_display", "show_measurement"]

_HEADERS = (
    "#",
    "called by",
    "ops in",
    "ops out",
    "nested in",
    "nested out",
    "thunder ms",
    "ours ms",
    "ratio",
)
_CALLER = 1
_WIDE = 120


class Display(ABC):
    """Where the demo writes to."""

    def __init__(self) -> None:
        """Begin with no steps."""
        self._steps = 0
        self._step = 0

    def begin(self, steps: int) -> None:
        """Announce how many steps there will be.

        Args:
            steps: The number of `step` blocks to come.
        """
        self._steps, self._step = steps, 0

    @abstractmethod
    def step(self, title: str) -> AbstractContextManager[Callable[[CallRecord], None]]:
        """Show that something is going on for the length of a `with` block.

        Args:
            title: What is going on.

        Returns:
            A context manager that gives a function to call with each call of dead code elimination.
        """

    @abstractmethod
    def line(self, text: str = "", *, good: bool | None = None) -> None:
        """Write a line.

        Args:
            text: The line.
            good: Whether it is good news, bad news, or neither.
        """

    @abstractmethod
    def table(self, rows: Sequence[Sequence[str]], totals: Sequence[str]) -> None:
        """Write the table of calls.

        Args:
            rows: One row for each call, with one text for each of the headers.
            totals: The last row.
        """

    def _next(self, title: str) -> str:
        """The title of the next step with its number."""
        self._step += 1
        return f"[{self._step}/{self._steps}] {title}"


class PlainDisplay(Display):
    """Lines without any control characters."""

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[CallRecord], None]]:
        """Write the title, and how long it took when it is done."""
        print(f"{self._next(title)} ...", flush=True)
        start = time.perf_counter()
        calls = 0

        def tell(record: CallRecord) -> None:
            nonlocal calls
            del record
            calls += 1

        yield tell
        counted = f", {calls} calls of dead code elimination" if calls else ""
        print(f"      {time.perf_counter() - start:.1f} s{counted}", flush=True)

    def line(self, text: str = "", *, good: bool | None = None) -> None:
        """Write the line, with a word in front where a terminal would have a colour."""
        prefix = "" if good is None else ("ok    " if good else "WRONG ")
        print(f"{prefix}{text}")

    def table(self, rows: Sequence[Sequence[str]], totals: Sequence[str]) -> None:
        """Write the table with aligned columns."""
        every_row = [_HEADERS, *rows, totals]
        widths = [max(len(row[column]) for row in every_row) for column in range(len(_HEADERS))]
        rule = "  ".join("-" * width for width in widths)
        for index, row in enumerate(every_row):
            if index in (1, len(every_row) - 1):
                print(rule)
            cells = [
                cell.ljust(width) if column == _CALLER else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            print("  ".join(cells).rstrip())


class RichDisplay(Display):
    """Colours, a spinner and a table by rich."""

    def __init__(self) -> None:
        """Open the terminal."""
        super().__init__()
        from rich.console import Console

        self._console: Any = Console()

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[CallRecord], None]]:
        """Show a spinner, the elapsed time and the latest call; leave one line behind."""
        from rich.markup import escape
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        numbered = escape(self._next(title))
        start = time.perf_counter()
        calls = 0
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[latest]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(numbered, total=None, latest="")

            def tell(record: CallRecord) -> None:
                nonlocal calls
                calls += 1
                latest = f"[dim]call {calls}: {record.function}, {record.ops_in} ops[/dim]"
                progress.update(task, latest=latest)

            yield tell
        counted = f", {calls} calls of dead code elimination" if calls else ""
        self._console.print(f"[green]✓[/green] {numbered} [dim]{time.perf_counter() - start:.1f} s{counted}[/dim]")

    def line(self, text: str = "", *, good: bool | None = None) -> None:
        """Write the line, coloured when it is good or bad news."""
        style = None if good is None else ("green" if good else "bold red")
        self._console.print(text, style=style, markup=False, highlight=False)

    def table(self, rows: Sequence[Sequence[str]], totals: Sequence[str]) -> None:
        """Write the table with a frame."""
        from rich import box
        from rich.table import Table

        narrow = self._console.width < _WIDE
        title = "Dead code elimination, call by call, both passes on the same trace"
        table = Table(show_footer=True, title=title, box=box.SIMPLE_HEAD if narrow else box.HEAVY_HEAD)
        for column, (header, total) in enumerate(zip(_HEADERS, totals, strict=True)):
            if column == _CALLER:
                table.add_column(header, total, overflow="ellipsis", no_wrap=True, ratio=1 if narrow else None)
            else:
                # Two words stand one above the other on a narrow terminal.
                words = header.replace(" ", "\n") if narrow else header
                table.add_column(words, total, justify="right", no_wrap=True)
        for row in rows:
            # On a narrow terminal the function's name alone says more than the beginning of the whole path.
            caller = row[_CALLER].rpartition(".")[2] if narrow else row[_CALLER]
            table.add_row(*row[:_CALLER], caller, *row[_CALLER + 1 :])
        self._console.print(table)


def make_display() -> Display:
    """The best display for where the output goes.

    Returns:
        Rich's if standard output is a terminal and rich is installed, else plain lines.
    """
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        return RichDisplay()
    return PlainDisplay()


def show_measurement(measurement: Measurement, display: Display) -> None:
    """Write the results for people.

    Args:
        measurement: What the demo found.
        display: Where to write.
    """
    options = measurement.options
    environment = measurement.environment
    display.line()
    display.line(
        f"{measurement.title}: {options.layers} layers, width {options.embd}, {options.heads} heads, "
        f"{options.seq} tokens, batch {options.batch}, vocabulary {options.vocab}, {options.dtype}, "
        f'cache="{options.cache}"'
    )
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version)
    display.line(f"{versions}; Python {environment['python']}; {environment['device']}")
    display.line(f"executors: {', '.join(environment['executors'])}; drop-in at level {options.level}")
    display.line()
    for title, difference in (("outputs", measurement.outputs), ("gradients", measurement.gradients)):
        display.line(
            f"{title} against eager PyTorch: largest difference {difference.largest:.3g} "
            f"({difference.what}), largest value {difference.scale:.3g}, "
            f"allowed {difference.tolerance * difference.scale:.3g}",
            good=difference.agrees,
        )
    display.line()
    display.table([_row(number, record) for number, record in enumerate(measurement.compared, 1)], _totals(measurement))
    display.line()
    ratio = measurement.median_ratio
    if ratio is not None:
        display.line(f"Median over the calls: thunder's own pass takes {ratio:.1f} times as long on the same trace.")
    for title, compile_ in (("thunder's own pass", measurement.stock), ("the drop-in", measurement.ours)):
        display.line(
            f"Compile with {title}: {compile_.seconds:.2f} s, of which dead code elimination "
            f"{compile_.elimination_seconds * 1e3:.1f} ms in {len(compile_.records)} calls "
            f"({compile_.share:.2%})."
        )
    display.line()
    for text in _notes(measurement):
        display.line(text)


def _row(number: int, record: CallRecord) -> tuple[str, ...]:
    """One call."""
    return (
        str(number),
        record.caller,
        str(record.ops_in),
        str(record.ops_out),
        str(record.nested_in),
        str(record.nested_out),
        _milliseconds(record.thunder_ns),
        _milliseconds(record.total_ns),
        "" if record.ratio is None else f"{record.ratio:.1f}",
    )


def _totals(measurement: Measurement) -> tuple[str, ...]:
    """The last row: sums, and the ratio of the sums."""
    records = measurement.compared
    thunder_ns = sum(record.thunder_ns or 0 for record in records)
    total_ns = sum(record.total_ns for record in records if record.thunder_ns is not None)
    return (
        "",
        "total",
        str(sum(record.ops_in for record in records)),
        str(sum(record.ops_out for record in records)),
        str(sum(record.nested_in for record in records)),
        str(sum(record.nested_out for record in records)),
        _milliseconds(thunder_ns),
        _milliseconds(sum(record.total_ns for record in records)),
        f"{thunder_ns / total_ns:.1f}" if total_ns else "",
    )


def _milliseconds(nanoseconds: int | None) -> str:
    """A time with three digits behind the point; empty when there is none."""
    return "" if nanoseconds is None else f"{nanoseconds / 1e6:.3f}"


def _notes(measurement: Measurement) -> Iterator[str]:
    """How the times were taken, in words."""
    collector = measurement.environment["garbage_collector"]
    state = "on" if collector["enabled"] else "off"
    thresholds = ", ".join(str(threshold) for threshold in collector["thresholds"])
    yield "How the times were taken:"
    if measurement.options.caches == "cold":
        yield (
            "- Same trace: thunder's pass ran on a copy without any cached properties, ours on the trace "
            "itself. Copying is not in the times."
        )
    else:
        yield (
            "- Same trace: thunder's pass ran on a copy with the cached properties that the trace had before "
            "either pass, ours on the trace itself. Copying is not in the times."
        )
    yield "- Each call in the table was timed once, with the garbage collector off, for both passes."
    yield (
        "- The compile times come from separate compiles without any comparison in them, with the garbage "
        f"collector {state} (thresholds {thresholds}): there a call of either pass may include a collection."
    )
    yield (
        "- A compile's time is that of the first call less that of a second one; the backward is compiled within it."
    )
