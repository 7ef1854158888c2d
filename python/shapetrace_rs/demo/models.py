"""The programs that the demo compiles.

With `cache="constant values"` it is litgpt's GPT, a `torch.nn.Module`. Thunder 0.2.6 cannot compile modules
with `cache="symbolic values"` (it fails to unpack the shapes of a module's parameters), so there it is a GPT
with the same sizes that is written as a function of its weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from .measure import DemoOptions

__all__ = ["Program", "build_program"]

_WEIGHTS_PER_BLOCK = 7


@dataclass(frozen=True, slots=True)
class Program:
    """Something that thunder can compile, with its inputs.

    Attributes:
        title: What it is, for people.
        function: The module or function; called with `inputs` it gives logits.
        inputs: The arguments.
        parameters: The tensors that get gradients, by name.
        targets: The tokens that the loss compares the logits with.
    """

    title: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    parameters: dict[str, Any]
    targets: Any


def build_program(options: DemoOptions, device: str) -> Program:
    """Build the program with random weights.

    Args:
        options: Sizes, dtype, cache option and seed.
        device: The device to put it on.

    Returns:
        A program that does not depend on anything but its arguments.
    """
    torch.manual_seed(options.seed)
    tokens = torch.randint(0, options.vocab, (options.batch, options.seq + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    dtype = getattr(torch, options.dtype)
    if options.cache == "constant values":
        return _litgpt_program(options, device, dtype, inputs, targets)
    return _functional_program(options, device, dtype, inputs, targets)


def _litgpt_program(options: DemoOptions, device: str, dtype: Any, tokens: Any, targets: Any) -> Program:
    """Litgpt's GPT, with Llama's blocks or those of Pythia."""
    from litgpt import GPT, Config

    blocks: dict[str, Any] = {}
    if options.architecture == "llama":
        blocks = {
            "parallel_residual": False,
            "rotary_percentage": 1.0,
            "bias": False,
            "norm_class_name": "RMSNorm",
            "mlp_class_name": "LLaMAMLP",
            "intermediate_size": -(-8 * options.embd // 3 // 16) * 16,
        }
    config = Config(
        name=f"{options.architecture}-demo",
        n_layer=options.layers,
        n_head=options.heads,
        n_embd=options.embd,
        block_size=options.seq,
        vocab_size=options.vocab,
        padded_vocab_size=options.vocab,
        **blocks,
    )
    model = GPT(config)
    model.apply(_initialize)
    model = model.to(device=device, dtype=dtype)
    return Program(
        title=f"litgpt GPT with {options.architecture} blocks",
        function=model,
        inputs=(tokens,),
        parameters=dict(model.named_parameters()),
        targets=targets,
    )


def _initialize(module: Any) -> None:
    """Give linear and embedding layers small weights, so that no activation saturates."""
    if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
        torch.nn.init.normal_(module.weight, std=0.02)


def _functional_program(options: DemoOptions, device: str, dtype: Any, tokens: Any, targets: Any) -> Program:
    """A GPT that is a function of tokens and weights."""
    width, hidden = options.embd, 4 * options.embd
    shapes: dict[str, tuple[int, ...]] = {"embedding": (options.vocab, width)}
    for block in range(options.layers):
        shapes |= {
            f"block{block}.norm1": (width,),
            f"block{block}.query": (width, width),
            f"block{block}.key_value": (2 * width, width),
            f"block{block}.projection": (width, width),
            f"block{block}.norm2": (width,),
            f"block{block}.up": (hidden, width),
            f"block{block}.down": (width, hidden),
        }
    shapes |= {"norm": (width,), "head": (options.vocab, width)}
    parameters = {
        name: (torch.randn(shape, device=device, dtype=dtype) * 0.02).requires_grad_(requires_grad=True)
        for name, shape in shapes.items()
    }
    heads = options.heads

    def gpt(tokens: Any, *weights: Any) -> Any:
        return _gpt(tokens, weights, heads)

    return Program(
        title="GPT written as a function",
        function=gpt,
        inputs=(tokens, *parameters.values()),
        parameters=parameters,
        targets=targets,
    )


def _gpt(tokens: Any, weights: tuple[Any, ...], heads: int) -> Any:
    """The logits; sizes come from the tensors, as in model code, and the reshapes leave one to be found."""
    activations = functional.embedding(tokens, weights[0])
    batch, length, width = activations.shape
    scale = 1.0 / math.sqrt(width // heads)
    for first in range(1, len(weights) - 2, _WEIGHTS_PER_BLOCK):
        norm1, query, key_value, projection, norm2, up, down = weights[first : first + _WEIGHTS_PER_BLOCK]
        normed = _rms_norm(activations, norm1)
        queries = functional.linear(normed, query).reshape(batch, length, heads, -1).transpose(1, 2)
        keys, values = functional.linear(normed, key_value).chunk(2, -1)
        keys = keys.reshape(batch, length, heads, -1).transpose(1, 2)
        values = values.reshape(batch, length, heads, -1).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
        attended = attended.transpose(1, 2).reshape(batch, length, -1)
        activations = activations + functional.linear(attended, projection)
        normed = _rms_norm(activations, norm2)
        activations = activations + functional.linear(functional.gelu(functional.linear(normed, up)), down)
    return functional.linear(_rms_norm(activations, weights[-2]), weights[-1])


def _rms_norm(activations: Any, weight: Any) -> Any:
    """Root mean square normalization, with a weight around one."""
    return activations * torch.rsqrt(activations.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + weight)
