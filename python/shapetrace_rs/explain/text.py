"""Reports as text: a table by rich on a terminal, aligned columns without control characters everywhere else."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .data import CallReport, Report

__all__ = ["milliseconds", "plain", "renderable", "show", "summary"]

_HEADERS = ("#", "called by", "on the result of", "ops", "inside", "removed", "ms")
_COMPARED_HEADERS = ("thunder ms", "ratio")
_LEFT = ("called by", "on the result of", "removed")
_MOST_EFFECTS = 12
_NARROWEST = 20


def show(report: Report) -> None:
    """Print a report to standard output.

    Args:
        report: The report.
    """
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        from rich.console import Console

        Console().print(report)
    else:
        print(plain(report))  # noqa: T201 (printing is what was asked for)


def summary(report: Report) -> str:
    """A report in one line.

    Args:
        report: The report.

    Returns:
        How many calls there were, what they removed and how long they took.
    """
    calls = len(report.calls)
    removed = sum(report.removed.values())
    text = f"{calls:,} call{'' if calls == 1 else 's'} of dead code elimination, {removed:,} ops removed"
    text += f" in {report.seconds * 1e3:.2f} ms"
    if report.thunder_seconds is not None:
        text += f" (thunder's own pass: {report.thunder_seconds * 1e3:.2f} ms)"
    return text


def plain(report: Report) -> str:
    """A report as lines that fit into a log.

    Args:
        report: The report.

    Returns:
        The text, without a line break at its end.
    """
    headers, rows, totals = _table(report)
    every_row = [headers, *rows, totals]
    widths = [max(len(row[column]) for row in every_row) for column in range(len(headers))]
    rule = "  ".join("-" * width for width in widths)
    lines = [report.title, ""]
    for index, row in enumerate(every_row):
        if index in (1, len(every_row) - 1):
            lines.append(rule)
        cells = [
            cell.ljust(width) if header in _LEFT else cell.rjust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    remarks = list(_remarks(report))
    return "\n".join([*lines, *([""] if remarks else []), *remarks])


def renderable(report: Report, width: int) -> Any:
    """A report as rich prints it.

    Args:
        report: The report.
        width: How many columns there are.

    Returns:
        An object for `Console.print`.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    headers, rows, totals = _table(report)
    table = Table(title=Text(report.title, style="bold"), show_footer=True, box=box.SIMPLE_HEAD, title_justify="left")
    numbers = {
        header: max(len(row[column]) for row in [headers, *rows, totals])
        for column, header in enumerate(headers)
        if header not in _LEFT
    }
    # On a narrow terminal the columns go that one can do without. Three positions lie between two columns.
    for shown in (_LEFT, ("called by", "removed"), ("called by",)):
        room = width - sum(numbers.values()) - 3 * (len(numbers) + len(shown)) - 1
        if room >= _NARROWEST * len(shown):
            break
    shares = dict.fromkeys(shown, max(room // len(shown), 6))
    for header, total in zip(headers, totals, strict=True):
        style = {"removed": "red", "ratio": "green", "#": "dim"}.get(header, "")
        if header in numbers:
            table.add_column(header, Text(total), justify="right", no_wrap=True, width=numbers[header], style=style)
        elif header in shown:
            wrap = header == "removed"
            table.add_column(
                header,
                Text(total),
                no_wrap=not wrap,
                overflow="fold" if wrap else "ellipsis",
                max_width=shares[header],
                style=style,
            )
    caller = headers.index("called by")
    for row in rows:
        cells = list(row)
        if len(cells[caller]) > shares["called by"]:
            # The function alone says more than the beginning of the whole path.
            cells[caller] = cells[caller].rpartition(".")[2]
        # The text of a program is no markup.
        table.add_row(
            *(Text(cell) for header, cell in zip(headers, cells, strict=True) if header in numbers or header in shown)
        )
    remarks = [Text(remark, style="dim" if remark.startswith(" ") else "") for remark in _remarks(report)]
    return Group(table, *remarks)


def milliseconds(nanoseconds: int | None) -> str:
    """A time in milliseconds.

    Args:
        nanoseconds: The time, or `None`.

    Returns:
        Three digits behind the point; empty when there is no time.
    """
    return "" if nanoseconds is None else f"{nanoseconds / 1e6:.3f}"


def arrow(before: int, after: int) -> str:
    """A number before and after.

    Args:
        before: The number before.
        after: The number after.

    Returns:
        Both with an arrow, or the one that they are.
    """
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _table(report: Report) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """The headers, one row for each call, and the sums."""
    compared = any(call.record.thunder_ns is not None for call in report.calls)
    headers = _HEADERS + (_COMPARED_HEADERS if compared else ())
    rows = [_row(number, call, compared=compared) for number, call in enumerate(report.calls, 1)]
    records = [call.record for call in report.calls]
    totals = [
        "",
        "all calls",
        "",
        arrow(sum(record.ops_in for record in records), sum(record.ops_out for record in records)),
        arrow(sum(record.nested_in for record in records), sum(record.nested_out for record in records)),
        f"{sum(report.removed.values()):,} ops",
        milliseconds(sum(record.total_ns for record in records)),
    ]
    if compared:
        both = [record for record in records if record.thunder_ns is not None]
        thunder_ns = sum(record.thunder_ns or 0 for record in both)
        own_ns = sum(record.total_ns for record in both)
        totals += [milliseconds(thunder_ns), f"{thunder_ns / own_ns:.1f}" if own_ns else ""]
    return headers, rows, tuple(totals)


def _row(number: int, call: CallReport, *, compared: bool) -> tuple[str, ...]:
    """One call."""
    record = call.record
    removed = f"thunder's pass did it: {record.fallback}" if record.fallback else _reasons(record.removed)
    cells = [
        str(number),
        record.caller,
        record.provenance.partition(" (took")[0],
        arrow(record.ops_in, record.ops_out),
        arrow(record.nested_in, record.nested_out),
        removed,
        milliseconds(record.total_ns),
    ]
    if compared:
        ratio = record.ratio
        cells += [milliseconds(record.thunder_ns), "" if ratio is None else f"{ratio:.1f}"]
    return tuple(cells)


def _reasons(removed: dict[str, int]) -> str:
    """How many ops went for which reason."""
    return ", ".join(f"{reason} {number:,}" for reason, number in removed.items() if number)


def _remarks(report: Report) -> Iterator[str]:
    """What stands below the table."""
    if report.removed:
        yield f"Removed: {_reasons(report.removed)}"
    # The same op goes through several calls; once is enough to tell of it.
    kept = dict.fromkeys(
        (op.before.split("\n", 1)[0], op.source) for call in report.calls if call.has_ops for op in call.kept_for_effect
    )
    if kept:
        yield f"Kept for an effect alone, {len(kept):,} different ops:"
        yield from _shortened([line if source is None else f"{line}  ({source})" for line, source in kept])
    for note in report.notes:
        yield f"Note: {note}"


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    """The first lines, indented."""
    for line in lines[:_MOST_EFFECTS]:
        yield f"  {line}"
    if len(lines) > _MOST_EFFECTS:
        yield f"  and {len(lines) - _MOST_EFFECTS:,} more"
