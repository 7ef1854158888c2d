"""Tries an installed package as a user meets it; to be run with the interpreter that it is installed for.

    python smoke.py             without thunder and torch: what says that they are missing, and what needs neither
    python smoke.py --thunder   with both: import, install, compile, explain, command line

Run it outside of the source tree. It needs nothing but the standard library and the package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from importlib import metadata, util
from pathlib import Path

SCRIPT = "import sys\nprint('script', sys.argv[1:], __name__)\n"
TRACE = """\
trace(%x) {
  %y = ltorch.f(%x) {
    %dead = prims.sin(%x)
    %y = prims.cos(%x)
  }
  return %y
}
"""
COMPILING_SCRIPT = """\
import torch, thunder

def function(x):
    torch.sin(x)
    return x.reshape(-1, 2) + 1

x = torch.ones(4)
assert torch.equal(thunder.jit(function)(x), function(x))
"""


def check(what: str, holds: object) -> None:
    """Say what was tried; stop if it does not hold."""
    print(f"{'ok   ' if holds else 'WRONG'} {what}", flush=True)
    if not holds:
        sys.exit(1)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """The answer of `python -m shapetrace_rs`."""
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-m", "shapetrace_rs", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def installed_where() -> Path:
    """The folder of the installed package."""
    spec = util.find_spec("shapetrace_rs")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def installed_right() -> None:
    """Check what belongs to the installation, whatever else is there."""
    check("installed among the packages of this interpreter", "site-packages" in installed_where().parts)
    check(
        "markers and stubs for type checkers", all((installed_where() / n).exists() for n in ("py.typed", "_core.pyi"))
    )
    licences = [str(file) for file in metadata.files("shapetrace-rs") or () if "licenses" in str(file)]
    check("the licence, and those of the crates inside", len(licences) > 1)
    extras = set(metadata.metadata("shapetrace-rs").get_all("Provides-Extra") or ())
    check("extras", {"demo", "report", "dev", "docs", "test", "lint"} <= extras)
    needed = [line for line in metadata.requires("shapetrace-rs") or () if "extra ==" not in line]
    check("two dependencies and no more", len(needed) == 2)


def without_thunder(directory: Path) -> None:
    """Check the package in an environment of its own."""
    if all(util.find_spec(name) is not None for name in ("thunder", "torch")):
        sys.exit("thunder and torch are installed here; use --thunder")
    import shapetrace_rs
    from shapetrace_rs import _core

    check(
        "import, and what is public is there",
        set(shapetrace_rs.__all__) - set(dir(shapetrace_rs)) <= {"OptimizeTransform"},
    )
    check("the native part answers", _core.passes() and _core.__version__ == shapetrace_rs.__version__)
    check("options are checked", shapetrace_rs.OptimizeOptions(level="compat").level == "compat")
    check("counters begin at nothing", shapetrace_rs.counters().calls == 0)
    try:
        shapetrace_rs.install()
    except shapetrace_rs.UnsupportedVersionError as error:
        check("without thunder, install() says what to install", "pip install 'lightning-thunder" in str(error))
    else:
        check("without thunder, install() is an error", False)
    done = command("version")
    check("command line: version", f"shapetrace-rs {shapetrace_rs.__version__}" in done.stdout)
    done = command("run", "--help")
    check("command line: help", done.returncode == 0 and "--keep-random" in done.stdout)
    (directory / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = command("run", str(directory / "script.py"), "--level")
    check("command line: a script that needs no thunder runs", done.stdout == "script ['--level'] __main__\n")
    files_without_thunder(directory)
    entry = Path(sys.executable).with_name("shapetrace")
    done = subprocess.run([entry, "--version"], capture_output=True, text=True, check=False)
    check("the command `shapetrace` is there", "shapetrace-rs" in done.stdout)


def files_without_thunder(directory: Path) -> None:
    """Check the commands on trace files, which need neither thunder nor torch."""
    before, after = str(directory / "before.txt"), str(directory / "after.trace")
    Path(before).write_text(TRACE, encoding="utf-8")
    done = command("opt", before, "-o", after)
    check("command line: opt", done.returncode == 0 and "2 ops -> 2, inside other ops 2 -> 1" in done.stderr)
    check("command line: stat", '"inside": 1' in command("stat", "--json", after).stdout)
    check("command line: show", "%dead" not in command("show", after).stdout)
    check("command line: verify", command("verify", after).returncode == 0)
    done = command("diff", before, after)
    check("command line: diff", done.returncode == 1 and "-    %dead = prims.sin(%x)" in done.stdout)


def with_thunder(directory: Path) -> None:
    """Check the package beside thunder and torch."""
    import shapetrace_rs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import thunder
    import torch

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        torch.sin(x)
        y = torch.nn.functional.linear(x.reshape(-1, width), w)
        return y.reshape(batch, length, -1)

    x, w = torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True)
    expected = function(x, w)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), w)
    shapetrace_rs.install(strict=True)
    check("install()", shapetrace_rs.installed())
    for cache in ("constant values", "symbolic values"):
        actual = thunder.jit(function, cache=cache)(x, w)
        torch.testing.assert_close(actual, expected)
        if actual.requires_grad:
            torch.testing.assert_close(torch.autograd.grad(actual.square().sum(), w)[0], expected_gradient)
        check(f"jit with {cache}: as eager PyTorch", True)
    totals = shapetrace_rs.counters()
    check("the optimizer did the work", totals.calls > 0 and totals.ops_removed > 0 and totals.fallbacks == 0)
    shapetrace_rs.uninstall()
    check("uninstall()", not shapetrace_rs.installed())
    compiled = thunder.jit(function, transforms=[shapetrace_rs.OptimizeTransform(strict=True)])
    torch.testing.assert_close(compiled(x, w), expected)
    check("as a transform", True)
    report = shapetrace_rs.explain(thunder.last_traces(compiled)[0])
    check("explain: what was removed, and why", report.removed and "<html" in report.to_html())
    check("nothing is wrong with the final trace", not shapetrace_rs.verify(thunder.last_traces(compiled)[-1]))
    (directory / "script.py").write_text(COMPILING_SCRIPT, encoding="utf-8")
    done = command("run", "--strict", "--summary", str(directory / "script.py"))
    check("command line: run a script that compiles", done.returncode == 0 and "ops removed" in done.stderr)
    page = directory / "report.html"
    done = command("explain", "--output", str(page), str(directory / "script.py"))
    check("command line: explain writes a report", done.returncode == 0 and "<html" in page.read_text(encoding="utf-8"))
    trace, kept = thunder.last_traces(compiled)[-1], directory / "last.trace"
    shapetrace_rs.save(trace, kept)
    check("a trace comes back from a file", str(shapetrace_rs.load(kept)) == str(trace))
    done = command("version")
    check("command line: version", "lightning-thunder 0" in done.stdout)


if __name__ == "__main__":
    installed_right()
    with tempfile.TemporaryDirectory() as temporary:
        (with_thunder if sys.argv[1:] == ["--thunder"] else without_thunder)(Path(temporary))
    print("all as it should be")
