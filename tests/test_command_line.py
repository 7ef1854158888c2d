"""The command line, most of it in processes of its own, as users start it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from shapetrace_rs import cli

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

Shapetrace = Callable[..., "subprocess.CompletedProcess[str]"]


def write(path: Path, source: str) -> Path:
    """Write a program, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return path


def test_a_script_sees_what_python_would_show_it(shapetrace: Shapetrace, tmp_path: Path) -> None:
    """Protects unmodified scripts: their words, name, file, path and exit code."""
    write(tmp_path / "programs" / "neighbour.py", "VALUE = 7\n")
    write(
        tmp_path / "programs" / "script.py",
        "import sys, pickle, neighbour\n"
        "class Thing: pass\n"
        "assert sys.modules['__main__'].Thing is Thing\n"
        "assert type(pickle.loads(pickle.dumps(Thing()))) is Thing\n"
        "assert 'torch' not in sys.modules, 'torch must not be imported before the script does it'\n"
        "print(sys.argv, __name__, __file__, neighbour.VALUE, __package__, __spec__)\n"
        "sys.exit(3)\n",
    )
    done = shapetrace("run", "programs/script.py", "--level", "7", "-m", "x")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "['programs/script.py', '--level', '7', '-m', 'x'] __main__ programs/script.py 7 None None\n"


def test_a_module_sees_what_python_would_show_it(shapetrace: Shapetrace, tmp_path: Path) -> None:
    """Protects `-m`: packages with a `__main__`, relative imports, the full path in `sys.argv`."""
    write(tmp_path / "package" / "__init__.py", "")
    write(tmp_path / "package" / "part.py", "VALUE = 7\n")
    main = write(
        tmp_path / "package" / "__main__.py",
        "import sys\nfrom .part import VALUE\nprint(sys.argv, __name__, VALUE, __package__, __spec__.name)\n",
    )
    done = shapetrace("run", "--level", "compat", "-m", "package", "--flag")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[{str(main)!r}, '--flag'] __main__ 7 package package.__main__\n"


def test_a_traceback_begins_with_the_script(shapetrace: Shapetrace, tmp_path: Path) -> None:
    """Protects readers of tracebacks from frames that are not theirs, and the exit code of a failure."""
    write(tmp_path / "script.py", "def fail():\n    raise KeyError('mine')\nfail()\n")
    done = shapetrace("run", "script.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'script.py", line 3, in <module>' in lines[1]
    assert lines[-1] == "KeyError: 'mine'"
    assert "shapetrace_rs" not in done.stderr


def test_a_syntax_error_is_shown_as_python_shows_it(shapetrace: Shapetrace, tmp_path: Path) -> None:
    """Protects against a traceback through this command for a script that cannot even be compiled."""
    write(tmp_path / "script.py", "x = (\n")
    done = shapetrace("run", "script.py")
    assert done.returncode == 1
    assert 'script.py", line 1' in done.stderr
    assert "SyntaxError" in done.stderr
    assert "shapetrace_rs" not in done.stderr


def test_thunder_in_a_script_uses_the_drop_in(shapetrace: Shapetrace, tmp_path: Path) -> None:
    """Protects the purpose of `run`: installed from the first compile on, and a summary at the end."""
    write(
        tmp_path / "script.py",
        "import warnings; warnings.simplefilter('ignore')\n"
        "import thunder, torch, shapetrace_rs\n"
        "from thunder.executors import passes\n"
        "assert shapetrace_rs.installed()\n"
        "assert thunder.dce is passes.dce is thunder.core.transform_common.dce\n"
        "assert thunder.dce.__module__.startswith('shapetrace_rs'), thunder.dce\n"
        "module = thunder.core.transform_common\n"
        "assert type(module.__loader__) is type(module.__spec__.loader) is type(thunder.__loader__)\n"
        "x = torch.ones(2)\n"
        "assert torch.equal(thunder.jit(lambda x: torch.sin(x) + 1)(x), torch.sin(x) + 1)\n"
        "assert shapetrace_rs.counters().calls > 0\n"
        "shapetrace_rs.uninstall()\n"
        "assert thunder.dce.__module__ == 'thunder.core.transform_common'\n",
    )
    done = shapetrace("run", "--strict", "--summary", "script.py")
    assert done.returncode == 0, done.stderr
    assert "calls of dead code elimination in" in done.stderr
    assert "ops removed" in done.stderr
    assert "fell back" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "absent.py"), "can't open file 'absent.py'"),
        (("run", "-m", "absent_module"), "No module named absent_module"),
        (("run", "-m", "json"), "No module named json.__main__"),
        (("run",), "has to be given"),
        (("run", "--strict"), "has to be given"),
        (("run", "-m"), "a module has to be given"),
        (("run", "--levle", "script.py"), "unrecognized arguments: --levle"),
        (("run", "--level", "fast", "script.py"), "invalid choice: 'fast'"),
    ],
)
def test_what_cannot_be_run(shapetrace: Shapetrace, words: tuple[str, ...], message: str) -> None:
    """Protects users from tracebacks for a slip of the keyboard."""
    done = shapetrace(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_import_error_of_the_program_is_its_own(shapetrace: Shapetrace, tmp_path: Path) -> None:
    """Protects against `No module named` about the program when one of its dependencies is missing."""
    write(tmp_path / "package" / "__init__.py", "import absent_dependency\n")
    write(tmp_path / "package" / "__main__.py", "")
    done = shapetrace("run", "-m", "package.__main__")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'absent_dependency'" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], "examples:"),
        (["run", "--help"], "python -m my_package.train --epochs 3"),
        (["demo", "--help"], "--cache"),
    ],
)
def test_help_teaches(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects the help texts, which argparse formats and can break."""
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Protects what people paste into reports."""
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "lightning-thunder 0.2" in out
    assert "torch 2" in out
    assert "python 3" in out


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Protects the first contact."""
    assert cli.main([]) == 2
    assert "demo" in capsys.readouterr().out
