"""The command line: `python -m shapetrace_rs` and `shapetrace`."""

from __future__ import annotations

import argparse
import functools
import platform
import sys
from typing import TYPE_CHECKING

from . import explain, file_commands, record, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_EXAMPLES = """\
examples:
  %(prog)s run train.py --epochs 3          a script, unmodified, with the drop-in installed
  %(prog)s run --summary -m my_package.train a module, and totals when it ends
  %(prog)s explain -o report.html train.py    the same, and a report of what the optimizer did
  %(prog)s record -o traces train.py          the same, and every trace before and after as a file
  %(prog)s opt before.trace -o after.trace    what the optimizer makes of a file; see also stat, show, verify, diff
  %(prog)s demo --layers 4                   a GPT: numbers against eager PyTorch, times against thunder
  %(prog)s version                           the versions that matter
"""


def _demo(words: Sequence[str]) -> int:
    from ..demo import main as demo_main

    return demo_main(words)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": run.main,
    "explain": explain.main,
    "record": record.main,
    "demo": _demo,
    **{name: functools.partial(file_commands.main, name) for name in file_commands.COMMANDS},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after the program's name; those of the process by default.

    Returns:
        The exit code. A script that is run may leave by `SystemExit` instead, as it does without this
        command.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # The commands take their words themselves: some leave the words behind a script alone, which argparse's subcommands
    # cannot do reliably.
    command = _COMMANDS.get(words[0]) if words else None
    if command is not None:
        return command(words[1:])

    parser = argparse.ArgumentParser(
        prog="shapetrace",
        description="A Rust optimizer for lightning-thunder's traces, in place of its dead code elimination.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the versions that matter and exit")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("run", help="run a script or module with the drop-in installed", add_help=False)
    commands.add_parser("explain", help="as run, and write a report of what the optimizer did", add_help=False)
    commands.add_parser("record", help="as run, and keep every trace before and after as a file", add_help=False)
    for name, (_, _, line) in file_commands.COMMANDS.items():
        commands.add_parser(name, help=line, add_help=False)
    commands.add_parser("demo", help="compile a GPT, check its numbers, compare the times", add_help=False)
    commands.add_parser("version", help="print the versions that matter")
    parsed = parser.parse_args(words)
    if parsed.version or parsed.command == "version":
        print("\n".join(_versions()))
        return 0
    parser.print_help()
    return 2


def _versions() -> list[str]:
    """One line for each part whose version matters in a report."""
    from ..versions import installed_version

    names = ("shapetrace-rs", "lightning-thunder", "torch", "litgpt")
    return [f"{name} {installed_version(name) or 'not installed'}" for name in names] + [
        f"python {platform.python_version()} ({platform.system()} {platform.machine()})"
    ]
