"""On the device: how much time and memory a GPT takes with thunder alone, and with the drop-in.

Times are shown and never tested. Memory is the same in every run, so it is.
"""

from __future__ import annotations

from cuda_cases import EVERY_CASE, Case, Figures, take_figures

SIZES = {"embd": 512, "heads": 8, "seq": 256, "vocab": 2048, "batch": 4}
SMALL = {"embd": 32, "heads": 2, "seq": 24, "vocab": 64, "batch": 2}

# Blocks of memory are rounded, and a buffer more or less at the peak is no fault. What would be one is a value that is
# kept, or computed in full, where thunder alone does not: that is as large as activations are, in every layer.
SLACK = 1.02
SLACK_BYTES = 2**20


@EVERY_CASE
def test_memory_is_not_more_than_with_thunder_alone(
    case: Case, device: str, layers: int, figures: list[Figures]
) -> None:
    """A step with the drop-in needs no more memory; what else is measured goes into the table."""
    case.skip_unless_possible(device)
    sizes = SMALL if device == "cpu" else SIZES
    program = case.build(device, layers=layers, **sizes)
    taken = take_figures(case, program, device, (sizes["batch"], sizes["seq"]), sizes["vocab"])
    figures.append(taken)
    stock, ours = taken.peak_bytes
    assert stock > 0
    slack = 0 if device == "cpu" else SLACK_BYTES
    assert ours <= stock * SLACK + slack
