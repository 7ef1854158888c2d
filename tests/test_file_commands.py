"""`stat`, `show`, `opt`, `verify`, `diff`, `record`: what they print, their exit codes, what they work without."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import thunder

import shapetrace_rs
from shapetrace_rs import cli

Shapetrace = Callable[..., "subprocess.CompletedProcess[str]"]

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
        (["opt", "before.txt", "-o", "absent/after.trace"], "No such file or directory"),
        (["diff", "-", "-"], "standard input can be one of the two only"),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, list) else None,
)
def test_what_cannot_be_read_or_written_is_exit_code_2(words, message, capsys):
    data = shapetrace_rs._core.TraceFile.read(BEFORE.encode()).to_bytes()
    Path("damaged.trace").write_bytes(data[:-1])
    Path("bytes.txt").write_bytes(b"tra\xffce")
    Path("words.txt").write_text("a shopping list\n")
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"shapetrace {words[0]}: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["stat", "show", "opt", "verify", "diff", "record"])
def test_help_teaches(command, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert f"shapetrace {command}" in out
    if command != "record":
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
    assert "have a trace that no file can hold, the first is call" in done.stderr
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


def test_record_says_that_nothing_was_compiled(shapetrace):
    Path("program.py").write_text("print('hello')\n")
    done = shapetrace("record", "-o", "traces", "program.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "compiled nothing with thunder" in done.stderr
