"""What `scripts/count_instructions.py` counts of the bridge; to be run under callgrind by that script.

    python benches/bridge/instructions.py SWITCH

SWITCH is a library that tells callgrind when to count and where to write it. Recorded traces are loaded, and each goes
through the optimizer at both levels: cold, which is the first call on its bound symbols, and warm, the second. Then
parents with few and with many ops inside them.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import warnings
from pathlib import Path

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import thunder  # noqa: F401

import shapetrace_rs
from scaling import make

# Ops inside one parent: an op costs the same in each.
WIDTHS = (500, 50_000)
TRACES = Path(__file__).resolve().parent.parent / "traces"


def main() -> int:
    """Load, and let each call be counted.

    Returns:
        The exit code.
    """
    switch = ctypes.CDLL(sys.argv[1])
    # What is found once per symbol and process is there before anything is counted.
    shapetrace_rs.optimize(shapetrace_rs.load(TRACES / "gpt-constant-forward.trace"), level="full")
    gc.disable()
    for name in ("gpt-constant-joint", "transformer-symbolic-joint"):
        for level in ("compat", "full"):
            trace = shapetrace_rs.load(TRACES / f"{name}.trace")
            for state in ("cold", "warm"):
                switch.start()
                kept = shapetrace_rs.optimize(trace, level=level)
                switch.stop(f"{name}-{level}-{state}".encode())
                assert 0 < len(kept.bound_symbols) <= len(trace.bound_symbols)
    for width in WIDTHS:
        trace = make("wide", width)
        for level in ("compat", "full"):
            shapetrace_rs.optimize(trace, level=level)
            switch.start()
            shapetrace_rs.optimize(trace, level=level)
            switch.stop(f"width-{width}-{level}-warm".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
