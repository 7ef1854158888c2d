"""`stat`, `show`, `opt`, `verify` and `diff`: what can be done with traces in files.

They need neither thunder nor torch. Exit codes are the same for all: 0 when all is well, 1 when `verify` found
something or the files of `diff` differ, 2 when a file cannot be read or written or the words make no sense.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ShapetraceError, TraceFileError
from .arguments import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from .._core import TraceFile

__all__ = ["COMMANDS", "main"]

_SLOW_SECONDS = 0.5
"""After so long a step says on a terminal what it is doing."""

_MOST_CONTEXT = 1 << 31
"""More lines than a trace can have."""

_FILE_HELP = "a trace file, in the binary or the text form; - for standard input"


def _exit_codes(one: str | None = None) -> str:
    """The part of a help text that tells scripts what to expect; `one` is what exit code 1 says, if it is used."""
    lines = ["0  all is well", *([] if one is None else [f"1  {one}"])]
    lines.append("2  a file cannot be read or written, or the words make no sense")
    return "exit codes:\n  " + "\n  ".join(lines) + "\n"


def main(command: str, words: Sequence[str]) -> int:
    """Run one of the commands.

    Args:
        command: One of `COMMANDS`.
        words: The words behind it.

    Returns:
        The exit code: 0, 1 or 2.
    """
    make_parser, run, _ = COMMANDS[command]
    parsed = make_parser().parse_args(words)
    code = 0
    try:
        code = run(parsed)
        _flush_output()
    except BrokenPipeError:
        # The reader of our output has seen enough.
        _drop_output()
    except (ShapetraceError, OSError, MemoryError, UnicodeError) as error:
        # Python would end with exit code 1, which is an answer here.
        code = 2
        print(f"shapetrace {command}: {_message(error)}", file=sys.stderr)
        try:
            _flush_output()
        except OSError:
            _drop_output()
    return code


def _message(error: Exception) -> str:
    """What to say about an error, in a line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, UnicodeEncodeError):
        return f"{error}; PYTHONIOENCODING=utf-8 lets everything be printed"
    return str(error)


def _flush_output() -> None:
    # There is none if the process was started with its standard output closed.
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_output() -> None:
    """Send what is still to be printed nowhere: Python would complain when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _output() -> TextIO:
    """Standard output, for what has to get there."""
    if sys.stdout is None:
        message = "standard output is closed"
        raise OSError(message)
    return sys.stdout


class _Step:
    """A step of a command that may take long; on a terminal it says so, and takes the line away again.

    Attributes:
        amount: How much there is to do, or is done, if that is known.
    """

    def __init__(self, what: str, amount: str = "", *, file: str = "") -> None:
        """Prepare a step.

        Args:
            what: What is done.
            amount: See above.
            file: What errors are about, if they do not say so themselves.
        """
        self.amount = amount
        self._what = what
        self._file = file
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()

    def _show(self) -> None:
        shown = False
        while not self._ended.wait(_SLOW_SECONDS):
            shown = True
            sys.stderr.write(f"\r\x1b[K{self._what}{f' ({self.amount})' if self.amount else ''} ...")
            sys.stderr.flush()
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._file and isinstance(error, TraceFileError):
            message = f"{_name_of(self._file)}: {error}"
            raise TraceFileError(message, op=error.op) from None


def _in_bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _in_ops(*files: TraceFile) -> str:
    return f"{' and '.join(f'{sum(file.op_counts):,}' for file in files)} ops"


def _name_of(path: str) -> str:
    return "standard input" if path == "-" else path


def _read(path: str) -> TraceFile:
    """The trace in a file, or on standard input."""
    from .. import _core
    from ..files import read_whole

    name = _name_of(path)
    step = _Step(f"reading {name}")

    def tell(count: int) -> None:
        step.amount = _in_bytes(count)

    with step:
        if path != "-":
            with Path(path).open("rb") as file:
                data = read_whole(file, name, tell)
        elif sys.stdin is None:
            message = "standard input is closed"
            raise TraceFileError(message)
        else:
            data = read_whole(sys.stdin.buffer, name, tell)
    with _Step(f"reading {name}", _in_bytes(len(data)), file=path):
        return _core.TraceFile.read(data)


def _parser(command: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"shapetrace {command}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


# stat


def _stat_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "stat",
        "What is in a trace: its ops by kind and by symbol, its scopes and values, and what the optimizer would\n"
        "remove.",
        "examples:\n"
        "  shapetrace stat first.trace\n"
        "  shapetrace stat --json first.trace | jq .removable\n\n" + _exit_codes(),
    )
    parser.add_argument("file", metavar="FILE", help=_FILE_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--symbols", type=whole_number, default=20, metavar="N", help="list the N commonest symbols (20)"
    )
    return parser


def _stat(parsed: argparse.Namespace) -> int:
    file = _read(parsed.file)
    with _Step("counting", _in_ops(file), file=parsed.file):
        statistics = file.statistics()
    if parsed.json:
        print(json.dumps({**statistics, "about": file.about}, indent=1))
        return 0
    print("\n".join(_stat_lines(file, statistics, parsed.symbols)))
    return 0


def _stat_lines(file: TraceFile, statistics: dict[str, Any], most_symbols: int) -> Iterator[str]:
    def row(name: str, count: object, note: str = "") -> str:
        return f"  {name:<24} {count:>9}{'  ' + note if note else ''}"

    if file.about:
        yield "written by " + ", ".join(f"{name} {version}" for name, version in file.about.items())
    else:
        yield "a program only, without data of thunder"
    for group, counts in statistics.items():
        if not isinstance(counts, dict):
            continue
        items = list(counts.items())
        shown = items[:most_symbols] if group == "symbols" else items
        yield f"{group.replace('_', ' ')}"
        yield from (row(name.replace("_", " ") if group != "symbols" else name, count) for name, count in shown)
        if len(items) > len(shown):
            yield f"  and {len(items) - len(shown)} more"
        if group == "removable" and file.lacks_return:
            yield "  the trace has no return, so nothing says which values are needed"


# show


def _show_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "show",
        "A trace as text: first the program, then what only thunder needs. Every command reads this form as well.",
        "examples:\n"
        "  shapetrace show --program first.trace | less\n"
        "  shapetrace show first.trace > first.txt\n\n" + _exit_codes(),
    )
    parser.add_argument("file", metavar="FILE", help=_FILE_HELP)
    parser.add_argument("--program", action="store_true", help="the program alone, without the data of thunder")
    return parser


def _show(parsed: argparse.Namespace) -> int:
    file = _read(parsed.file)
    with _Step("printing", _in_ops(file), file=parsed.file):
        text = file.to_text(host=not parsed.program)
    _output().write(text)
    return 0


# opt


def _opt_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "opt",
        "Optimize a trace and say what was removed and why. The result is a trace file again, which\n"
        "shapetrace_rs.load makes a thunder trace of.",
        "examples:\n"
        "  shapetrace opt first.trace -o small.trace\n"
        "  shapetrace opt --level compat first.trace -o - | shapetrace show -\n"
        "  shapetrace opt --quiet --text first.trace -o -\n\n" + _exit_codes(),
    )
    parser.add_argument("file", metavar="FILE", help=_FILE_HELP)
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the result; - for standard output")
    parser.add_argument("--level", choices=("full", "compat"), default="full", help="full (the default), or compat")
    parser.add_argument("--keep-random", action="store_true", help="keep random ops that nobody uses")
    parser.add_argument(
        "--keep-shape-numbers", action="store_true", help="keep one producer of each number in a live tensor's shape"
    )
    parser.add_argument("--no-floor-division", action="store_true", help="leave thunder's long form of a // b")
    parser.add_argument("--text", action="store_true", help="write the text form")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every op that went, and where it is from")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of what was removed")
    return parser


def _opt(parsed: argparse.Namespace) -> int:
    file = _read(parsed.file)
    start = time.perf_counter()
    with _Step("optimizing", _in_ops(file), file=parsed.file):
        optimized, removals = file.optimize(
            level=parsed.level,
            keep_random=parsed.keep_random,
            keep_shape_numbers=parsed.keep_shape_numbers,
            floor_division=not parsed.no_floor_division,
        )
    milliseconds = (time.perf_counter() - start) * 1e3
    step = _Step(f"writing {parsed.output}", _in_ops(optimized), file=parsed.file)
    with step:
        data = optimized.to_text().encode() if parsed.text else optimized.to_bytes()
        step.amount = _in_bytes(len(data))
        if parsed.output == "-":
            _output().buffer.write(data)
            _output().flush()
        else:
            from ..files import write_whole

            write_whole(Path(parsed.output), data)
    if not parsed.quiet:
        # On stderr: the result may be on standard output.
        for line, reason, source in removals if parsed.verbose else ():
            print(f"  {reason:<18} {line}{f'   ({source})' if source else ''}", file=sys.stderr)
        (before, inside_before), (after, inside_after) = file.op_counts, optimized.op_counts
        print(
            f"{before} ops -> {after}, inside other ops {inside_before} -> {inside_after}, in {milliseconds:.1f} ms",
            file=sys.stderr,
        )
        for reason, count in Counter(reason for _, reason, _ in removals).most_common():
            print(f"  {count:>7}  {reason}", file=sys.stderr)
    return 0


# verify


def _verify_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "verify",
        "Check that every value is defined before it is used, that ops inside others use only what their owner takes,\n"
        "and that the return is the last op.",
        "examples:\n"
        "  shapetrace verify first.trace && echo fine\n"
        "  shapetrace verify --optimized small.trace\n\n" + _exit_codes("something is wrong with a trace"),
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help=_FILE_HELP)
    parser.add_argument(
        "--optimized", action="store_true", help="also find values that are defined twice, as after level full"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing, the exit code tells")
    return parser


def _verify(parsed: argparse.Namespace) -> int:
    found = 0
    for path in parsed.files:
        file = _read(path)
        with _Step(f"checking {_name_of(path)}", _in_ops(file), file=path):
            findings = file.verify(optimized=parsed.optimized)
        found += len(findings)
        if parsed.quiet:
            continue
        for kind, message, op, value, owner, source in findings:
            which = "" if value is None else f" %{value}"
            where = "the outputs" if op is None else f"`{op}`"
            inside = "" if owner is None else f", inside `{owner}`"
            print(f"{path}: {kind}:{which} {message}: {where}{inside}{f' ({source})' if source else ''}")
        if not findings:
            print(f"{path}: nothing is wrong")
    return 1 if found else 0


# diff


def _diff_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "diff",
        "The ops in which two traces differ, in the unified form. If the programs are the same, what thunder needs\n"
        "beside them is compared, such as the provenance, which tells how long the last pass took.",
        "examples:\n"
        "  shapetrace diff 0003-computation-before.trace 0003-computation-after.trace\n"
        "  shapetrace diff -q --program rank0.trace rank1.trace || echo the ranks differ\n\n"
        + _exit_codes("the traces differ"),
    )
    parser.add_argument("before", metavar="A", help=_FILE_HELP)
    parser.add_argument("after", metavar="B", help="the other one")
    parser.add_argument("--program", action="store_true", help="compare the programs alone")
    parser.add_argument("-U", "--unified", type=whole_number, default=3, metavar="N", help="lines of context (3)")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing, the exit code tells")
    return parser


def _diff(parsed: argparse.Namespace) -> int:
    if parsed.before == parsed.after == "-":
        message = "standard input can be one of the two only"
        raise TraceFileError(message)
    before, after = _read(parsed.before), _read(parsed.after)
    with _Step("comparing", _in_ops(before, after), file=f"{parsed.before}, {parsed.after}"):
        text, summary = before.difference(
            after, parsed.before, parsed.after, context=min(parsed.unified, _MOST_CONTEXT), host=not parsed.program
        )
    if not text:
        return 0
    if not parsed.quiet:
        _output().write(text)
        _output().flush()
        print(summary, file=sys.stderr)
    return 1


COMMANDS: dict[str, tuple[Callable[[], argparse.ArgumentParser], Callable[[argparse.Namespace], int], str]] = {
    "stat": (_stat_parser, _stat, "what is in a trace file, and what would be removed"),
    "show": (_show_parser, _show, "a trace file as text"),
    "opt": (_opt_parser, _opt, "optimize a trace file"),
    "verify": (_verify_parser, _verify, "check trace files"),
    "diff": (_diff_parser, _diff, "compare two trace files"),
}
"""For each command: its parser, what it does, and a line about it."""
