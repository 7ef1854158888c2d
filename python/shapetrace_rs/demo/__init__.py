"""`python -m shapetrace_rs demo`: a GPT through thunder with the drop-in, its numbers and its times.

The model has random weights and the sizes that the command line gives. It is compiled with thunder's own pass
and with the drop-in; outputs and all gradients are compared with eager PyTorch; a table shows every call of
dead code elimination. The exit code is 1 when a number differs by more than its tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_EXAMPLES = """\
examples:
  shapetrace demo                                          8 layers on the GPU if there is one
  shapetrace demo --layers 2 --embd 64 --heads 4 --seq 32  done in some seconds
  shapetrace demo --cache "symbolic values" --layers 2     traces full of shape queries
  shapetrace demo --json demo.json                         all data, for a script of yours
"""


def main(words: Sequence[str]) -> int:
    """Run the demo.

    Args:
        words: The words behind `demo`.

    Returns:
        0 when all numbers agree with eager PyTorch, 1 when they do not, 2 when the demo cannot run here.
    """
    parsed = _parser().parse_args(words)

    # Everything heavy comes after `--help` has been answered.
    from ..errors import ShapetraceError
    from ..versions import check_versions, installed_version

    try:
        check_versions()
    except ShapetraceError as error:
        print(f"shapetrace demo: {error}", file=sys.stderr)
        return 2
    if parsed.cache == "constant values" and installed_version("litgpt") is None:
        print(
            "shapetrace demo: the model comes from litgpt. To get it: pip install 'shapetrace-rs[demo]'",
            file=sys.stderr,
        )
        return 2

    from .measure import DemoOptions, measure
    from .show import make_display, show_measurement

    options = DemoOptions(
        architecture=parsed.architecture,
        layers=parsed.layers,
        embd=parsed.embd,
        heads=parsed.heads,
        seq=parsed.seq,
        vocab=parsed.vocab,
        batch=parsed.batch,
        device=parsed.device,
        dtype=parsed.dtype,
        cache=parsed.cache,
        level=parsed.level,
        caches=parsed.caches.replace("-", " "),
        seed=parsed.seed,
    )
    problem = options.problem()
    if problem is not None:
        print(f"shapetrace demo: {problem}", file=sys.stderr)
        return 2
    display = make_display()
    measurement = measure(options, display)
    show_measurement(measurement, display)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(measurement.as_dict(), indent=2) + "\n", encoding="utf-8")
        display.line(f"All data is in {parsed.json}.")
    return 0 if measurement.numbers_agree else 1


def _parser() -> argparse.ArgumentParser:
    """The parser of the demo's options."""
    parser = argparse.ArgumentParser(
        prog="shapetrace demo",
        description="Compile a GPT with the drop-in, check its numbers against eager, compare the times.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--architecture", choices=("llama", "pythia"), default="llama", help="the kind of blocks")
    for name, default, text in (
        ("layers", 8, "transformer blocks"),
        ("embd", 256, "width of the model"),
        ("heads", 8, "attention heads"),
        ("seq", 128, "tokens in a sequence"),
        ("vocab", 1024, "size of the vocabulary"),
        ("batch", 2, "sequences in a batch"),
    ):
        parser.add_argument(f"--{name}", type=_positive, default=default, metavar="N", help=f"{text} ({default})")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ...; auto takes cuda if it is there")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16", "float16"),
        default="float32",
        help="of the weights",
    )
    parser.add_argument(
        "--cache",
        choices=("constant values", "symbolic values"),
        default="constant values",
        help="thunder's cache option; symbolic values uses a GPT written as a function, see the README",
    )
    parser.add_argument("--level", choices=("full", "compat"), default="full", help="the level of the drop-in")
    parser.add_argument(
        "--caches",
        choices=("as-found", "cold"),
        default="as-found",
        help="which caches thunder's pass meets on the bound symbols when both passes run on the same trace",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the weights and the tokens (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all data to this file")
    return parser


def _positive(word: str) -> int:
    """A number of things, at least one."""
    number = int(word)
    if number < 1:
        message = "has to be 1 or more"
        raise argparse.ArgumentTypeError(message)
    return number
