"""Writes the recorded traces that `cargo bench` runs on, anew.

    python benches/traces/record.py [--layers 2]

Each is a trace as thunder hands it to its dead code elimination for the first time in its way to the executors: of a
GPT with constant values, and of a functional transformer with symbolic values; forward, joint with its backward, and
the backward alone.
The files hold no paths of this machine: source files go by the names of their packages.
"""

from __future__ import annotations

import argparse
import re
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import thunder
    import torch

import shapetrace_rs
from shapetrace_rs import files
from shapetrace_rs._core import TraceFile
from shapetrace_rs.report import Recording, close_recording, open_recording

HERE = Path(__file__).resolve().parent


class Keeper:
    """Keeps what each call of dead code elimination gets, as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def keep_input(self, trace: Any) -> int:
        """Keep what goes in."""
        self.texts.append(files.dumps_text(trace))
        return len(self.texts)

    def keep_output(self, number: int, record: Any, trace: Any) -> None:
        """Only what goes in is of use here."""


def main() -> int:
    """Record and write all traces.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2, help="layers of the GPT (default: 2)")
    layers = parser.parse_args().layers
    for name, (compile_and_run, signature) in {
        "gpt-constant-forward": (lambda: gpt(layers, grad=False), ""),
        "gpt-constant-joint": (lambda: gpt(layers, grad=True), ""),
        "gpt-constant-backward": (lambda: gpt(layers, grad=True), '"name": "backward_fn"'),
        "transformer-symbolic-forward": (lambda: transformer(grad=False), ""),
        "transformer-symbolic-joint": (lambda: transformer(grad=True), ""),
        "transformer-symbolic-backward": (lambda: transformer(grad=True), '"name": "backward_fn"'),
    }.items():
        file = largest(compile_and_run, signature)
        path = HERE / f"{name}.trace"
        path.write_bytes(file.to_bytes())
        ops = file.statistics()["ops"]
        print(f"{path.name}: {ops['top_level']} ops, {ops['inside']} inside, {path.stat().st_size} bytes")
    return 0


def gpt(layers: int, *, grad: bool) -> None:
    """Compile and run a GPT with constant values."""
    from litgpt import GPT, Config

    config = Config.from_name(
        "pythia-14m", n_layer=layers, n_embd=64, n_head=4, padded_vocab_size=256, block_size=64, intermediate_size=128
    )
    model = GPT(config).requires_grad_(grad)
    thunder.jit(model)(torch.randint(0, 256, (2, 16)))


def transformer(*, grad: bool) -> None:
    """Compile and run a functional transformer of two blocks with symbolic values."""
    programs = runpy.run_path(str(HERE.parents[1] / "tests" / "programs.py"))
    compiled = thunder.jit(programs["transformer"], cache="symbolic values")
    compiled(*programs["transformer_inputs"](requires_grad=grad))


def largest(compile_and_run: Callable[[], None], signature: str) -> TraceFile:
    """The trace with the most ops of those that dead code elimination gets and that have this in their text."""
    keeper = Keeper()
    recording = Recording(None, None, keeper=keeper)
    open_recording(recording)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with shapetrace_rs.enabled():
            compile_and_run()
    close_recording(recording)
    found = [TraceFile.read(without_paths(text).encode()) for text in keeper.texts if signature in text]
    return max(found, key=lambda file: sum(file.statistics()["ops"].values()))


def without_paths(text: str) -> str:
    """Source files by the names of their packages, or by their names."""
    text = re.sub(r'"/[^"\n]*/site-packages/([^"\n]+\.py)"', r'"\1"', text)
    return re.sub(r'"/[^"\n]*/([^"/\n]+\.py)"', r'"\1"', text)


if __name__ == "__main__":
    sys.exit(main())
