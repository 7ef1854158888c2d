"""`record`: run any script or module, unmodified, and keep every trace that its compiles pass through the optimizer.

Each call of dead code elimination leaves two files, the trace before and after, and an entry in `index.json`. With an
output that ends in `.zip` all of them become one file, to be attached to a report of a bug; until the program ends they
are in a directory beside it, where they stay if the process dies.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from . import explain, run
from .arguments import whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..files.recording import TraceKeeper
    from ..options import OptimizeOptions

__all__ = ["main"]

_DESCRIPTION = """\
Run a Python script or module, unmodified, with the drop-in installed, and keep every trace that goes through dead code
elimination, before and after, as files for `shapetrace stat`, `show`, `opt`, `verify` and `diff`. The files hold the
program, its shapes and its source positions, but no tensor and no number that is not a literal of the program. A trace
is written before the optimizer sees it: it is there even if the process dies in the call. Options stand before the
script; all that stands behind it belongs to the script.
"""

_EXAMPLES = """\
examples:
  shapetrace record -o traces train.py --epochs 1
      writes traces/0001-prologue-before.trace and so on, and traces/index.json
  shapetrace record -o bug.zip train.py
      the same in one file, to be sent to somebody; while the program runs, and if its process
      dies, the traces are in the directory bug.zip.traces
  shapetrace record -o traces --most-calls 20 -m my_package.train
      keeps the traces of the first 20 calls only
"""


def main(words: Sequence[str]) -> int:
    """Run a program and keep its traces.

    Args:
        words: The words behind `record`.

    Returns:
        As for `run`: 0 when the program ran to its end, 2 when there is no such program or no place for the traces.
    """
    parser = _parser()
    own_words, module, program_words = run._split(parser, words)
    parsed = parser.parse_args(own_words)
    if module is None and not program_words:
        parser.print_usage(sys.stderr)
        print("shapetrace record: a script, or -m and a module, has to be given", file=sys.stderr)
        return 2
    output = explain._own_output(Path(parsed.output).absolute())
    directory = _directory_for(output)
    is_new = not directory.exists()
    problem = None if module is not None else explain.problem_with_script(program_words[0])
    problem = problem or _problem(output, directory)
    if problem is not None:
        print(f"shapetrace record: {problem}", file=sys.stderr)
        return 2

    from ..options import OptimizeOptions

    options = OptimizeOptions(level=parsed.level)
    command = _command(output, directory, parsed, is_new=is_new, program=module or program_words[0])
    return run.run_program(command, module, program_words, options)


def _parser() -> argparse.ArgumentParser:
    """The parser of `record`'s own options."""
    parser = run.program_parser(
        "record", _DESCRIPTION, _EXAMPLES + run.exit_codes(", the traces cannot be written there")
    )
    parser.add_argument(
        "-o",
        "--output",
        default="shapetrace-traces",
        metavar="DIR",
        help="where to (%(default)s): a new or empty directory, or one file if the name ends in .zip",
    )
    parser.add_argument(
        "--most-calls", type=whole_number, metavar="N", help="keep the traces of the first N calls only"
    )
    parser.add_argument("--quiet", action="store_true", help="do not say on stderr where the traces are")
    return parser


def _directory_for(output: Path) -> Path:
    """Where the traces are while the program runs."""
    return output.with_name(f"{output.name}.traces") if output.suffix == ".zip" else output


def _problem(output: Path, directory: Path) -> str | None:
    """Why the traces cannot be written there. Better said before a long program runs than after it."""
    problem = explain._problem(output) if directory != output else None
    if problem is not None:
        return problem
    if directory.exists() and not directory.is_dir():
        return f"cannot write the traces to {directory}: it is no directory"
    if directory.is_dir() and any(directory.iterdir()):
        return f"cannot write the traces to {directory}: the directory is not empty"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot make the directory {directory}: {error.strerror}"
    return None if os.access(directory, os.W_OK) else f"cannot write the traces to {directory}: it is not writable"


def _command(output: Path, directory: Path, parsed: argparse.Namespace, *, is_new: bool, program: str) -> run.Command:
    """What installs the drop-in, begins to keep traces, and tells about them at the end."""
    from ..files.recording import TraceKeeper
    from ..install import install_on_import
    from ..report import Recording, open_recording

    process = os.getpid()
    keeper = TraceKeeper(directory, most_calls=parsed.most_calls)

    def finish() -> None:
        # A process that the program has forked inherits this function.
        if os.getpid() != process:
            return
        if keeper.calls:
            _finish(keeper, output, quiet=parsed.quiet)
        else:
            forget()
            print(
                f"shapetrace record: {program} compiled nothing with thunder, so there are no traces", file=sys.stderr
            )

    def forget() -> None:
        if is_new:
            # Only if nobody else has put something there.
            with contextlib.suppress(OSError):
                directory.rmdir()

    def begin(options: OptimizeOptions) -> None:
        atexit.register(finish)
        open_recording(Recording(None, None, keeper=keeper))
        install_on_import(options)

    def abandon() -> None:
        atexit.unregister(finish)
        forget()

    return run.Command("record", begin, abandon)


def _finish(keeper: TraceKeeper, output: Path, *, quiet: bool) -> None:
    """Make one file of the traces if that was asked for, and say what there is."""
    try:
        keeper.write_index()
        if keeper.directory != output:
            _pack(keeper.directory, output)
    except OSError as error:
        kept = "" if keeper.directory == output else f"; the traces are in {keeper.directory}"
        print(f"shapetrace record: cannot write {output}: {error.strerror}{kept}", file=sys.stderr)
    else:
        if not quiet:
            files = sum(when in entry for entry in keeper.calls for when in ("before", "after"))
            print(f"shapetrace record: {len(keeper.calls)} calls, {files} traces in {output}", file=sys.stderr)
    missing = keeper.missing()
    if missing:
        call, reason = missing[0]
        print(
            f"shapetrace record: {len(missing)} calls lack a trace, the first is call {call}: {reason}",
            file=sys.stderr,
        )


def _pack(directory: Path, output: Path) -> None:
    """Make one file of a directory, which is there all at once, and take the directory away."""
    files = sorted(directory.iterdir())
    packed = directory / "traces.zip"
    try:
        with zipfile.ZipFile(packed, "w") as archive:
            for file in files:
                # Traces are compressed already.
                method = zipfile.ZIP_STORED if file.suffix == ".trace" else zipfile.ZIP_DEFLATED
                archive.write(file, file.name, method)
        packed.replace(os.path.realpath(output))
    except OSError:
        packed.unlink(missing_ok=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)
