"""Programs whose traces are full of shapes under symbolic values; used by tests and by `benches/trace_sizes.py`.

Each takes tensors, and some a number, so that the cache can be tried with other sizes: `Program.arguments(step)` gives
arguments of other shapes for each step, with the same ranks and types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

HEADS = 4


@dataclass(frozen=True)
class Program:
    """A function and arguments for it.

    Attributes:
        name: What it is called in tables and test names.
        function: The function; it is compiled as it is.
        arguments: Arguments for a step: 0, 1, 2, ... have different shapes.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]


def block(x, norm1, query, key, value, out, norm2, up, down, heads):
    """One block of a transformer, weights passed in."""
    batch, length, width = x.shape
    h = functional.layer_norm(x, (width,), norm1)
    q = functional.linear(h, query).reshape(batch, length, heads, -1).transpose(1, 2)
    k = functional.linear(h, key).reshape(batch, length, heads, -1).transpose(1, 2)
    v = functional.linear(h, value).reshape(batch, length, heads, -1).transpose(1, 2)
    attention = (q @ k.transpose(-2, -1)) / math.sqrt(width // heads)
    attention = functional.softmax(attention, -1)
    y = (attention @ v).transpose(1, 2).reshape(batch, length, width)
    x = x + functional.linear(y, out)
    h = functional.layer_norm(x, (width,), norm2)
    return x + functional.linear(functional.gelu(functional.linear(h, up)), down)


def transformer(x, *weights):
    """Two blocks."""
    half = len(weights) // 2
    x = block(x, *weights[:half], HEADS)
    return block(x, *weights[half:], HEADS)


def broadcasts(a, b, c):
    """Elementwise functions of operands of different ranks."""
    return ((a + b) * c - a / (b * b + 1)).tanh().sum(-1)


def reshapes(x):
    """Shapes that are computed from shapes."""
    return (x.reshape(-1, x.shape[-1] * 2).flatten() * 2).reshape(x.shape[0], -1).sum(1)


def chunks(x, w):
    """Chunks, slices and a softmax behind a matrix product."""
    a, b = functional.silu(x @ w).chunk(2, -1)
    return functional.softmax(a * b + 1, -1).sum(), x[:, 1:, ::2] * 2


def joins(x, y):
    """Concatenation and stacking."""
    return torch.cat([x, y], 0).sum(-1), torch.stack([x, x * 2], 1)


def embedding(indices, weight):
    """A lookup and a mean."""
    return functional.embedding(indices, weight).mean(1)


def convolution(x, weight):
    """A convolution."""
    return functional.relu(functional.conv1d(x, weight, padding=1))


def numbers(x, n):
    """Arithmetic on dimensions and on a number of the user, whose sign nobody knows."""
    return x.reshape(x.shape[0] // n, n, -1) * n + (x.shape[1] % n) - (-n) // 2


def normalized(x, w):
    """A softmax whose shape query is live."""
    return ((x * w) + 1).softmax(-1)


def _tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def _weights(width: int = 32) -> tuple[torch.Tensor, ...]:
    of_block = [(width,), *[(width, width)] * 4, (width,), (4 * width, width), (width, 4 * width)]
    return tuple(_tensor(*shape) for shape in of_block * 2)


PROGRAMS = (
    Program("transformer", transformer, lambda step: (_tensor(2 + step, 8 + step, 32), *_weights())),
    Program("broadcasts", broadcasts, lambda step: (_tensor(2 + step, 3, 4), _tensor(1, 4), _tensor(3, 4))),
    Program("reshapes", reshapes, lambda step: (_tensor(4, 6 + step, 2),)),
    Program("chunks", chunks, lambda step: (_tensor(2, 4 + step, 8), _tensor(8, 16))),
    Program("joins", joins, lambda step: (_tensor(2 + step, 3), _tensor(2 + step, 3))),
    Program("embedding", embedding, lambda step: (torch.randint(0, 9, (2, 3 + step)), _tensor(9, 4))),
    Program("convolution", convolution, lambda step: (_tensor(2, 3, 8 + step), _tensor(4, 3, 3))),
    Program("numbers", numbers, lambda step: (_tensor(8 + 4 * step, 8), 4)),
    Program("normalized", normalized, lambda step: (_tensor(2 + step, 8), _tensor(8))),
)
