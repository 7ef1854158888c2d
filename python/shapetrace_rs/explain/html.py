"""Reports as HTML: one page without anything outside of it, and a fragment for notebooks.

Names and source lines come from programs that nobody has checked. On the page they are data in a block that the
browser does not run, and the script puts them in as text. A content security policy allows this script and this style
sheet and nothing else, no network included. The fragment has no script at all: its texts are escaped.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from .data import REASONS
from .text import arrow, milliseconds, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .data import CallReport, OpReport, Report

__all__ = ["fragment", "page"]

_LARGEST_PLAIN = 200_000
_LARGEST_FRAME = 4_000_000
_MOST_LINES = 60
_EFFECT, _ONLY_FOR_EFFECT = 1, 2


def page(report: Report) -> str:
    """A report as one HTML page.

    Args:
        report: The report.

    Returns:
        The text of the file. Large data are compressed in it.
    """
    template, style, script = (_asset(name) for name in ("report.html", "report.css", "report.js"))
    data = json.dumps(_data(report), separators=(",", ":"))
    if len(data) <= _LARGEST_PLAIN:
        kind = "application/json"
        # Inside of a script element only `<` could end it; the others are for readers that are less strict.
        for letter in "<>&":
            data = data.replace(letter, f"\\u{ord(letter):04x}")
    else:
        kind = "application/gzip"
        # No time in the header: the same report gives the same file.
        data = base64.b64encode(gzip.compress(data.encode(), compresslevel=6, mtime=0)).decode()
    parts = {
        "@TITLE@": html.escape(f"{report.title} - shapetrace_rs"),
        "@STYLE_HASH@": _hash(style),
        "@SCRIPT_HASH@": _hash(script),
        "@STYLE@": style,
        "@SCRIPT@": script,
        "@DATA_TYPE@": kind,
        "@DATA@": data,
    }
    # Cut at all marks first: a text that is put in must not be searched for marks.
    made = []
    rest = template
    for mark in sorted(parts, key=template.index):
        before, _, rest = rest.partition(mark)
        made += [before, parts[mark]]
    return "".join([*made, rest])


def fragment(report: Report) -> str:
    """A report for a notebook: a table that needs no script, and the whole page in a frame of its own below.

    Args:
        report: The report.

    Returns:
        HTML to be put into a page. The frame is left out when the page is very large.
    """
    made = [_FRAGMENT_STYLE, '<div class="shapetrace-report">', f"<p><b>{html.escape(report.title)}</b><br>"]
    made.append(f"{html.escape(summary(report))}</p>")
    made += _fragment_table(report)
    made += [f"<p>{html.escape(note)}</p>" for note in report.notes]
    whole = page(report)
    if len(whole) <= _LARGEST_FRAME:
        made.append("<details><summary>The whole report</summary>")
        made.append(
            '<iframe sandbox="allow-scripts" loading="lazy" title="The whole report" '
            f'style="width:100%;height:720px;border:1px solid #8888" srcdoc="{html.escape(whole)}"></iframe></details>'
        )
    else:
        made.append("<p>The whole report is large: <code>report.save('report.html')</code> writes it to a file.</p>")
    made.append("</div>")
    return "".join(made)


_FRAGMENT_STYLE = (
    "<style>.shapetrace-report table{border-collapse:collapse;font-size:90%}"
    ".shapetrace-report td,.shapetrace-report th{padding:2px 10px;text-align:left!important;vertical-align:top}"
    ".shapetrace-report td.number{text-align:right!important;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".shapetrace-report pre{margin:4px 0;white-space:pre-wrap}"
    ".shapetrace-report del{color:#c0392b}.shapetrace-report ins{color:#1e8449;text-decoration:none}"
    ".shapetrace-report summary{cursor:pointer}</style>"
)


def _fragment_table(report: Report) -> Iterator[str]:
    """The table of calls, with the changed ops of each to be opened."""
    compared = any(call.record.thunder_ns is not None for call in report.calls)
    headers = ["#", "called by", "ops", "inside", "removed", "ms", *(["thunder ms"] if compared else [])]
    yield "<table><thead><tr>" + "".join(f"<th>{header}</th>" for header in headers) + "</tr></thead><tbody>"
    for number, call in enumerate(report.calls, 1):
        record = call.record
        removed = ", ".join(f"{reason} {count:,}" for reason, count in record.removed.items() if count)
        if record.fallback:
            removed = f"thunder's pass did it: {record.fallback}"
        yield f'<tr><td class="number">{number}</td><td>{html.escape(record.caller)}</td>'
        yield f'<td class="number">{html.escape(arrow(record.ops_in, record.ops_out))}</td>'
        yield f'<td class="number">{html.escape(arrow(record.nested_in, record.nested_out))}</td><td>'
        yield html.escape(removed) if not call.has_ops or not removed else "".join(_fragment_ops(call, removed))
        yield f'</td><td class="number">{milliseconds(record.total_ns)}</td>'
        if compared:
            yield f'<td class="number">{milliseconds(record.thunder_ns)}</td>'
        yield "</tr>"
    yield "</tbody></table>"


def _fragment_ops(call: CallReport, removed: str) -> Iterator[str]:
    """The first changed ops of a call."""
    touched = [op for op in call.ops if op.before != op.after]
    yield f"<details><summary>{html.escape(removed)}</summary><pre>"
    for op in touched[:_MOST_LINES]:
        why = "" if op.after is not None else html.escape(f"{op.fate}: {REASONS.get(op.fate, '')}", quote=True)
        yield f'<del title="{why}">{html.escape(_one_line(op.before))}</del>'
        if op.after is not None:
            yield f"\n<ins>{html.escape(_one_line(op.after))}</ins>"
        yield "\n"
    if len(touched) > _MOST_LINES:
        yield f"and {len(touched) - _MOST_LINES:,} more\n"
    yield "</pre></details>"


def _one_line(text: str) -> str:
    """The first line of an op's text."""
    return text.split("\n", 1)[0]


@functools.cache
def _asset(name: str) -> str:
    """A file of this package."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy calls a text by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class _Strings:
    """Texts by number: most of them occur in every call of a compile."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of a text, -1 for none."""
        if text is None:
            return -1
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.all)
            self.all.append(text)
        return number


def _data(report: Report) -> dict[str, Any]:
    """What the script reads: columns of numbers, and one list of texts."""
    report.print_ops()
    strings = _Strings()
    fates = ["kept", "changed", *REASONS]
    calls = []
    for call in report.calls:
        data = call.to_dict(ops=False)
        data["provenance"] = data["provenance"].partition(" (took")[0]
        data["renames"] = call.renames
        data.pop("kept_for_effect", None)
        data["ops"] = _columns(call.ops, strings, fates) if call.has_ops else None
        calls.append(data)
    return {
        "title": report.title,
        "summary": summary(report),
        "notes": report.notes,
        "reasons": REASONS,
        "compiles": report.compiles,
        "calls": calls,
        "passes": [step.to_dict() for step in report.passes],
        "fates": fates,
        "strings": strings.all,
    }


def _columns(ops: tuple[OpReport, ...], strings: _Strings, fates: list[str]) -> dict[str, list[int]]:
    """The ops of a call, one list for each field."""
    columns: dict[str, list[int]] = {
        name: [] for name in ("depth", "fate", "flags", "name", "before", "after", "types", "source")
    }
    for kind in ("operand", "result"):
        columns[f"{kind}Ids"] = []
        columns[f"{kind}Starts"] = [0]
    for op in ops:
        if op.fate not in fates:
            fates.append(op.fate)
        columns["depth"].append(op.depth)
        columns["fate"].append(fates.index(op.fate))
        columns["flags"].append(_EFFECT * op.effect + _ONLY_FOR_EFFECT * op.only_for_effect)
        columns["name"].append(strings.number(op.name))
        columns["before"].append(strings.number(op.before))
        columns["after"].append(strings.number(op.after))
        columns["types"].append(strings.number(op.types or None))
        columns["source"].append(strings.number(op.source))
        for kind, names in (("operand", op.operands), ("result", op.results)):
            columns[f"{kind}Ids"] += [strings.number(name) for name in names]
            columns[f"{kind}Starts"].append(len(columns[f"{kind}Ids"]))
    return columns
