"""Traces as files: what comes back prints the same, runs the same in a fresh process, and nothing in a file is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import programs
import pytest
import thunder
import torch
from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx, tracectx

import shapetrace_rs
from shapetrace_rs import TraceFileError, files


def last_traces(compiled) -> list:
    """Every trace of the latest compile, with a word for each."""
    return [
        *(("prologue", trace) for trace in thunder.last_prologue_traces(compiled)),
        *(("computation", trace) for trace in thunder.last_traces(compiled)),
        *(("backward", trace) for trace in thunder.last_backward_traces(compiled) or ()),
    ]


def assert_same(before, after) -> None:
    """Two traces agree in all that thunder prints and looks at."""
    assert str(after) == str(before)
    assert [op.sym for op in after.bound_symbols] == [op.sym for op in before.bound_symbols]
    assert after.names >= before.names
    assert (after.name_ctr, after.obj_name_ctr, after._tags) == (before.name_ctr, before.obj_name_ctr, before._tags)
    waiting = list(zip(before.bound_symbols, after.bound_symbols, strict=True))
    while waiting:
        one, other = waiting.pop()
        assert one.sym is other.sym or one.sym.is_fusion
        assert type(one.subsymbols) is type(other.subsymbols)
        assert one.tags == other.tags
        assert (one.header, one.source_filename, one.source_positions) == (
            other.header,
            other.source_filename,
            other.source_positions,
        )
        assert [tensor_facts(x) for x in one.flat_args] == [tensor_facts(x) for x in other.flat_args]
        assert [tensor_facts(x) for x in one.flat_outs] == [tensor_facts(x) for x in other.flat_outs]
        waiting.extend(zip(one.subsymbols, other.subsymbols, strict=True))


def tensor_facts(x):
    """What is to be known of a leaf, without calling `==` on a proxy."""
    if isinstance(x, TensorProxy):
        shape = tuple(getattr(size, "name", size) for size in x._shape)
        facts = (x._ndim, x._device, x._dtype, x._true_dtype, x._requires_grad, x._distparallel_type)
        return x.name, shape, *facts, sorted(map(repr, x.tags)), x._has_weak_name
    if hasattr(x, "name") and hasattr(x, "tags"):
        return type(x), x.name, getattr(x, "value", None), getattr(x, "python_type", None), x._has_weak_name
    return type(x), None if callable(x) and not isinstance(x, type) else repr(x)


@pytest.fixture(scope="module")
def gpt():
    """A GPT of two layers, compiled with its backward."""
    litgpt = pytest.importorskip("litgpt")
    torch.manual_seed(0)
    config = litgpt.Config(
        block_size=32, vocab_size=64, padding_multiple=64, n_layer=2, n_head=2, n_embd=16, intermediate_size=32
    )
    model = litgpt.GPT(config)
    compiled = thunder.jit(model)
    compiled(torch.randint(0, 64, (2, 8))).sum().backward()
    return compiled


@pytest.fixture(scope="module")
def nanogpt():
    """The model of thunder's own tests."""
    from thunder.tests import nanogpt_model

    torch.manual_seed(0)
    config = nanogpt_model.GPTConfig(block_size=16, vocab_size=32, n_layer=2, n_head=2, n_embd=16, dropout=0.0)
    compiled = thunder.jit(nanogpt_model.GPT(config))
    compiled(torch.randint(0, 32, (2, 8)))[0].sum().backward()
    return compiled


@pytest.mark.parametrize("model", ["gpt", "nanogpt"])
@pytest.mark.parametrize("form", ["binary", "text"])
def test_every_trace_of_a_model_comes_back(model, form, request):
    for word, trace in last_traces(request.getfixturevalue(model)):
        data = shapetrace_rs.dumps(trace) if form == "binary" else shapetrace_rs.dumps_text(trace)
        loaded = shapetrace_rs.loads(data)
        assert_same(trace, loaded)
        again = shapetrace_rs.dumps(loaded) if form == "binary" else shapetrace_rs.dumps_text(loaded)
        assert again == data, f"{word}: writing what was read gives something else"


@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_traces_with_symbolic_values_come_back(name):
    program = programs.PROGRAMS[name]
    compiled = thunder.jit(program.function, cache="symbolic values")
    with shapetrace_rs.enabled():
        compiled(*program.inputs(0))
    for _, trace in last_traces(compiled):
        assert_same(trace, files.restore_trace(files.record(trace)))
