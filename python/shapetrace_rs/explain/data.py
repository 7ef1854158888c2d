"""The data of a report: plain values, made from what was recorded.

The text of an op is made when it is first asked for, since printing takes thunder longer than a compile takes us.
It is made from copies of the bound symbols: printing leaves caches on them, and names objects in their trace.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .lines import Printer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..report import CallRecord, CompileKey, Explanation, RecordedCall, RecordedPass

__all__ = ["REASONS", "CallReport", "OpReport", "PassReport", "Report", "report_of"]

REASONS: dict[str, str] = {
    "dead": "Nothing that stays needs a result of it, and it has no effect.",
    "inside-removed": "The op around it was removed.",
    "duplicate-producer": "All that it defines was defined before in the same scope.",
    "duplicate-query": "The same shape was asked for before in the same scope.",
    "redundant-query": "All numbers of this shape are known in this scope already.",
    "folded": "Its result is a constant, or a number that has another name already.",
    "no-op": "It does nothing but hand back what it was given.",
}
"""What each reason of a removal means."""

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class OpReport:
    """What happened to one op.

    Attributes:
        index: Its place among all ops of the call, in the order of the printed trace.
        owner: The index of the op that it is inside of; `None` at the top level.
        depth: How many ops are around it.
        name: The symbol, as it is called in the trace.
        before: How it was printed, without the type of its result.
        after: How it is printed now; `None` if it is gone.
        types: The type of its result, where thunder prints one.
        fate: `"kept"`, `"changed"`, or the reason of its removal.
        effect: Whether it has to stay for an effect.
        only_for_effect: Whether it is there for its effect alone: nothing that stays reads a result of it.
        source: The file and line of the program that it comes from, if the trace knows it.
        operands: The names of the values that it read.
        results: The names of the values that it defined.
    """

    index: int
    owner: int | None
    depth: int
    name: str
    before: str
    after: str | None
    types: str
    fate: str
    effect: bool
    only_for_effect: bool
    source: str | None
    operands: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def removed(self) -> bool:
        """Whether it is gone."""
        return self.after is None

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for `json.dumps`.

        Returns:
            A new dictionary.
        """
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class PassReport:
    """A step of thunder's between calls of dead code elimination.

    Attributes:
        name: What thunder calls it.
        compile: Which compile of the report it belongs to, from 0.
        calls_before: How many calls of the report come before it.
        ops: Top-level ops of the trace that it made.
        nested: Ops inside them.
    """

    name: str
    compile: int
    calls_before: int
    ops: int
    nested: int

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for `json.dumps`.

        Returns:
            A new dictionary.
        """
        return {name: getattr(self, name) for name in self.__slots__}


class CallReport:
    """One call of dead code elimination.

    Attributes:
        record: Where it came from, its sizes and its times.
        compile: Which compile of the report it belongs to, from 0.
        measured: `"in the compile"`, or `"afterwards"` when the optimizer ran on a trace that had been kept.
    """

    def __init__(
        self,
        record: CallRecord,
        compile: int = 0,  # noqa: A002 (the word for it)
        explanation: Explanation | None = None,
        measured: str = "in the compile",
        ops: Sequence[OpReport] | None = None,
    ) -> None:
        """Keep the parts; reports make these objects."""
        self.record = record
        self.compile = compile
        self.measured = measured
        self._explanation = explanation
        self._ops = None if ops is None else tuple(ops)

    @property
    def has_ops(self) -> bool:
        """Whether it is known what happened to each op."""
        return self._explanation is not None or self._ops is not None

    @property
    def renames(self) -> dict[str, str]:
        """Names of numbers that are no longer used, and the names or literals that stand for them."""
        return {} if self._explanation is None else dict(self._explanation.renames)

    @property
    def ops(self) -> tuple[OpReport, ...]:
        """What happened to each op, in the order of the printed trace; empty when that is not known."""
        self.print_with(None)
        return self._ops or ()

    def print_with(self, printer: Printer | None) -> None:
        """Make `ops` now, if that has not happened.

        Args:
            printer: A printer that remembers what it printed for other calls, or `None` for one of its own.
        """
        if self._ops is None and self._explanation is not None:
            self._ops = tuple(_op_reports(self._explanation, printer or Printer()))

    @property
    def kept_for_effect(self) -> list[OpReport]:
        """The ops that are there for an effect alone."""
        return [op for op in self.ops if op.only_for_effect]

    def to_dict(self, *, ops: bool = True) -> dict[str, Any]:
        """The call as data.

        Args:
            ops: Whether to tell of each op.

        Returns:
            A new dictionary, ready for `json.dumps`.
        """
        data = self.record.as_dict()
        data.update(
            caller=self.record.caller,
            ratio=self.record.ratio,
            compile=self.compile,
            measured=self.measured,
            has_ops=self.has_ops,
        )
        if self.has_ops:
            data["renames"] = self.renames
            data["kept_for_effect"] = [op.before for op in self.kept_for_effect]
            if ops:
                data["ops"] = [op.to_dict() for op in self.ops]
        return data

    def __repr__(self) -> str:
        """The call in one line."""
        record = self.record
        return f"<CallReport of {record.caller}: {record.ops_in} ops became {record.ops_out}>"


class Report:
    """What the optimizer did, call by call.

    `str(report)` is a plain table, `show()` prints the best table for where the output goes, `save()` writes HTML or
    JSON, and in a notebook the report shows itself.

    Attributes:
        title: What the report is about.
        calls: The calls, in the order in which they ended.
        passes: The steps of thunder's between them, where they are known.
        compiles: The name of each compile that the calls belong to.
        notes: What a reader has to know about how the report came about.
    """

    def __init__(
        self,
        title: str,
        calls: Sequence[CallReport],
        *,
        passes: Sequence[PassReport] = (),
        compiles: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Keep the parts; `explain`, `last_report` and `Recording.report` make reports."""
        self.title = title
        self.calls = list(calls)
        self.passes = list(passes)
        self.compiles = list(compiles)
        self.notes = list(notes)

    def __len__(self) -> int:
        """How many calls there were."""
        return len(self.calls)

    def __iter__(self) -> Iterator[CallReport]:
        """The calls, in order."""
        return iter(self.calls)

    @property
    def removed(self) -> dict[str, int]:
        """How many ops went for which reason, in all calls together."""
        totals = dict.fromkeys(REASONS, 0)
        for call in self.calls:
            for reason, number in call.record.removed.items():
                totals[reason] = totals.get(reason, 0) + number
        return {reason: number for reason, number in totals.items() if number}

    @property
    def seconds(self) -> float:
        """The time of all calls together."""
        return sum(call.record.total_ns for call in self.calls) / 1e9

    @property
    def thunder_seconds(self) -> float | None:
        """The time of thunder's own pass on the same traces; `None` unless it was measured for every call."""
        times = [call.record.thunder_ns for call in self.calls]
        if not times or any(time is None for time in times):
            return None
        return sum(time for time in times if time is not None) / 1e9

    def print_ops(self) -> None:
        """Make the text of all ops; what several calls share is printed once."""
        printer = Printer()
        for call in self.calls:
            call.print_with(printer)

    def to_dict(self, *, ops: bool = True) -> dict[str, Any]:
        """The whole report as data.

        Args:
            ops: Whether to tell of each op, where that is known.

        Returns:
            A new dictionary, ready for `json.dumps`.
        """
        from ..versions import installed_version

        names = ("shapetrace-rs", "lightning-thunder", "torch")
        self.print_ops()
        return {
            "format": _FORMAT,
            "title": self.title,
            "versions": {name: installed_version(name) for name in names},
            "notes": list(self.notes),
            "compiles": list(self.compiles),
            "removed": self.removed,
            "seconds": self.seconds,
            "thunder_seconds": self.thunder_seconds,
            "calls": [call.to_dict(ops=ops) for call in self.calls],
            "passes": [step.to_dict() for step in self.passes],
        }

    def to_json(self, *, ops: bool = True, indent: int | None = None) -> str:
        """The whole report as JSON.

        Args:
            ops: Whether to tell of each op, where that is known.
            indent: As for `json.dumps`.

        Returns:
            The text.
        """
        return json.dumps(self.to_dict(ops=ops), indent=indent)

    def to_html(self) -> str:
        """The whole report as one page without anything outside of it.

        Returns:
            The text of an HTML file.
        """
        from .html import page

        return page(self)

    def save(self, path: str | Path) -> Path:
        """Write the report to a file: JSON if its name ends in `.json`, plain text for `.txt`, otherwise HTML.

        Args:
            path: The file.

        Returns:
            The same, as a `Path`.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix == ".json":
            text = self.to_json(indent=1) + "\n"
        elif suffix == ".txt":
            text = str(self) + "\n"
        else:
            text = self.to_html()
        path.write_text(text, encoding="utf-8")
        return path

    def show(self) -> None:
        """Print the report: with colours on a terminal if rich is installed, as plain lines everywhere else."""
        from .text import show

        show(self)

    def __str__(self) -> str:
        """The report as a plain table."""
        from .text import plain

        return plain(self)

    def __repr__(self) -> str:
        """The report in one line."""
        from .text import summary

        return f"<Report: {summary(self)}; .show(), .save('report.html'), .to_dict()>"

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """The report as rich prints it."""
        from .text import renderable

        del console
        yield renderable(self, options.max_width)

    def _repr_html_(self) -> str:
        """The report as a notebook shows it."""
        from .html import fragment

        return fragment(self)


def report_of(
    calls: Iterable[RecordedCall | tuple[RecordedCall, str]],
    *,
    passes: Iterable[RecordedPass] = (),
    title: str = "",
    notes: Sequence[str] = (),
) -> Report:
    """A report of recorded calls.

    Args:
        calls: The calls, each alone or with how it was measured.
        passes: The steps of thunder's between them.
        title: What it is about; by default the names of the functions that were compiled.
        notes: What a reader has to know.

    Returns:
        The report.
    """
    numbers: dict[CompileKey, int] = {}
    reports = []
    for entry in calls:
        call, measured = entry if isinstance(entry, tuple) else (entry, "in the compile")
        number = numbers.setdefault(call.key, len(numbers))
        reports.append(CallReport(call.record, number, call.explanation, measured))
    steps: list[PassReport] = []
    for step in passes:
        number = numbers.setdefault(step.key, len(numbers))
        made = PassReport(step.name, number, step.calls_before, step.ops, step.nested)
        # Some passes write their name once for each executor.
        if not steps or steps[-1] != made:
            steps.append(made)
    names = [_compile_name(key) for key in numbers]
    if not title:
        different = list(dict.fromkeys(names))
        title = ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")  # noqa: PLR2004
    return Report(title or "nothing", reports, passes=steps, compiles=names, notes=notes)


def _compile_name(key: CompileKey) -> str:
    """What a compile is called."""
    if key.function is None:
        return key.name or "calls outside of a compile"
    return key.name if key.number <= 1 else f"{key.name} (compile {key.number})"


def _plain(value: Any) -> Any:
    """A tuple as the list that it becomes in JSON."""
    return list(value) if isinstance(value, tuple) else value


def _op_reports(explanation: Explanation, printer: Printer) -> Iterator[OpReport]:
    """One report for each op, in the order of the printed trace. No recursion: traces may be nested very deep."""
    ops = explanation.ops
    inside: dict[int | None, list[int]] = {}
    for position, (_, _, owner, _, _) in enumerate(ops):
        inside.setdefault(owner, []).append(position)
    printer.enter(explanation.trace)
    alone = _only_for_effect(explanation, inside, printer)

    index_of: dict[int, int] = {}
    waiting = [(position, 0) for position in reversed(inside.get(None, ()))]
    while waiting:
        position, depth = waiting.pop()
        before, after, owner, word, effect = ops[position]
        index = index_of[position] = len(index_of)
        line = printer.line(before)
        yield OpReport(
            index=index,
            owner=None if owner is None else index_of[owner],
            depth=depth,
            name=line.name,
            before=line.text,
            after=None if after is None else printer.line(after).text,
            types=line.types,
            fate=word,
            effect=effect,
            only_for_effect=position in alone,
            source=line.source,
            operands=line.operands,
            results=line.results,
        )
        waiting.extend((child, depth + 1) for child in reversed(inside.get(position, ())))


def _only_for_effect(explanation: Explanation, inside: dict[int | None, list[int]], printer: Printer) -> set[int]:
    """The ops with an effect of whose results nothing that stays reads any."""
    alone: set[int] = set()
    for owner, positions in inside.items():
        left = [(position, explanation.ops[position]) for position in positions if explanation.ops[position][1]]
        candidates = [(position, after) for position, (_, after, _, _, effect) in left if effect]
        if not candidates:
            continue
        readers: dict[str, int] = {}
        for _, (_, after, _, _, _) in left:
            for name in set(printer.line(after).operands):
                readers[name] = readers.get(name, 0) + 1
        if owner is not None:
            around = explanation.ops[owner][1]
            for name in () if around is None else set(printer.line(around).results):
                readers[name] = readers.get(name, 0) + 1
        for position, after in candidates:
            line = printer.line(after)
            own = set(line.operands)
            # What an op hands back of its own arguments is no result of it.
            made = [name for name in line.results if name not in own]
            if not line.is_return and not any(readers.get(name) for name in made):
                alone.add(position)
    return alone
