"""`explain`: run any script or module, unmodified, and write a report of what the optimizer did.

The program runs exactly as with `run`. The report is written when the process ends, however that comes about, and also
when the program fails: a report of the compiles before a failure is worth having.
"""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..options import OptimizeOptions
    from ..report import CallRecord, Recording

__all__ = ["main"]

_DESCRIPTION = """\
Run a Python script or module, unmodified, with the drop-in installed, and write a report of every call of dead code
elimination: what came in, what left and why, as one HTML file that needs nothing else. Options stand before the
script; all that stands behind it belongs to the script.
"""

_EXAMPLES = """\
examples:
  shapetrace explain train.py --epochs 1
      writes shapetrace-report.html
  shapetrace explain --compare -o report.html train.py
      also times thunder's own pass on copies of the same traces
  shapetrace explain -o report.json -m my_package.train
      writes data for a script of yours
"""


def main(words: Sequence[str]) -> int:
    """Run a program and write a report.

    Args:
        words: The words behind `explain`.

    Returns:
        As for `run`: 0 when the program ran to its end, 2 when there is no such program or no place for the report.
    """
    parser = _parser()
    own_words, module, program_words = run._split(parser, words)
    parsed = parser.parse_args(own_words)
    if module is None and not program_words:
        parser.print_usage(sys.stderr)
        print("shapetrace explain: a script, or -m and a module, has to be given", file=sys.stderr)
        return 2
    output = _own_output(Path(parsed.output).absolute())
    problem = (None if module is not None else problem_with_script(program_words[0])) or _problem(output)
    if problem is not None:
        print(f"shapetrace explain: {problem}", file=sys.stderr)
        return 2

    from ..options import OptimizeOptions

    options = OptimizeOptions(level=parsed.level)
    command = _command(output, compare=parsed.compare, quiet=parsed.quiet, program=module or program_words[0])
    return run.run_program(command, module, program_words, options)


def _parser() -> argparse.ArgumentParser:
    """The parser of `explain`'s own options."""
    parser = run.program_parser(
        "explain", _DESCRIPTION, _EXAMPLES + run.exit_codes(", the report cannot be written there")
    )
    parser.add_argument(
        "-o",
        "--output",
        default="shapetrace-report.html",
        metavar="FILE",
        help="the report (%(default)s): HTML, or JSON if the name ends in .json, or plain text for .txt",
    )
    parser.add_argument("--compare", action="store_true", help="also time thunder's own pass on copies of the traces")
    parser.add_argument("--quiet", action="store_true", help="do not say on stderr where the report is")
    return parser


def _own_output(output: Path) -> Path:
    """The file of this process: each of a distributed job writes its own."""
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE", "1")
    return output.with_stem(f"{output.stem}-rank{rank}") if rank is not None and size != "1" else output


def _problem(output: Path) -> str | None:
    """Why a report cannot be written there. Better said before a long program runs than after it."""
    if output.is_dir():
        return f"cannot write the report to {output}: it is a directory"
    if not output.parent.is_dir():
        return f"cannot write the report to {output}: there is no such directory"
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        return f"cannot write the report to {output}: it is not writable"
    return None


def problem_with_script(path: str) -> str | None:
    """Why a script cannot be run.

    Args:
        path: The script.

    Returns:
        A clause for the user, or `None`.
    """
    try:
        with Path(path).open("rb"):
            return None
    except OSError as error:
        return f"can't open file {path!r}: {error.strerror}"


def _command(output: Path, *, compare: bool, quiet: bool, program: str) -> run.Command:
    """What installs the drop-in, begins to record, and writes the report at the end."""
    from ..install import install_on_import
    from ..report import Recording, open_recording

    process = os.getpid()
    written: list[Recording] = []

    def write() -> None:
        # A process that the program has forked inherits these functions.
        if os.getpid() == process and not written:
            written.append(recording)
            _write(recording, output, quiet=quiet, program=program)

    def on_call(record: CallRecord) -> None:
        del record
        # What is registered last runs first. Behind the import of thunder, for what thunder prints with is taken
        # down at the end by functions that its import registered.
        if len(recording) == 1:
            atexit.register(write)

    recording = Recording("as found" if compare else None, on_call, details=True)

    def begin(options: OptimizeOptions) -> None:
        atexit.register(write)
        open_recording(recording)
        install_on_import(options)

    return run.Command("explain", begin, lambda: atexit.unregister(write))


def _write(recording: Recording, output: Path, *, quiet: bool, program: str) -> None:
    """Write the report of this process."""
    from ..explain.text import summary
    from ..report import close_recording

    close_recording(recording)
    if not len(recording):
        print(f"shapetrace explain: {program} compiled nothing with thunder, so there is no report", file=sys.stderr)
        return
    report = recording.report(title=Path(program).name)
    try:
        report.save(output)
    except OSError as error:
        print(f"shapetrace explain: cannot write {output}: {error.strerror}", file=sys.stderr)
        return
    if not quiet:
        print(f"shapetrace explain: {summary(report)}\nshapetrace explain: the report is {output}", file=sys.stderr)
