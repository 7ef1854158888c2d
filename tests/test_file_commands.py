"""`stat`, `show`, `opt`, `verify`, `diff`, `record`: what they print, their exit codes, what they work without."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import thunder
import torch

import shapetrace_rs
from shapetrace_rs import _core, cli, files
from shapetrace_rs.cli import file_commands
from shapetrace_rs.files.recording import TraceKeeper
from shapetrace_rs.report import Recording, close_recording, open_recording

Shapetrace = Callable[..., "subprocess.CompletedProcess[str]"]

RECORDED = Path(__file__).parent.parent / "benches" / "traces"

BEFORE = """\
trace(%x) {
  %dead = prims.sin(%x)
  %n: int = 2, %m: int = 3 = prims.shape(%x) #query
  %y = ltorch.silu(%x) {
    %a = prims.sin(%x)
    %b = prims.sin(%x)
    %y = prims.mul(%a, %x)
  }
  return %y
}
"""

BROKEN = """\
trace(%x) {
  %y = prims.sin(%z)
  return %y
}
"""


@pytest.fixture(autouse=True)
def _in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("before.txt").write_text(BEFORE)
    Path("broken.txt").write_text(BROKEN)


def test_stat_counts_what_is_there_and_what_would_go(capsys):
    assert cli.main(["stat", "before.txt"]) == 0
    out = capsys.readouterr().out
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert {"a program only, without data of thunder", "top level 4", "inside 3", "deepest scope 1"} <= lines
    assert {"prims.sin 3", "prims.mul 1", "dead 3"} <= lines

    assert cli.main(["stat", "--json", "before.txt"]) == 0
    statistics = json.loads(capsys.readouterr().out)
    assert statistics["ops"] == {"top_level": 4, "inside": 3}
    assert statistics["removable"]["dead"] == 3
    assert statistics["symbols"]["prims.sin"] == 3
    assert statistics["about"] == {}


def test_stat_lists_as_many_symbols_as_asked_for(capsys):
    assert cli.main(["stat", "--symbols", "1", "before.txt"]) == 0
    out = capsys.readouterr().out
    assert "prims.sin" in out
    assert "prims.mul" not in out
    assert "and 4 more" in out


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.trace")), ids=lambda path: path.stem)
def test_stat_counts_what_opt_removes(path):
    """Protects against two answers to one question: what the optimizer would remove."""
    file = _core.TraceFile.read(path.read_bytes())
    _, removals = file.optimize(level="full")
    removable = file.statistics()["removable"]
    assert {reason: count for reason, count in removable.items() if count} == Counter(
        reason for _, reason, _ in removals
    )


def test_nothing_is_removable_where_nothing_says_what_is_needed(capsys):
    Path("endless.txt").write_text("trace(%x) {\n  %y = prims.sin(%x)\n}\n")
    assert cli.main(["stat", "--json", "endless.txt"]) == 0
    assert set(json.loads(capsys.readouterr().out)["removable"].values()) == {0}
    assert cli.main(["stat", "endless.txt"]) == 0
    assert "the trace has no return" in capsys.readouterr().out
    assert cli.main(["opt", "endless.txt", "-o", "after.txt"]) == 2
    assert capsys.readouterr().err.startswith("shapetrace opt: endless.txt: the trace has no return")


def test_the_counts_of_stat_go_by_names_of_one_kind(capsys):
    """Protects scripts: `jq .kinds.shape_queries` needs no quotes. Reasons and symbols go by their own names."""
    assert cli.main(["stat", "--json", "before.txt"]) == 0
    statistics = json.loads(capsys.readouterr().out)
    names = [name for group in ("ops", "structure", "kinds", "values") for name in statistics[group]]
    assert [name for name in names if not name.isidentifier()] == []
    assert statistics["kinds"]["shape_queries"] == 1
    assert list(statistics["removable"]) == _core.reasons()
    assert cli.main(["stat", "before.txt"]) == 0
    assert "  shape queries " in capsys.readouterr().out


def test_opt_writes_what_is_left_and_says_why_the_rest_went(capsys):
    assert cli.main(["opt", "-v", "--text", "before.txt", "-o", "after.txt"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "4 ops -> 2, inside other ops 3 -> 2" in captured.err
    assert "dead" in captured.err
    assert "%dead = prims.sin(%x)" in captured.err
    after = Path("after.txt").read_text()
    assert "%dead" not in after
    assert "%b" not in after
    assert "prims.shape" not in after
    assert cli.main(["verify", "--optimized", "after.txt"]) == 0


def test_opt_and_show_work_in_a_pipe(shapetrace):
    optimized = subprocess.run(  # noqa: S602 (the pipe is what is tested)
        f"{sys.executable} -m shapetrace_rs opt --quiet before.txt -o - | {sys.executable} -m shapetrace_rs show -",
        shell=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert optimized.stderr == ""
    Path("after.txt").write_text(optimized.stdout)
    assert optimized.stdout.startswith("trace(%x) {")
    shown = shapetrace("show", "--program", "after.txt")
    assert (shown.returncode, shown.stdout) == (0, optimized.stdout)


def test_a_reader_that_has_seen_enough_is_no_error():
    ops = "".join(f"  %v{index} = prims.sin(%x)\n" for index in range(20_000))
    Path("long.txt").write_text(f"trace(%x) {{\n{ops}  return %x\n}}\n")
    done = subprocess.run(  # noqa: S602 (the pipe is what is tested)
        f"{sys.executable} -m shapetrace_rs show long.txt | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("trace(%x) {\n", "")


def test_verify_names_what_is_wrong_and_where(capsys):
    assert cli.main(["verify", "before.txt"]) == 0
    assert capsys.readouterr().out == "before.txt: nothing is wrong\n"
    assert cli.main(["verify", "before.txt", "broken.txt"]) == 1
    out = capsys.readouterr().out
    assert "before.txt: nothing is wrong\n" in out
    assert "broken.txt: " in out
    assert "%z" in out
    assert "`%y = prims.sin(%z)`" in out
    assert cli.main(["verify", "--quiet", "broken.txt"]) == 1
    assert capsys.readouterr().out == ""


def test_diff_compares_what_thunder_needs_unless_told_not_to(dead_code_trace, capsys):
    for name in ("One", "Two"):
        dead_code_trace.set_provenance(thunder.core.trace.TraceProvenance(name))
        shapetrace_rs.save(dead_code_trace, f"{name}.trace")
    assert cli.main(["diff", "One.trace", "Two.trace"]) == 1
    captured = capsys.readouterr()
    assert 'provenance("One")' in captured.out
    assert "the programs are the same" in captured.err
    assert cli.main(["diff", "--program", "One.trace", "Two.trace"]) == 0
    assert capsys.readouterr() == ("", "")


def test_diff_shows_the_ops_that_differ(capsys):
    assert cli.main(["diff", "before.txt", "before.txt"]) == 0
    assert capsys.readouterr() == ("", "")
    Path("after.txt").write_text(BEFORE.replace("  %dead = prims.sin(%x)\n", ""))
    assert cli.main(["diff", "-U", "0", "before.txt", "after.txt"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "--- before.txt",
        "+++ after.txt",
        "@@ -2 +1,0 @@",
        "-  %dead = prims.sin(%x)",
    ]
    assert "1 lines in before.txt only, 0 in after.txt only" in captured.err
    assert cli.main(["diff", "--quiet", "before.txt", "after.txt"]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stat", "absent.trace"], "absent.trace: No such file or directory"),
        (["show", "."], ".: Is a directory"),
        (["verify", "damaged.trace"], "damaged.trace: "),
        (["stat", "bytes.txt"], "bytes.txt: neither a trace file nor text: byte 3 is not UTF-8"),
        (["show", "words.txt"], "words.txt: "),
        (["stat", "empty.txt"], "empty.txt: the file is empty"),
        (["opt", "before.txt", "-o", "absent/after.trace"], ": absent/after.trace: No such file or directory"),
        (["opt", "before.txt", "-o", "words.txt/after.trace"], ": words.txt/after.trace: Not a directory"),
        (["diff", "-", "-"], "standard input can be one of the two only"),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, list) else None,
)
def test_what_cannot_be_read_or_written_is_exit_code_2(words, message, capsys):
    data = shapetrace_rs._core.TraceFile.read(BEFORE.encode()).to_bytes()
    Path("damaged.trace").write_bytes(data[:-1])
    Path("bytes.txt").write_bytes(b"tra\xffce")
    Path("words.txt").write_text("a shopping list\n")
    Path("empty.txt").touch()
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"shapetrace {words[0]}: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_file_that_is_too_large_is_not_read(capsys):
    """Protects against a `MemoryError`: no more is read than a trace file can have."""
    with Path("huge.trace").open("wb") as file:
        file.truncate(1 << 40)
    limit = _core.max_file_bytes
    assert cli.main(["verify", "huge.trace"]) == 2
    assert f"shapetrace verify: huge.trace: more than {limit} bytes" in capsys.readouterr().err
    with pytest.raises(shapetrace_rs.TraceFileError, match=rf"^huge\.trace: more than {limit} bytes"):
        shapetrace_rs.load("huge.trace")


def test_standard_input_that_does_not_end_is_not_read_to_its_end(capsys, monkeypatch):
    class Endless(io.RawIOBase):
        given = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            self.given += len(buffer)
            return len(buffer)

    endless = Endless()
    monkeypatch.setattr(_core, "max_file_bytes", 10_000_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    assert cli.main(["stat", "-"]) == 2
    assert "shapetrace stat: standard input: more than 10000000 bytes" in capsys.readouterr().err
    assert endless.given < 10_100_000


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory"),
        (shapetrace_rs.InternalError("it panicked"), "it panicked"),
        (UnicodeEncodeError("ascii", "\xe9", 0, 1, "ordinal not in range(128)"), "PYTHONIOENCODING"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("words", [["verify", "before.txt"], ["diff", "before.txt", "before.txt"]], ids=lambda w: w[0])
def test_a_failure_is_not_taken_for_an_answer(words, error, message, capsys, monkeypatch):
    """Protects scripts: Python ends with exit code 1, which says that something was found, or differs."""

    def fail(path):
        del path
        raise error

    monkeypatch.setattr(file_commands, "_read", fail)
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"shapetrace {words[0]}: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_exit_code_2():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shapetrace_rs", "verify", "before.txt"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, f"shapetrace verify: {os.strerror(errno.ENOSPC)}\n")


def test_numbers_have_to_be_numbers(capsys):
    for words in (
        ["stat", "--symbols", "-3", "before.txt"],
        ["diff", "-U", "-1", "before.txt", "before.txt"],
        ["record", "--most-calls", "-1", "program.py"],
        ["record", "--most-calls", "many", "program.py"],
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == 2
        assert "is no whole number from 0 on" in capsys.readouterr().err
    assert cli.main(["diff", "-U", "9" * 30, "before.txt", "broken.txt"]) == 1


def test_a_slow_step_says_how_much_there_is(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(file_commands, "_SLOW_SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    step = file_commands._Step("reading first.trace", file_commands._in_bytes(1_234_567))
    with step:
        deadline = time.monotonic() + 60
        while "1.2 MB" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.001)
        step.amount = file_commands._in_ops(_core.TraceFile.read(BEFORE.encode()))
        while "7 ops" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.001)
    shown = terminal.getvalue()
    assert "\r\x1b[Kreading first.trace (1.2 MB) ..." in shown
    assert "\r\x1b[Kreading first.trace (7 ops) ..." in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("command", ["stat", "show", "opt", "verify", "diff", "record", "run", "explain"])
def test_help_teaches(command, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert f"shapetrace {command}" in out
    assert "exit codes:" in out


def test_words_that_make_no_sense_are_exit_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["opt", "before.txt"])
    assert caught.value.code == 2
    assert "-o/--output" in capsys.readouterr().err


def test_the_commands_on_files_need_neither_torch_nor_thunder():
    """Protects people who look at a trace on a machine without either, and the time that these commands take."""
    script = """
import sys
sys.modules["torch"] = sys.modules["thunder"] = None
from shapetrace_rs import cli
for words in (
    ["stat", "before.txt"],
    ["opt", "before.txt", "-o", "after.trace"],
    ["show", "after.trace"],
    ["verify", "after.trace"],
    ["diff", "before.txt", "before.txt"],
):
    assert cli.main(words) == 0, words
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


# record

PROGRAM = """\
import warnings; warnings.simplefilter("ignore")
import sys, torch, thunder
compiled = thunder.jit(lambda x: torch.sin(x) + len(sys.argv), cache="symbolic values")
compiled(torch.ones(2, 3))
print(sys.argv[1:])
"""


def test_record_keeps_every_trace_before_and_after(shapetrace, tmp_path):
    Path("program.py").write_text(PROGRAM)
    done = shapetrace("record", "-o", "traces", "program.py", "--flag")
    assert (done.returncode, done.stdout) == (0, "['--flag']\n"), done.stderr
    index = json.loads(Path("traces/index.json").read_text())
    calls = index["calls"]
    assert calls
    assert index["versions"]["lightning-thunder"]
    for call in calls:
        before, after = (shapetrace_rs.load(Path("traces", call[when])) for when in ("before", "after"))
        assert len(before.bound_symbols) == call["record"]["ops_in"]
        assert len(after.bound_symbols) == call["record"]["ops_out"]
        # What the optimizer did in the program it does to the file.
        assert cli.main(["opt", "-q", f"traces/{call['before']}", "-o", "again.trace"]) == 0
        assert cli.main(["diff", "--program", f"traces/{call['after']}", "again.trace"]) == 0
    assert f"{len(calls)} calls, {2 * len(calls)} traces in " in done.stderr
    # As the documents have it.
    assert calls[0]["before"] == "0001-prologue-before.trace"
    assert sorted(path.name for path in Path("traces").iterdir()) == sorted(
        ["index.json", *(call[when] for call in calls for when in ("before", "after"))]
    )


def test_record_makes_one_file_to_send(shapetrace):
    Path("program.py").write_text(PROGRAM)
    done = shapetrace("record", "-o", "bug.zip", "--quiet", "--most-calls", "2", "program.py")
    assert (done.returncode, done.stderr) == (0, "")
    with zipfile.ZipFile("bug.zip") as archive:
        index = json.loads(archive.read("index.json"))
        kept = [call[when] for call in index["calls"] for when in ("before", "after") if when in call]
        assert sorted(archive.namelist()) == sorted(["index.json", *kept])
        assert len(kept) == 4
        assert len(index["calls"]) > 2
        assert shapetrace_rs.loads(archive.read(kept[0])).bound_symbols
    assert sorted(path.name for path in Path().iterdir()) == ["before.txt", "broken.txt", "bug.zip", "program.py"]


def test_record_leaves_the_traces_where_they_are_found_if_the_process_dies(shapetrace):
    Path("program.py").write_text(PROGRAM + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n")
    done = shapetrace("record", "-o", "bug.zip", "program.py")
    assert done.returncode < 0
    assert not Path("bug.zip").exists()
    index = json.loads(Path("bug.zip.traces/index.json").read_text())
    assert len(index["calls"]) > 2
    assert shapetrace_rs.load("bug.zip.traces/0001-prologue-before.trace").bound_symbols
    # Nothing is mixed with that.
    again = shapetrace("record", "-o", "bug.zip", "program.py")
    assert again.returncode == 2
    assert "bug.zip.traces: the directory is not empty" in again.stderr


def test_record_lets_the_program_go_on_where_no_trace_can_be_written(shapetrace):
    Path("program.py").write_text("import shutil; shutil.rmtree('traces')\n" + PROGRAM)
    done = shapetrace("record", "-o", "traces", "program.py")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert "traces: No such file or directory\n" in done.stderr
    assert "calls lack a trace, the first is call 1: " in done.stderr
    assert "0001-prologue-before.trace: No such file or directory" in done.stderr


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError(), KeyError("a")])
def test_a_keeper_does_not_end_a_compile(error, tmp_path, monkeypatch):
    def fail(path, data):
        raise type(error)(*error.args)

    keeper = TraceKeeper(tmp_path)
    recording = Recording(None, None, keeper=keeper)
    monkeypatch.setattr(files, "write_whole", fail if isinstance(error, OSError) else files.write_whole)
    monkeypatch.setattr(files, "dumps", files.dumps if isinstance(error, OSError) else lambda trace: fail(trace, b""))
    open_recording(recording)
    try:
        with shapetrace_rs.enabled():
            assert thunder.jit(lambda x: x + 1)(torch.zeros(1)) == 1
    finally:
        close_recording(recording)
    assert len(recording) == len(keeper.calls) == len(keeper.missing()) > 0
    assert all("before_missing" in call and "after_missing" in call for call in keeper.calls)
    words = "No space left" if isinstance(error, OSError) else type(error).__name__
    assert words in keeper.missing()[0][1]
    if isinstance(error, OSError):
        with pytest.raises(OSError, match="No space left"):
            keeper.write_index()


def test_the_index_takes_time_linear_in_the_calls(dead_code_trace, tmp_path, monkeypatch):
    written = Counter()
    monkeypatch.setattr(files, "write_whole", lambda path, data: written.update({path.name: len(data)}))
    with shapetrace_rs.enabled(), shapetrace_rs.record_calls() as recording:
        thunder.core.transform_common.dce(dead_code_trace)
    (record,) = recording

    def bytes_of_index(calls):
        written.clear()
        keeper = TraceKeeper(tmp_path, most_calls=0)
        for _ in range(calls):
            keeper.keep_output(keeper.keep_input(dead_code_trace), record, dead_code_trace)
        keeper.write_index()
        return written["index.json"]

    assert bytes_of_index(1_000) < 13 * bytes_of_index(100)


def test_record_keeps_what_led_to_a_failure(shapetrace):
    """Protects the purpose: a program that dies in its compile leaves the traces up to there."""
    Path("program.py").write_text(PROGRAM + "raise SystemExit(3)\n")
    done = shapetrace("record", "-o", "traces", "program.py")
    assert done.returncode == 3
    assert json.loads(Path("traces/index.json").read_text())["calls"]


def test_record_tells_of_a_trace_that_no_file_can_hold(shapetrace):
    Path("program.py").write_text(
        PROGRAM.replace(
            "compiled = ",
            "executor = thunder.extend.OperatorExecutor('own', version='1')\n"
            "operation = executor.register_operator('own', meta=lambda x: x, fn=lambda x: x)\n"
            "from thunder.core.transforms import Transform\n"
            "compiled = ",
        )
        .replace("torch.sin(x)", "operation(x)")
        .replace('cache="symbolic values"', "executors=[executor]")
    )
    done = shapetrace("record", "-o", "traces", "program.py")
    assert done.returncode == 0, done.stderr
    assert "calls lack a trace, the first is call" in done.stderr
    assert "the executor own, which is not registered" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["record"], "has to be given"),
        (["record", "-o", "traces", "absent.py"], "absent.py"),
        (["record", "-o", "before.txt", "program.py"], "it is no directory"),
        (["record", "-o", "full", "program.py"], "the directory is not empty"),
        (["record", "-o", "absent/bug.zip", "program.py"], "absent"),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, list) else None,
)
def test_record_says_what_it_cannot_do_before_the_program_runs(words, message, capsys):
    Path("program.py").write_text("raise SystemExit('it ran')\n")
    Path("full").mkdir()
    Path("full", "file").write_text("")
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err
    assert not Path("traces").exists()


@pytest.mark.parametrize("command", ["run", "record", "explain"])
def test_a_module_that_does_not_exist_is_all_that_is_said(command, shapetrace):
    before = sorted(Path().iterdir())
    done = shapetrace(command, *(["--summary"] if command == "run" else []), "-m", "absent_module")
    assert done.returncode == 2
    assert done.stderr == f"shapetrace {command}: No module named absent_module, or it cannot be executed\n"
    assert sorted(Path().iterdir()) == before


def test_record_says_that_nothing_was_compiled(shapetrace):
    Path("program.py").write_text("print('hello')\n")
    done = shapetrace("record", "-o", "traces", "program.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "compiled nothing with thunder" in done.stderr
