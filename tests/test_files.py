"""Traces as files: what comes back prints the same, runs the same in a fresh process, and nothing in a file is run."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import thunder
import torch
from hypothesis import given
from thunder.core import prims
from thunder.core.proxies import CollectionProxy, Proxy, TensorProxy
from thunder.core.trace import TraceCtx, tracectx

import programs
import shapetrace_rs
from shapetrace_rs import TraceFileError, _core, files
from shapetrace_rs.demo.measure import DemoOptions
from shapetrace_rs.demo.models import build_program
from trace_strategies import Pack, traces
from trace_tools import LEVELS, examples, walk
from trace_tools import text as text_of


def last_traces(compiled) -> list:
    """Every trace of the latest compile, with a word for each."""
    return [
        *(("prologue", trace) for trace in thunder.last_prologue_traces(compiled)),
        *(("computation", trace) for trace in thunder.last_traces(compiled)),
        *(("backward", trace) for trace in thunder.last_backward_traces(compiled) or ()),
    ]


def assert_same(before, after, printed=str) -> None:
    """Two traces agree in all that thunder prints and looks at."""
    assert printed(after) == printed(before)
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
        for part in ("args", "kwargs", "output"):
            assert facts(getattr(one, part)) == facts(getattr(other, part))
        waiting.extend(zip(one.subsymbols, other.subsymbols, strict=True))


def facts(x):
    """Containers by type and content, leaves by what is to be known of them, without calling `==` on a proxy."""
    if not isinstance(x, Proxy):
        if isinstance(x, (tuple, list)):
            return type(x), [facts(item) for item in x]
        if isinstance(x, dict):
            return type(x), [(key, facts(item)) for key, item in x.items()]
        if isinstance(x, slice):
            return slice, facts((x.start, x.stop, x.step))
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            return type(x), [facts(getattr(x, field.name)) for field in dataclasses.fields(x)]
    if isinstance(x, TensorProxy):
        shape = tuple(getattr(size, "name", size) for size in x._shape)
        more = (x._ndim, x._device, x._dtype, x._true_dtype, x._requires_grad, x._distparallel_type)
        return x.name, shape, *more, sorted(map(repr, x.tags)), x._has_weak_name
    if hasattr(x, "name") and hasattr(x, "tags"):
        value = facts(x.coll) if isinstance(x, CollectionProxy) else getattr(x, "value", None)
        return type(x), x.name, value, getattr(x, "python_type", None), x._has_weak_name
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


@pytest.fixture(scope="module")
def litgpt():
    """A model of litgpt, with a configuration of thunder's own tests: the parts that Llama's blocks do not have."""
    pytest.importorskip("litgpt")
    from thunder.tests import litgpt_model

    torch.manual_seed(0)
    config = litgpt_model.Config.from_name(
        "falcon-40b-like", n_layer=1, n_head=2, n_embd=16, n_query_groups=1, block_size=16, padded_vocab_size=32
    )
    compiled = thunder.jit(litgpt_model.GPT(config))
    compiled(torch.randint(0, 32, (2, 8))).sum().backward()
    return compiled


@pytest.fixture(scope="module")
def demo_constant():
    """The program of the demo."""
    pytest.importorskip("litgpt")
    return compiled_demo("constant values")


@pytest.fixture(scope="module")
def demo_symbolic():
    """The program of the demo for symbolic values."""
    return compiled_demo("symbolic values")


def compiled_demo(cache):
    """What the demo compiles, as it does, but small; with its backward."""
    options = DemoOptions(layers=1, embd=16, heads=2, seq=8, vocab=32, device="cpu", cache=cache)
    program = build_program(options, "cpu")
    with shapetrace_rs.enabled():
        compiled = thunder.jit(program.function, cache=cache)
        compiled(*program.inputs).sum().backward()
    return compiled


@pytest.mark.parametrize("model", ["gpt", "nanogpt", "litgpt", "demo_constant", "demo_symbolic"])
@pytest.mark.parametrize("form", ["binary", "text"])
def test_every_trace_of_a_model_comes_back(model, form, request):
    for word, trace in last_traces(request.getfixturevalue(model)):
        data = shapetrace_rs.dumps(trace) if form == "binary" else shapetrace_rs.dumps_text(trace)
        loaded = shapetrace_rs.loads(data)
        # Before it is printed: thunder counts the names that it gives to what it cannot print.
        again = shapetrace_rs.dumps(loaded) if form == "binary" else shapetrace_rs.dumps_text(loaded)
        assert again == data, f"{word}: writing what was read gives something else"
        assert_same(trace, loaded)


@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_traces_with_symbolic_values_come_back(name):
    program = programs.PROGRAMS[name]
    compiled = thunder.jit(program.function, cache="symbolic values")
    with shapetrace_rs.enabled():
        compiled(*program.inputs(0))
    for _, trace in last_traces(compiled):
        assert_same(trace, files.restore_trace(files.record(trace)))


def test_a_loaded_trace_runs_the_same_in_a_fresh_process(gpt, nanogpt, tmp_path):
    forward, forward_inputs = thunder.last_traces(gpt)[-1], inputs_of(gpt)
    output, saved = forward.python_callable()(*forward_inputs)
    backward = thunder.last_backward_traces(gpt)[-1]
    generator = torch.Generator().manual_seed(2)
    cotangents = tuple(torch.randn(tensor.shape, generator=generator) for tensor in output["flat_output"])
    # In tuples: thunder's code empties lists.
    cases = {
        "forward": (forward, forward_inputs),
        "backward": (backward, (tuple(map(tuple, saved)), cotangents)),
        "nanogpt": (thunder.last_traces(nanogpt)[-1], inputs_of(nanogpt)),
    }
    expected = {}
    for name, (trace, inputs) in cases.items():
        expected[name] = leaves(trace.python_callable()(*inputs))
        assert len(expected[name]) > 1
        shapetrace_rs.save(trace, tmp_path / f"{name}.trace")
        shapetrace_rs.save(trace, tmp_path / f"{name}.txt", text=True)
        detached = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, inputs)
        torch.save(detached, tmp_path / f"{name}.inputs.pt")
    script = """
import sys, torch, shapetrace_rs
for name in sys.argv[1:]:
    inputs = torch.load(name + ".inputs.pt")
    for form in ("trace", "txt"):
        result = shapetrace_rs.load(f"{name}.{form}").python_callable()(*inputs)
        torch.save(result, f"{name}.{form}.pt")
"""
    subprocess.run([sys.executable, "-c", script, *cases], cwd=tmp_path, check=True, timeout=120)
    for name in cases:
        for form in ("trace", "txt"):
            actual = leaves(torch.load(tmp_path / f"{name}.{form}.pt"))
            for one, other in zip(actual, expected[name], strict=True):
                assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


leaves = torch.utils._pytree.tree_leaves


def inputs_of(compiled):
    """What thunder hands to the computation, by the prologue."""
    entry = thunder.compile_data(compiled)
    tokens = torch.randint(0, 32, (2, 8), generator=torch.Generator().manual_seed(1))
    _, inputs, _ = entry.get_computation_and_inputs(tokens)
    return list(inputs)


# What a file cannot hold.


def small_trace(*ops):
    """A trace of one input, whose ops the functions make, each from the value before."""
    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy(name="x", shape=(2, 3), device=thunder.devices.cpu, dtype=thunder.float32)
        y = x
        for op in ops:
            y = op(y)
        prims.python_return(y)
    trace.args = (x,)
    trace._siginfo = thunder.core.codeutils.SigInfo("computation")
    trace._siginfo.args = [("x", None)]
    return trace


def test_a_live_object_is_refused_by_the_name_of_its_op():
    generator = torch.Generator()
    trace = small_trace(prims.sin)
    trace.bound_symbols[0].kwargs["generator"] = generator
    with pytest.raises(
        TraceFileError, match=r"op sin holds <torch\._C\.Generator .*which a file cannot keep"
    ) as caught:
        shapetrace_rs.dumps(trace)
    assert caught.value.op == "sin"
    assert "argument" in caught.value.hint


def test_an_operation_of_an_executor_that_is_not_registered_is_refused():
    executor = thunder.extend.OperatorExecutor("nobody knows it", version="1")
    operation = executor.register_operator("own", meta=lambda x: x, fn=lambda x: x)
    trace = small_trace(operation)
    with pytest.raises(TraceFileError, match="op own holds the executor nobody knows it, which is not registered"):
        shapetrace_rs.dumps(trace)


def test_a_container_inside_itself_is_refused():
    trace = small_trace(prims.sin)
    loop: list = []
    loop.append(loop)
    trace.kwargs["loop"] = loop
    with pytest.raises((TraceFileError, shapetrace_rs.InvalidTraceError), match=r"inside itself|contains itself"):
        shapetrace_rs.dumps(trace)


@pytest.mark.parametrize("value", [1, "text", [], object()], ids=repr)
def test_what_is_no_trace_is_refused(value):
    with pytest.raises(shapetrace_rs.InvalidTraceError, match="expected a thunder trace"):
        shapetrace_rs.dumps(value)


# What a file must not do.

HOSTILE = {
    "a symbol of another module": ('symbol("os", "system")', "no symbol system in os"),
    "a module that is not loaded": ('symbol("thunder.antigravity", "x")', "no symbol x in thunder.antigravity"),
    "something that is no symbol": ('symbol("thunder.core.prims", "PrimIDs")', "no symbol PrimIDs"),
    "a private detail": ('symbol("thunder.core.prims", "__builtins__.eval")', "no symbol"),
    "an executor that is not there": ('operation("os", "system")', "no executor os"),
    "an operation that is not there": ('operation("torch", "system")', "no operation system of the executor torch"),
    "a word that nobody knows": ('call("os.system", "true")', "cannot hold 'call'"),
    "an unhashable thing to be implemented": ('implementation("torch", [1])', "cannot be made of"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_names_nothing_but_symbols_of_thunder(name):
    spelled, message = HOSTILE[name]
    text = shapetrace_rs.dumps_text(small_trace(prims.sin))
    assert text.count('symbol("thunder.core.prims", "sin")') == 1
    loaded = set(sys.modules)
    with pytest.raises(TraceFileError, match=message):
        shapetrace_rs.loads(text.replace('symbol("thunder.core.prims", "sin")', spelled))
    assert set(sys.modules) == loaded


@pytest.mark.parametrize(
    ("spelled", "message"),
    [
        ('type("subprocess", "Popen")', "no class subprocess.Popen that a file may name"),
        ('type("builtins", "eval")', "no class builtins.eval"),
        ('enum("enum", "Enum", "x")', "no class enum.Enum"),
        ('dtype("os")', "no dtype os"),
        ('torch("load")', "no torch.load"),
        ('dataclass("thunder.core.proxies", "TensorProxy", {"a": 1})', "is no dataclass"),
        ("slice(1, 2, 3, 4)", "slice cannot be made of"),
        ('device("nowhere")', "device cannot be made of"),
    ],
)
def test_a_file_makes_nothing_but_plain_data(spelled, message):
    text = shapetrace_rs.dumps_text(small_trace(lambda x: prims.convert_element_type(x, thunder.float64)))
    assert 'dtype("float64")' in text
    with pytest.raises(TraceFileError, match=message):
        shapetrace_rs.loads(text.replace('dtype("float64")', spelled))


@pytest.mark.parametrize(
    ("name", "hostile"),
    [
        ('"x"', r'"x):\n    import os  # "'),
        ('"computation"', r'"f():\n  pass\nimport os\ndef g"'),
        ('provenance("Test")', r'provenance("Test\nimport os")'),
    ],
    ids=["a proxy", "the signature", "the provenance"],
)
def test_nothing_but_names_gets_into_the_code_of_a_trace(name, hostile):
    trace = small_trace(prims.sin)
    trace.set_provenance(thunder.core.trace.TraceProvenance("Test"))
    text = shapetrace_rs.dumps_text(trace)
    assert name in text
    with pytest.raises(TraceFileError, match=r"is no name|one line"):
        shapetrace_rs.loads(text.replace(name, hostile))


@pytest.mark.parametrize("kind", [bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_whatever_holds_bytes_is_read(kind):
    trace = small_trace(prims.sin)
    assert_same(trace, shapetrace_rs.loads(kind(shapetrace_rs.dumps(trace))))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        ("", "the file is empty"),
        (5, "expected the bytes or the text of a trace file, not int"),
        (None, "expected the bytes or the text of a trace file, not NoneType"),
        (["trace"], "expected the bytes or the text of a trace file, not list"),
        ("trace \udc80", "character 6 is half of one"),
    ],
    ids=repr,
)
def test_what_is_no_file_is_refused(data, message):
    with pytest.raises(TraceFileError, match=message):
        shapetrace_rs.loads(data)


def test_no_damage_gets_past_the_reader():
    data = shapetrace_rs.dumps(small_trace(prims.sin, prims.cos))
    for length in range(len(data)):
        with pytest.raises(TraceFileError):
            shapetrace_rs.loads(data[:length])
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        try:
            loaded = shapetrace_rs.loads(bytes(damaged))
        except TraceFileError:
            continue
        # The last byte of the compressed data has bits that mean nothing.
        assert shapetrace_rs.dumps(loaded) == data


def test_a_later_format_says_who_wrote_it():
    data = bytearray(shapetrace_rs.dumps(small_trace(prims.sin)))
    data[8] = 9
    # The checksum of the header is behind the name of the writer.
    import zlib

    end = 11 + data[10]
    data[end : end + 4] = zlib.crc32(data[:end]).to_bytes(4, "little")
    with pytest.raises(TraceFileError, match=r"written by shapetrace-rs .* format 9"):
        shapetrace_rs.loads(bytes(data))


def test_a_program_alone_is_no_thunder_trace():
    with pytest.raises(TraceFileError, match="no data of thunder"):
        shapetrace_rs.loads("trace(%x) {\n  return %x\n}\n")


# Optimizing a file is optimizing the trace.


@pytest.mark.parametrize("level", ["full", "compat"])
@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_optimizing_a_file_is_optimizing_the_trace(name, level):
    program = programs.PROGRAMS[name]
    compiled = thunder.jit(program.function, cache="symbolic values")
    with shapetrace_rs.enabled():
        compiled(*program.inputs(0))
    for trace in (thunder.last_traces(compiled)[0], *(thunder.last_backward_traces(compiled) or ())[:1]):
        file, _ = files.record(trace).optimize(level=level)
        live = shapetrace_rs.optimize(trace, level=level)
        live.set_provenance(trace.get_provenance())
        assert_same(live, files.restore_trace(file))


@pytest.mark.parametrize("place", ["absent/a.trace", "file/a.trace", "full"])
def test_a_file_that_cannot_be_written_is_named(place, tmp_path, monkeypatch):
    """Protects against errors about a file that nobody has asked for, the one beside it."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    if place == "full":
        monkeypatch.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    with pytest.raises(OSError, match=rf"'{place}'$") as caught:
        shapetrace_rs.save(small_trace(prims.sin), place)
    assert (caught.value.filename, caught.value.filename2) == (place, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_saving_replaces_a_file_all_at_once(tmp_path, monkeypatch):
    path = tmp_path / "a.trace"
    shapetrace_rs.save(small_trace(prims.sin), path)
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError, match="the disk is full"):
        shapetrace_rs.save(small_trace(prims.cos), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.trace"]


def test_saving_follows_links_and_leaves_devices_alone(tmp_path):
    data = shapetrace_rs.dumps(small_trace(prims.sin))
    target, link, pipe = tmp_path / "target.trace", tmp_path / "link.trace", tmp_path / "pipe"
    target.write_bytes(b"")
    link.symlink_to(target)
    shapetrace_rs.save(small_trace(prims.sin), link)
    assert link.is_symlink()
    assert target.read_bytes() == data
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(pipe.read_bytes)
        shapetrace_rs.save(small_trace(prims.sin), pipe)
        assert reading.result(timeout=60) == data
    assert pipe.is_fifo()


# Random traces.


@contextlib.contextmanager
def findable(trace):
    """The made-up symbols of a trace and the made-up dataclass are found in a module, so that a file can name them."""
    module = types.ModuleType("thunder.made_up_by_a_test")
    module.Pack = Pack
    for number, symbol in enumerate({id(op.sym): op.sym for op in walk(trace)}.values()):
        setattr(module, f"symbol_{number}", symbol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(Pack, "__module__", module.__name__)
        yield


@given(traces())
@examples(60)
def test_random_traces_come_back(drawn):
    with findable(drawn.trace):
        data, text = shapetrace_rs.dumps(drawn.trace), shapetrace_rs.dumps_text(drawn.trace)
        loaded = shapetrace_rs.loads(data)
        assert (shapetrace_rs.dumps(loaded), shapetrace_rs.dumps_text(loaded)) == (data, text)
        assert_same(drawn.trace, loaded, text_of)
        assert_same(drawn.trace, shapetrace_rs.loads(text), text_of)


@pytest.mark.parametrize("level", LEVELS)
def test_optimizing_a_random_file_is_optimizing_the_trace(level):
    compared = 0

    @given(traces())
    @examples(60)
    def compare(drawn):
        nonlocal compared
        # Two ops of a file are never one object, and level "compat" tells equal ops from the same one.
        if "no return" in drawn.features or (level == "compat" and "the same object again" in drawn.features):
            return
        with findable(drawn.trace):
            file, _ = files.record(drawn.trace).optimize(level=level)
            live = shapetrace_rs.optimize(drawn.trace, level=level)
            live.set_provenance(drawn.trace.get_provenance())
            assert_same(live, files.restore_trace(file), text_of)
        compared += 1

    compare()
    assert compared > 20


# Fusions are made again from the ops inside them.


@pytest.fixture
def fused():
    """A function compiled through `torch.compile`, and its inputs. Inductor is not asked: that takes long."""
    from thunder.executors.torch_compile import TorchCompileExecutor, torch_compile_ex

    assert isinstance(torch_compile_ex, TorchCompileExecutor)
    inputs = torch.randn(2, 3), torch.randn(2, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
        compiled = thunder.jit(lambda x, y: (torch.sin(x) * y + 1, x - y), executors=[torch_compile_ex])
        compiled(*inputs)
        yield compiled, inputs


def test_a_fusion_of_torch_compile_is_made_again(fused):
    compiled, inputs = fused
    trace = thunder.last_traces(compiled)[-1]
    fusions = [op for op in trace.bound_symbols if op.sym.is_fusion]
    assert fusions
    for form in (shapetrace_rs.dumps, shapetrace_rs.dumps_text):
        loaded = shapetrace_rs.loads(form(trace))
        assert str(loaded) == str(trace)
        again = [op for op in loaded.bound_symbols if op.sym.is_fusion]
        assert [op._call_ctx.keys() for op in again] == [op._call_ctx.keys() for op in fusions]
        for one, other in zip(loaded.python_callable()(*inputs), trace.python_callable()(*inputs), strict=True):
            assert torch.equal(one, other)


def test_a_fusion_of_another_executor_is_refused_by_its_name():
    executor = thunder.extend.FusionExecutor("made up", version="1")
    thunder.extend.register_executor(executor)
    try:
        trace = small_trace(prims.sin)
        with tracectx(trace):
            x = trace.bound_symbols[0].args[0]
            trace.bound_symbols[0] = executor.register_temporary_operation(
                "made_up0",
                lambda x: x,
                inputs=[x],
                outputs=[trace.bound_symbols[0].output],
                bsyms=trace.bound_symbols[:1],
            )
        with pytest.raises(TraceFileError, match="op made_up0 holds a function of its own") as caught:
            shapetrace_rs.dumps(trace)
        assert "before the fusion pass" in caught.value.hint
    finally:
        thunder.extend.deregister_executor(executor)


def test_findings_about_one_long_op_do_not_repeat_it_in_full():
    """A fault for each operand, each with the line of the op: the lines are cut."""
    operands = ", ".join(f"%value_with_a_long_name_{index}" for index in range(2_000))
    file = _core.TraceFile.read(f"trace(%x) {{\n  %r = f.g({operands})\n  return %r\n}}\n".encode())
    findings = file.verify()
    assert len(findings) == 2_000
    assert {len(finding[2]) for finding in findings} == {1_004}
    assert {finding[3] for finding in findings} == {f"value_with_a_long_name_{index}" for index in range(2_000)}
