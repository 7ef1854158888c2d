"""Reports of what the optimizer did: what they say, how they look, and that they harm nothing."""

from __future__ import annotations

import gc
import io
import json
import logging
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch
from thunder.core import devices, dtypes, prims
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx, tracectx

import shapetrace_rs
import shapetrace_rs.cli
from shapetrace_rs import _core, report
from shapetrace_rs.explain import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INPUTS = (torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True))


def project(x: Any, w: Any) -> Any:
    """A program full of shape arithmetic, with a dead op."""
    batch, length, width = x.shape
    y = torch.nn.functional.linear(x.reshape(-1, width), w)
    torch.sin(y)
    return y.reshape(batch, length, -1)


@pytest.fixture(scope="module")
def full_report() -> Any:
    """The report of one compile with everything in it."""
    with shapetrace_rs.enabled(strict=True):
        compiled = thunder.jit(project, cache="symbolic values")
        return shapetrace_rs.explain(compiled, inputs=INPUTS, compare=True)


def trace_with_effects() -> Any:
    """A print that nothing reads, a dead op, and an op inside a composite."""
    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy(name="x", shape=(2, 3), device=devices.cpu, dtype=dtypes.float32)
        total = prims.add(x, x)
        prims.python_print(total)
        prims.mul(x, x)
        thunder.torch.cos(x)
        prims.python_return(thunder.torch.sin(total))
    trace.args = (x,)
    return trace


def test_every_reason_is_explained() -> None:
    """Protects reports from reasons without words."""
    assert list(REASONS) == _core.reasons()


def test_a_trace_is_explained_op_by_op() -> None:
    """Protects the heart of it: each op, its fate, and what is inside of what."""
    report_ = shapetrace_rs.explain(trace_with_effects())
    (call,) = report_
    assert call.measured == "afterwards"
    told = [(op.depth, op.name, op.fate, op.owner) for op in call.ops]
    assert told == [
        (0, "prims.add", "kept", None),
        (0, "prims.python_print", "kept", None),
        (0, "prims.mul", "dead", None),
        (0, "ltorch.cos", "dead", None),
        (1, "prims.cos", "inside-removed", 3),
        (0, "ltorch.sin", "kept", None),
        (1, "prims.sin", "kept", 5),
        (0, "prims.python_return", "kept", None),
    ]
    assert [op.name for op in call.kept_for_effect] == ["prims.python_print"]
    dead = call.ops[2]
    assert (dead.before, dead.after, dead.operands) == (f"{dead.results[0]} = prims.mul(x, x)", None, ("x",))
    assert dead.types == "cpu f32[2, 3]"
    assert "print(t0)" in str(report_).split("Kept for an effect alone")[1]


def test_an_effect_whose_result_is_read_is_not_kept_for_it_alone() -> None:
    """Protects the list of effects from ops that would stay anyway."""
    with shapetrace_rs.enabled(effects={"mul": True}):
        (read,) = shapetrace_rs.explain(simple_trace(returns_product=True))
        (unread,) = shapetrace_rs.explain(simple_trace(returns_product=False))
    assert [op.name for op in read.kept_for_effect] == []
    assert [op.name for op in unread.kept_for_effect] == ["prims.mul"]


def simple_trace(*, returns_product: bool) -> Any:
    """A sum and a product, one of which is returned."""
    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy(name="x", shape=(2,), device=devices.cpu, dtype=dtypes.float32)
        total, product = prims.add(x, x), prims.mul(x, x)
        prims.python_return(product if returns_product else total)
    trace.args = (x,)
    return trace


def test_numbers_and_ops_agree(full_report: Any) -> None:
    """Protects a reader from a table that says one thing and a list that says another."""
    assert len(full_report) > 5
    reasons = set()
    for call in full_report:
        record = call.record
        assert call.has_ops
        assert sum(op.depth == 0 for op in call.ops) == record.ops_in
        assert sum(op.depth > 0 for op in call.ops) == record.nested_in
        assert sum(not op.removed for op in call.ops) == record.ops_out + record.nested_out
        fates = [op.fate for op in call.ops if op.removed]
        assert {reason: fates.count(reason) for reason in fates} == {
            reason: number for reason, number in record.removed.items() if number
        }
        reasons |= set(fates)
        assert record.thunder_ns is not None
        for op in call.ops:
            assert op.owner is None or call.ops[op.owner].depth == op.depth - 1
    assert {"dead", "duplicate-query", "folded"} <= reasons
    assert any(call.renames for call in full_report)


def test_a_report_is_data(full_report: Any, tmp_path: Path) -> None:
    """Protects scripts that read reports."""
    data = json.loads(full_report.save(tmp_path / "report.json").read_text())
    assert data == json.loads(json.dumps(full_report.to_dict()))
    assert data["format"] == 1
    assert len(data["calls"]) == len(full_report)
    call = max(data["calls"], key=lambda call: len(call["ops"]))
    assert {"before", "after", "fate", "owner", "source"} <= call["ops"][0].keys()
    assert data["removed"] == full_report.removed
    assert data["thunder_seconds"] == full_report.thunder_seconds > 0
    assert "ops" not in full_report.to_dict(ops=False)["calls"][0]


def test_passes_of_thunder_are_told_between_the_calls(full_report: Any) -> None:
    """Protects the chart of ops through the compile, and thunder's class from staying changed."""
    names = [step.name for step in full_report.passes]
    # Once: copies that are made for the comparison are no passes.
    assert names.count("Grad transform pass") == 1
    assert "Delete Last Used" in names
    assert not any("Dead Code" in name or "took" in name for name in names)
    assert all(0 <= step.calls_before <= len(full_report) for step in full_report.passes)
    assert TraceCtx.set_provenance.__module__ == "thunder.core.trace"


def test_plain_text_is_plain(full_report: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects logs and pipes from control characters, and the table from losing columns."""
    full_report.show()
    printed = capsys.readouterr().out
    assert printed.rstrip("\n") == str(full_report) == (full_report.save(tmp_path / "r.txt")).read_text().rstrip("\n")
    assert "\x1b" not in printed
    assert "transforms.autodiff.grad_transform_on_trace" in printed
    assert "duplicate-query" in printed
    assert "thunder ms" in printed
    assert ".save(" in repr(full_report)
    assert "\n" not in repr(full_report)


@pytest.mark.parametrize("width", [72, 100, 160])
def test_rich_prints_a_table(full_report: Any, width: int) -> None:
    """Protects the look on a terminal: numbers are whole at any width."""
    console = pytest.importorskip("rich.console")
    out = io.StringIO()
    console.Console(file=out, width=width, force_terminal=True, color_system=None).print(full_report)
    text = out.getvalue()
    record = full_report.calls[0].record
    assert f"{record.ops_in} -> {record.ops_out}" in text
    assert "ratio" in text


def test_nothing_is_printed_unasked(tmp_path: Path) -> None:
    """Protects programs that use the drop-in from lines that they did not write, also for a warning in the log."""
    script = tmp_path / "script.py"
    script.write_text(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import logging, thunder, torch, shapetrace_rs\n"
        "with shapetrace_rs.enabled(), shapetrace_rs.record_calls(details=True) as recording:\n"
        "    thunder.jit(lambda x: torch.sin(x))(torch.ones(2))\n"
        "logging.getLogger('shapetrace_rs').warning('for those who listen')\n"
        "recording.report().to_html()\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_log_tells_of_each_call_when_asked(dead_code_trace: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Protects the lines that production systems collect, and their silence at the usual level."""
    with shapetrace_rs.enabled(strict=True):
        with caplog.at_level(logging.INFO, "shapetrace_rs"):
            thunder.dce(dead_code_trace)
        assert not caplog.records
        with caplog.at_level(logging.DEBUG, "shapetrace_rs"):
            thunder.dce(dead_code_trace)
    (line,) = caplog.messages
    assert "3 ops became 2" in line
    assert "dead 1" in line


def test_the_latest_compile_is_remembered_without_asking() -> None:
    """Protects `last_report` after a surprise: numbers of every call, ops of the traces that still exist."""
    with shapetrace_rs.enabled(strict=True):
        other = thunder.jit(lambda x: x + 1)
        other(torch.ones(2))
        compiled = thunder.jit(project, cache="symbolic values")
        compiled(*INPUTS)
    latest = shapetrace_rs.last_report()
    assert latest is not None
    assert latest.title == "project"
    assert len(latest) > 5
    assert latest.removed["dead"] > 0
    known = [call.has_ops for call in latest]
    assert any(known)
    assert not all(known)
    assert "details=True" in latest.notes[0]
    # Asking about a function by name gives the same, whatever was compiled later.
    assert len(shapetrace_rs.explain(compiled)) == len(latest)
    assert "lambda" in shapetrace_rs.explain(other).title


def test_remembering_keeps_no_trace_alive(dead_code_trace: Any) -> None:
    """Protects production memory."""
    with shapetrace_rs.enabled(strict=True):
        compiled = thunder.jit(project)
        compiled(*INPUTS)
        kept = weakref.ref(thunder.last_traces(compiled)[0])
        del compiled
        thunder.dce(dead_code_trace)
    gc.collect()
    assert kept() is None


def test_details_that_were_recorded_are_found_again() -> None:
    """Protects `explain(jfn)` and `last_report` after a compile inside `record_calls(details=True)`."""
    with shapetrace_rs.enabled(strict=True), shapetrace_rs.record_calls(details=True) as recording:
        compiled = thunder.jit(project, cache="symbolic values")
        compiled(*INPUTS)
    latest = shapetrace_rs.last_report()
    assert latest is not None
    for found in (latest, shapetrace_rs.explain(compiled), recording.report()):
        assert all(call.has_ops for call in found)
        assert not found.notes
    kept = weakref.ref(thunder.last_traces(compiled)[0])
    del recording, latest, found, compiled
    gc.collect()
    assert kept() is None


def test_a_new_compile_for_a_report_leaves_the_function_alone() -> None:
    """Protects the cache of a compiled function from `explain(jfn, inputs=...)`."""
    compiled = thunder.jit(project)
    compiled(*INPUTS)
    cache = thunder.compile_stats(compiled).interpreter_cache
    entries = list(cache)
    told = shapetrace_rs.explain(compiled, inputs=INPUTS, level="compat")
    assert {call.record.level for call in told} == {"compat"}
    assert "once more" in told.notes[0]
    assert thunder.compile_stats(compiled).interpreter_cache is cache
    assert list(map(id, cache)) == list(map(id, entries))
    assert not shapetrace_rs.installed()
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the program raises)
        shapetrace_rs.explain(compiled, inputs=(1, 2))
    assert thunder.compile_stats(compiled).interpreter_cache is cache


def test_a_function_compiled_without_the_drop_in_can_be_asked_about() -> None:
    """Protects the question "what would it do to my program"."""
    compiled = thunder.jit(project)
    with pytest.raises(ValueError, match="not been called yet"):
        shapetrace_rs.explain(compiled)
    compiled(*INPUTS)
    told = shapetrace_rs.explain(compiled, compare=True)
    assert "compiled without the drop-in" in told.notes[0]
    assert all(call.has_ops and call.measured == "afterwards" for call in told)
    assert told.removed["dead"] >= 1
    assert told.thunder_seconds is not None
    assert not any(op.name.endswith("del") for call in told for op in call.ops)


@pytest.mark.parametrize("target", [project, None, 3])
def test_other_things_are_refused(target: Any) -> None:
    """Protects users from a question that has no answer."""
    with pytest.raises(TypeError, match=r"thunder\.jit"):
        shapetrace_rs.explain(target)


def test_explaining_changes_no_trace(dead_code_trace: Any) -> None:
    """Protects traces in hand: no bound symbol is touched, nothing is cached on one, no object is named."""
    trace = trace_with_effects()
    before = [dict(vars(bsym)) for bsym in trace.bound_symbols]
    names = set(trace.names)
    shapetrace_rs.explain(trace, compare=True).to_html()
    assert [dict(vars(bsym)) for bsym in trace.bound_symbols] == before
    assert trace.names == names


def test_fallbacks_are_told(dead_code_trace: Any, fail_optimizer: Callable[..., None]) -> None:
    """Protects a reader from taking thunder's work for ours."""
    fail_optimizer(RuntimeError("injected <b>"))
    with (
        pytest.warns(shapetrace_rs.ShapetraceWarning),
        shapetrace_rs.enabled(),
        shapetrace_rs.record_calls(details=True) as recording,
    ):
        thunder.dce(dead_code_trace)
    latest = shapetrace_rs.last_report()
    assert latest is not None
    for told in (recording.report(), latest):
        (call,) = told
        assert call.record.fallback == "RuntimeError: injected <b>"
        assert (call.record.ops_in, call.record.ops_out) == (3, 2)
        assert "thunder's pass did it" in str(told)
        assert "injected &lt;b&gt;" in told._repr_html_()


def test_an_op_that_cannot_be_printed_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects reports from printers of executors and of users."""

    def fail(*arguments: Any) -> Any:
        raise RuntimeError(arguments)

    trace = trace_with_effects()
    monkeypatch.setattr(type(trace.bound_symbols[2]), "_get_lines", fail)
    (call,) = shapetrace_rs.explain(trace)
    assert call.ops[2].before.startswith("mul(...)")
    assert call.ops[2].fate == "dead"


def test_a_notebook_shows_a_report(full_report: Any) -> None:
    """Protects notebooks: a table without a script, and the page in a frame that can reach nothing outside."""
    fragment = full_report._repr_html_()
    table, _, frame = fragment.partition("<iframe")
    assert "<script" not in fragment
    assert "<td>transforms.autodiff.grad_transform_on_trace</td>" in table
    assert "<del title=" in table
    assert 'sandbox="allow-scripts"' in frame


def test_names_of_programs_are_no_markup(tmp_path: Path) -> None:
    """Protects readers of a report from what somebody wrote into a program."""
    trace = trace_with_effects()
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    trace.bound_symbols[0].source_filename = hostile
    with tracectx(trace):
        trace.bound_symbols[2] = prims.mul.bind(trace.args[0], hostile, output=trace.bound_symbols[2].output)
    told = shapetrace_rs.explain(trace)
    told.title = hostile
    whole = told.save(tmp_path / "report.html").read_text()
    assert whole.count("<script") == 2
    assert "<img" not in whole + told._repr_html_()
    assert "connect-src" not in whole
    assert "default-src 'none'" in whole
    assert "http" not in whole.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_the_same_report_gives_the_same_page(full_report: Any) -> None:
    """Protects comparisons of reports."""
    assert full_report.to_html() == full_report.to_html()


def test_a_deep_trace_is_explained() -> None:
    """Protects against recursion."""
    trace = trace_with_effects()
    inner = trace.bound_symbols[0]
    for _ in range(2 * sys.getrecursionlimit()):
        inner = inner.from_bsym(subsymbols=[inner])
    trace.bound_symbols[0] = inner
    (call,) = shapetrace_rs.explain(trace)
    assert max(op.depth for op in call.ops) == 2 * sys.getrecursionlimit()


def test_details_end_when_very_much_is_kept(dead_code_trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects long programs under `shapetrace explain` from filling the memory."""
    monkeypatch.setattr(report, "_MOST_DETAILS", 4)
    with shapetrace_rs.enabled(strict=True), shapetrace_rs.record_calls(details=True) as recording:
        for _ in range(4):
            thunder.dce(dead_code_trace)
    assert [call.has_ops for call in recording.report()] == [True, True, False, False]
    assert len(recording.report().to_html()) > 10_000


SCRIPT = """\
import sys, warnings; warnings.simplefilter("ignore")
assert "thunder" not in sys.modules
import thunder, torch
thunder.jit(lambda x: (torch.cos(x), torch.sin(x))[1])(torch.ones(2))
print(sys.argv)
raise SystemExit(3)
"""


def test_the_command_writes_a_report_of_any_script(shapetrace: Callable[..., Any], tmp_path: Path) -> None:
    """Protects `shapetrace explain`: the program sees its own words and keeps its exit code."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = shapetrace("explain", "--compare", "-o", "out.json", "script.py", "-o", "own")
    assert done.returncode == 3
    assert done.stdout == "['script.py', '-o', 'own']\n"
    assert "ops removed" in done.stderr
    assert "out.json" in done.stderr
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["title"] == "script.py"
    assert data["removed"]["dead"] >= 1
    assert data["passes"]
    lines = [op["before"] for call in data["calls"] for op in call["ops"]]
    assert "t1 = ltorch.sin(x)" in lines
    assert not any("cannot print" in line for line in lines)
    assert all(call["has_ops"] and call["thunder_ns"] for call in data["calls"])


def test_a_program_without_thunder_gets_no_report(shapetrace: Callable[..., Any], tmp_path: Path) -> None:
    """Protects users from an empty page."""
    (tmp_path / "script.py").write_text("print('hello')\n", encoding="utf-8")
    done = shapetrace("explain", "script.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "compiled nothing with thunder" in done.stderr
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a script, or -m and a module"),
        (("absent.py",), "shapetrace explain: can't open file 'absent.py'"),
        (("-o", "absent/report.html", "script.py"), "no such directory"),
        (("-o", ".", "script.py"), "is a directory"),
    ],
)
def test_what_cannot_be_explained(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Protects users from running a long program for nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("raise AssertionError('was run')\n", encoding="utf-8")
    assert shapetrace_rs.cli.main(["explain", *words]) == 2
    assert message in capsys.readouterr().err


def test_each_process_of_a_job_has_its_own_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Protects the reports of a distributed job from each other."""
    from shapetrace_rs.cli import explain as command

    assert command._own_output(tmp_path / "report.html") == tmp_path / "report.html"
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert command._own_output(tmp_path / "report.html") == tmp_path / "report-rank3.html"


def test_several_threads_can_be_recorded_at_once() -> None:
    """Protects recordings of servers that compile in threads: each call with its own compile."""
    failures: list[BaseException] = []

    def compile_one(number: int) -> None:
        try:
            compiled = thunder.jit(lambda x: torch.sin(x) + number)
            compiled(torch.ones(number))
        except BaseException as error:  # noqa: BLE001 (to be told in the main thread)
            failures.append(error)

    with shapetrace_rs.enabled(strict=True), shapetrace_rs.record_calls(details=True) as recording:
        threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    told = recording.report()
    assert len(told.compiles) == 4
    assert len({tuple(call.record.caller for call in told if call.compile == number) for number in range(4)}) == 1
