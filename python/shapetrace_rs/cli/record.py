"""`record`: run any script or module, unmodified, and keep every trace that its compiles pass through the optimizer.

Each call of dead code elimination leaves two files, the trace before and after, and a line in `index.json`. With an
output that ends in `.zip` all of them become one file, to be attached to a report of a bug.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from . import explain, run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from ..files.recording import TraceKeeper
    from ..options import OptimizeOptions

__all__ = ["main"]

_DESCRIPTION = """\
Run a Python script or module, unmodified, with the drop-in installed, and keep every trace that goes through dead code
elimination, before and after, as files for `shapetrace stat`, `show`, `opt`, `verify` and `diff`. The files hold the
program, its shapes and its source positions, but no tensor and no number that is not a literal of the program. Options
stand before the script; all that stands behind it belongs to the script.
"""

_EXAMPLES = """\
examples:
  shapetrace record -o traces train.py --epochs 1
      writes traces/0001-computation-before.trace and so on, and traces/index.json
  shapetrace record -o bug.zip train.py
      the same in one file, to be sent to somebody
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
    problem = _problem(output) or (None if module is not None else explain._problem_with_script(program_words[0]))
    if problem is not None:
        print(f"shapetrace record: {problem}", file=sys.stderr)
        return 2

    from ..options import OptimizeOptions

    options = OptimizeOptions(level=parsed.level)
    begin = _installer(output, parsed, program=module or program_words[0])
    if module is None:
        return run._run_script(program_words[0], program_words[1:], options, begin, summary=False)
    return run._run_module(module, program_words, options, begin, summary=False)


def _parser() -> argparse.ArgumentParser:
    """The parser of `record`'s own options."""
    parser = run.program_parser("record", _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "-o",
        "--output",
        default="shapetrace-traces",
        metavar="DIR",
        help="where to (%(default)s): a new or empty directory, or one file if the name ends in .zip",
    )
    parser.add_argument("--most-calls", type=int, metavar="N", help="keep the traces of the first N calls only")
    parser.add_argument("--quiet", action="store_true", help="do not say on stderr where the traces are")
    return parser


def _problem(output: Path) -> str | None:
    """Why the traces cannot be written there. Better said before a long program runs than after it."""
    if output.suffix == ".zip":
        return explain._problem(output)
    if output.exists() and not output.is_dir():
        return f"cannot write the traces to {output}: it is no directory"
    if output.is_dir() and any(output.iterdir()):
        return f"cannot write the traces to {output}: the directory is not empty"
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot make the directory {output}: {error.strerror}"
    return None if os.access(output, os.W_OK) else f"cannot write the traces to {output}: it is not writable"


def _installer(output: Path, parsed: argparse.Namespace, *, program: str) -> Callable[[OptimizeOptions], None]:
    """What installs the drop-in, begins to keep traces, and tells about them at the end."""

    def begin(options: OptimizeOptions) -> None:
        from ..files.recording import TraceKeeper
        from ..install import install_on_import
        from ..report import Recording, open_recording

        process = os.getpid()
        is_archive = output.suffix == ".zip"
        directory = Path(tempfile.mkdtemp(prefix="shapetrace-")) if is_archive else output
        keeper = TraceKeeper(directory, most_calls=parsed.most_calls)

        def finish() -> None:
            # A process that the program has forked inherits this function.
            if os.getpid() == process:
                _finish(keeper, output, quiet=parsed.quiet, program=program)

        atexit.register(finish)
        open_recording(Recording(None, None, keeper=keeper))
        install_on_import(options)

    return begin


def _finish(keeper: TraceKeeper, output: Path, *, quiet: bool, program: str) -> None:
    """Make one file of the traces if that was asked for, and say what there is."""
    try:
        if not keeper.calls:
            print(
                f"shapetrace record: {program} compiled nothing with thunder, so there are no traces", file=sys.stderr
            )
            return
        keeper.write_index()
        if output.suffix == ".zip":
            with zipfile.ZipFile(output, "w") as archive:
                for file in sorted(keeper.directory.iterdir()):
                    # Traces are compressed already.
                    method = zipfile.ZIP_STORED if file.suffix == ".trace" else zipfile.ZIP_DEFLATED
                    archive.write(file, file.name, method)
    except OSError as error:
        print(f"shapetrace record: cannot write {output}: {error.strerror}", file=sys.stderr)
        return
    finally:
        if output.suffix == ".zip":
            shutil.rmtree(keeper.directory, ignore_errors=True)
    if not quiet:
        files = sum(entry.get(when) is not None for entry in keeper.calls for when in ("before", "after"))
        print(f"shapetrace record: {len(keeper.calls)} calls, {files} traces in {output}", file=sys.stderr)
        missing = [entry for entry in keeper.calls if "before_missing" in entry or "after_missing" in entry]
        if missing:
            first = missing[0]
            reason = first.get("before_missing") or first.get("after_missing")
            print(
                f"shapetrace record: {len(missing)} calls have a trace that no file can hold, "
                f"the first is call {first['call']}: {reason}",
                file=sys.stderr,
            )
