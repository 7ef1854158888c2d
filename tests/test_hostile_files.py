"""Files that were made to do harm: loading one runs nothing, and nothing of it becomes code when it is printed.

Thunder prints a trace as Python source and compiles that. So a string in a file is dangerous wherever the printer
writes it without quotes. Each kind of such places has a case here; behind them, files with random damage.
"""

from __future__ import annotations

import ast
import random
import re

import pytest
import thunder
import torch
from hypothesis import given
from hypothesis import strategies as st
from thunder.core import prims
from thunder.core.trace import TraceProvenance

import shapetrace_rs
from shapetrace_rs import TraceFileError
from trace_tools import emit, examples, integer, new_trace, tensor

PAYLOAD = "x\\n  pass\\ncanary()\\ndef g():\\n  #"
"""Ends the line and the function, and calls something."""

INLINE = "(canary())"
"""Calls something on the same line."""


@pytest.fixture(scope="module")
def text() -> str:
    """A trace with all kinds of things in it that are printed."""
    with new_trace() as trace:
        n = integer("n", 2)
        x = tensor("x", (n, 3))
        emit(trace, prims.unpack_trivial, x, output=x, name="x")
        prims.comment("what is to be said")
        held = thunder.core.proxies.Proxy("held")
        emit(trace, prims.unpack_attr, held, "attribute", output=thunder.core.proxies.Proxy("got"))
        y = prims.sin(x)
        z = prims.cos(y)
        prims.python_print("a text")
        prims.python_return(z)
    trace.bound_symbols[3].header = ["first", "second"]
    trace.bound_symbols[3].source_filename = "model.py"
    trace.bound_symbols[3].source_positions = thunder.core.codeutils.Positions(3, 3, 0, 0)
    trace.bound_symbols[3].kwargs["keyword"] = ("in", "quotes")
    trace.args = (x,)
    trace._siginfo = thunder.core.codeutils.SigInfo("computation")
    trace._siginfo.args = [("x", None)]
    trace.set_provenance(TraceProvenance("Test"))
    trace._object_ctx[1] = thunder.core.codeutils.ContextObject("thing", "plain")
    return shapetrace_rs.dumps_text(trace)


def calls(source: str) -> set[str]:
    """What a source calls, by the names of the functions."""
    called = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {ast.unparse(function) for function in called}


def test_the_trace_itself_is_read_and_printed(text: str) -> None:
    """The cases below change one thing each, so that what is refused is refused for that."""
    assert {"print", "prims.sin", "prims.cos"} <= calls(shapetrace_rs.loads(text).python())


VECTORS = {
    "the name of a source file": ('"model.py"', f'"{PAYLOAD}"'),
    "a device as a source file": ('"model.py"', '"/dev/zero"'),
    "a position": ("positions(3,", f'positions("{PAYLOAD}",'),
    "a line of a header": ('"first"', f'"{PAYLOAD}"'),
    "a header that is no text": ('["first", "second"]', "5"),
    "a keyword": ('"keyword":', '"k=canary(),**{},b":'),
    "a text in a container": ('("in", "quotes")', '("in", "_@_\'+canary()+\'_@_")'),
    "the name of a proxy in its state": ('"value": 2', f'"value": 2, "_name": "y={INLINE}"'),
    "the class of a proxy": ('"value": 2', '"value": 2, "__class__": type("builtins", "int")'),
    "a method of a proxy": ('"value": 2', '"value": 2, "type_string": 5'),
    "the value of a number": ('"value": 2', f'"value": "{PAYLOAD}"'),
    "the type of a number": ('type("builtins", "int")', f'"{PAYLOAD}"'),
    "a dimension": ("(~n, 3)", f'(~n, "{PAYLOAD}")'),
    "a dimension without end": ("(~n, 3)", f"(~n, {10**40})"),
    "the number of dimensions": ("(~n, 3)", f"({'3, ' * 65})"),
    "no shape": ("(~n, 3)", "None"),
    "a device": ('device("cpu")', f'"{PAYLOAD}"'),
    "a dtype": ('dtype("float32")', f'"{PAYLOAD}"'),
    "a comment": ('"what is to be said"', f'"{PAYLOAD}"'),
    "an attribute": ('"attribute"', f'"a{INLINE}"'),
    "the name of an object": ('("thing", "plain")', f'("t={INLINE}", "plain")'),
    "objects that are none": ('[("thing", "plain")]', "5"),
    "the provenance": ('provenance("Test")', f'provenance("{PAYLOAD}")'),
    "a provenance that is a text": ('provenance("Test")', f'"{PAYLOAD}"'),
    "the signature": ('"computation"', '"f():\\n  pass\\ncanary()\\ndef g"'),
    "a keyword of Python as a name": ('"computation"', '"lambda"'),
    "an argument of the signature": ('("x", None)', f'("x={INLINE}", None)'),
    "no signature": ("signature(", "provenance("),
    "args that are none": ("args (%y,)", "args 5"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_nothing_of_a_file_becomes_code(text: str, name: str) -> None:
    """Every place in which the printer writes a text without quotes takes only what it has to be."""
    old, new = VECTORS[name]
    names = dict(re.findall(r"%(\w+) = prims\.(\w+): ", text))
    made_by_sin = next(value for value, op in names.items() if op == "sin")
    old = old.replace("%y", f"%{made_by_sin}")
    assert old in text, f"{old} is not there: {text}"
    with pytest.raises(TraceFileError):
        shapetrace_rs.loads(text.replace(old, new))


def test_a_fusion_is_compiled_when_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling runs source that is made of the file. Whoever only loads it gets by without."""
    from thunder.executors import torch_compile

    x = torch.randn(3)
    with monkeypatch.context() as context:
        context.setattr(torch, "compile", lambda function, *_, **__: function)
        compiled = thunder.jit(lambda x: torch.sin(x) * 2 + 1, executors=[torch_compile.torch_compile_ex])
        expected = compiled(x)
        trace = thunder.last_traces(compiled)[-1]
        assert any(op.sym.is_fusion for op in trace.bound_symbols)
        made = []
        make = torch_compile.make_compiled
        context.setattr(torch_compile, "make_compiled", lambda *args, **kwargs: made.append(1) or make(*args, **kwargs))
        loaded = shapetrace_rs.loads(shapetrace_rs.dumps(trace))
        run = loaded.python_callable()
        assert not made
        for _ in range(2):
            torch.testing.assert_close(run(x)[0] if isinstance(run(x), tuple) else run(x), expected)
        assert made == [1]


TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|%\w+|\b\d+\b|\bNone\b|\bFalse\b|\[\]|\{\}')

REPLACEMENTS = [
    *(f'"{hostile}"' for hostile in (PAYLOAD, INLINE, "a_@_'+canary()+'_@_", "y=canary()", "", "lambda", "a.b", "\\0")),
    *("5", "-1", str(1 << 70), "None", "True", "[]", "{}", "()", "(1, 2)", '{"a": 5}', "1.5", '[["a"]]', "%x", "%n"),
    *('type("builtins", "int")', 'symbol("thunder.core.prims", "cos")', 'executor("torch")', "set(5)"),
]


@given(st.integers(0, 2**32), st.integers(1, 3))
@examples(300)
def test_random_damage_is_an_error_or_harmless(text: str, seed: int, times: int) -> None:
    """Whatever stands in the host's part of a file, loading gives a trace or a `TraceFileError`, and runs nothing.

    What is printed of the trace, if it can be printed, calls nothing but what a trace calls.
    """
    chance = random.Random(seed)
    head, host = text.split("host {", 1)
    for _ in range(times):
        token = chance.choice(list(TOKENS.finditer(host)))
        host = host[: token.start()] + chance.choice(REPLACEMENTS) + host[token.end() :]
    try:
        trace = shapetrace_rs.loads(head + "host {" + host)
    except TraceFileError:
        return
    try:
        source = trace.python()
    except Exception:  # noqa: BLE001 (a trace that makes no sense need not be printable)
        return
    try:
        called = calls(source)
    except SyntaxError:
        return
    assert not any("canary" in function for function in called), source
