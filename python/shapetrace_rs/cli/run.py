"""`run`: any existing script or module, unmodified, with the drop-in installed.

The program sees what it would see if Python had started it: `sys.argv`, `sys.path[0]`, `__name__`,
`__file__`, `sys.modules["__main__"]`. Its exit code is the command's, and a traceback begins at the program's
own first line. Thunder is not imported before the program imports it, so that a program can set environment
variables first.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.util
import io
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..options import OptimizeOptions

__all__ = ["main"]

_DESCRIPTION = """\
Run a Python script or module, unmodified, with the drop-in installed: whatever it compiles with
lightning-thunder goes through the Rust optimizer. Options stand before the script; all that stands
behind it belongs to the script.
"""

_EXAMPLES = """\
examples:
  shapetrace run train.py --epochs 3
      like "python train.py --epochs 3"
  shapetrace run -m my_package.train --epochs 3
      like "python -m my_package.train --epochs 3"
  shapetrace run --summary train.py
      prints to stderr, at the end, how often the optimizer ran and what it removed
  shapetrace run --strict --level compat train.py
      stops at the first failure of the optimizer, and does exactly what thunder's own pass does
  torchrun --nproc-per-node 2 -m shapetrace_rs run train.py
      every process of a distributed job installs the drop-in for itself
"""


def exit_codes(no_place: str = "") -> str:
    """The part of a help text that tells scripts what to expect.

    Args:
        no_place: What else ends with exit code 2.

    Returns:
        Some lines.
    """
    return (
        "\nexit codes:\n"
        "  that of the program, once it runs, such as 1 when it ends with an exception\n"
        f"  2  there is no such program{no_place}, or the options make no sense\n"
    )


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs a program of the user's.

    Attributes:
        name: What it is called.
        begin: What it does before the program runs.
        abandon: What it does when there is no such program after all.
    """

    name: str
    begin: Callable[[OptimizeOptions], None]
    abandon: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Program:
    """What runs as `__main__`; its code is made last, when errors in it are the program's own."""

    code: Callable[[], CodeType | None]
    file: str
    loader: Any
    package: str | None
    spec: ModuleSpec | None
    cached: str | None


def main(words: Sequence[str]) -> int:
    """Run a program.

    Args:
        words: The words behind `run`.

    Returns:
        0 when the program ran to its end, 2 when there is no such program. What the program raises,
        `SystemExit` included, comes out as it is.
    """
    parser = _parser()
    own_words, module, program_words = _split(parser, words)
    parsed = parser.parse_args(own_words)
    if module is None and not program_words:
        parser.print_usage(sys.stderr)
        print("shapetrace run: a script, or -m and a module, has to be given", file=sys.stderr)
        return 2

    # The optimizer's native part is needed from here on, but neither thunder nor torch.
    from ..install import install_on_import
    from ..options import OptimizeOptions

    options = OptimizeOptions(
        level=parsed.level,
        strict=parsed.strict,
        keep_random=parsed.keep_random,
        keep_shape_numbers=parsed.keep_shape_numbers,
    )

    def begin(options: OptimizeOptions) -> None:
        if parsed.summary:
            atexit.register(_print_summary)
        install_on_import(options)

    command = Command("run", begin, lambda: atexit.unregister(_print_summary))
    return run_program(command, module, program_words, options)


def run_program(command: Command, module: str | None, words: Sequence[str], options: OptimizeOptions) -> int:
    """Run a script or a module.

    Args:
        command: The command that does it.
        module: The module; none if it is a script.
        words: The script if it is one, and what belongs to the program.
        options: Options for the optimizer.

    Returns:
        As `main`.
    """
    if module is None:
        return _run_script(command, words[0], list(words[1:]), options)
    return _run_module(command, module, list(words), options)


def program_parser(command: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A parser for a command that runs a program of the user's.

    Args:
        command: The name of the command.
        description: What it does.
        examples: How to use it.

    Returns:
        A parser with the options that all such commands have.
    """
    parser = argparse.ArgumentParser(
        prog=f"shapetrace {command}",
        usage="%(prog)s [options] (script.py | -m module) [arguments of the program ...]",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # The words are cut at the first unknown one; an abbreviation would be cut at the wrong place.
        allow_abbrev=False,
    )
    parser.add_argument(
        "--level",
        choices=("full", "compat"),
        default="full",
        help="full runs all passes (default); compat does exactly what thunder's own pass does",
    )
    return parser


def _parser() -> argparse.ArgumentParser:
    """The parser of `run`'s own options."""
    parser = program_parser("run", _DESCRIPTION, _EXAMPLES + exit_codes())
    parser.add_argument("--strict", action="store_true", help="raise when the optimizer fails, do not fall back")
    parser.add_argument("--keep-random", action="store_true", help="keep unused random ops, as eager mode does")
    parser.add_argument(
        "--keep-shape-numbers",
        action="store_true",
        help="keep one producer of each number that a live tensor's shape mentions",
    )
    parser.add_argument("--summary", action="store_true", help="print totals to stderr when the program ends")
    return parser


def _split(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """Cut the words into `run`'s own options, the module if there is one, and what belongs to the program."""
    actions = parser._actions  # argparse has no public list of its options
    with_value = {option for action in actions if action.nargs is None for option in action.option_strings}
    position = 0
    while position < len(words):
        word = words[position]
        if word == "-m":
            if position + 1 == len(words):
                parser.error("argument -m: a module has to be given")
            return list(words[:position]), words[position + 1], list(words[position + 2 :])
        if word.startswith("-m") and not word.startswith("--"):
            return list(words[:position]), word[2:], list(words[position + 1 :])
        if word == "--":
            return list(words[:position]), None, list(words[position + 1 :])
        if not word.startswith("-") or word == "-":
            break
        position += 2 if word in with_value else 1
    return list(words[:position]), None, list(words[position:])


def _run_script(command: Command, path: str, arguments: list[str], options: OptimizeOptions) -> int:
    """Run a file as `python file` does."""
    try:
        with io.open_code(str(Path(path).absolute())) as file:
            source = file.read()
    except OSError as error:
        print(f"shapetrace {command.name}: can't open file {path!r}: {error.strerror}", file=sys.stderr)
        return 2
    _become(path, arguments, directory=str(Path(path).resolve().parent))
    _hide_own_frames()
    command.begin(options)
    program = _Program(
        code=lambda: compile(source, path, "exec", dont_inherit=True),
        file=path,
        loader=SourceFileLoader("__main__", path),
        package=None,
        spec=None,
        cached=None,
    )
    _execute(program)
    return 0


def _run_module(command: Command, name: str, arguments: list[str], options: OptimizeOptions) -> int:
    """Run a module as `python -m module` does; a package means its `__main__`."""
    _become("-m", arguments, directory=str(Path.cwd()))
    # Finding a module inside a package imports the package, which may import thunder.
    _hide_own_frames()
    command.begin(options)
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = _find(name)
    get_code = None if spec is None else getattr(spec.loader, "get_code", None)
    if spec is None or get_code is None:
        command.abandon()
        print(f"shapetrace {command.name}: No module named {name}, or it cannot be executed", file=sys.stderr)
        return 2
    sys.argv[0] = spec.origin or name
    program = _Program(
        code=lambda: get_code(spec.name),
        file=spec.origin or name,
        loader=spec.loader,
        package=spec.parent,
        spec=spec,
        cached=spec.cached,
    )
    _execute(program)
    return 0


def _find(name: str) -> ModuleSpec | None:
    """The spec of a module, `None` when it or a package around it does not exist."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A package on the way that lacks one of its own dependencies is the program's error, not a missing
        # program.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            return None
        raise


def _become(program: str, arguments: list[str], *, directory: str) -> None:
    """Let the process look as if Python had been started with the program."""
    sys.argv[:] = [program, *arguments]
    # With `python -P` there is no directory of the program on the path, and the first entry is something
    # else.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = directory


def _execute(program: _Program) -> None:
    """Run the code as `__main__`. The module stays: threads and `atexit` functions may still need it."""
    module = ModuleType("__main__")
    vars(module).update(
        __builtins__=builtins,
        __cached__=program.cached,
        __file__=program.file,
        __loader__=program.loader,
        __package__=program.package,
        __spec__=program.spec,
    )
    sys.modules["__main__"] = module
    code = program.code()
    if code is None:
        message = f"{program.file} has no Python code that could be run"
        raise ImportError(message)
    exec(code, vars(module))  # noqa: S102 (running the user's program is the purpose)


def _hide_own_frames() -> None:
    """Print uncaught errors without the frames of this command, which are above the program's own."""
    previous = sys.excepthook

    def show_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        own = traceback
        while own is not None and own.tb_frame.f_code is not _execute.__code__:
            own = own.tb_next
        if own is not None:
            own = own.tb_next
            # A syntax error comes out of the compilation, before the program has a frame.
            while own is not None and own.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
                own = own.tb_next
            # Python's own hook looks at the exception rather than at the argument.
            error.__traceback__ = traceback = own
        previous(kind, error, traceback)

    sys.excepthook = show_error


def _print_summary() -> None:
    """Print the totals of this process to stderr."""
    from ..report import counters

    totals = counters()
    lines = [
        "shapetrace_rs:",
        f"  {totals.calls} calls of dead code elimination in {totals.seconds * 1e3:.1f} ms",
        f"  {totals.ops_removed} ops removed, and {totals.nested_ops_removed} inside other ops",
    ]
    if totals.fallbacks:
        lines.append(
            f"  {totals.fallbacks} calls fell back to thunder's own pass, {totals.fallback_seconds * 1e3:.1f} ms"
        )
    print("\n".join(lines), file=sys.stderr)
