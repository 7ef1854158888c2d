"""The guard against more instructions: it reads callgrind's files right, and says so when a count grew."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Two libraries; the line behind `calls=` has what the called function took, names come once in full.
COUNTS = """\
version: 1
events: Ir
desc: Trigger: Client Request: one

ob=(1) /a/shapetrace_rs/_core.cpython-311-x86_64-linux-gnu.so
fl=(1) ???
fn=(1) run
0 100
cob=(2) /lib/libc.so.6
cfn=(2) memset
calls=3 0
0 5000
+4 20

ob=(2)
fn=(2)
0 5000
* 7
ob=(1)
fn=(3) other
-2 3
totals: 5130
"""


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("count_instructions", ROOT / "scripts" / "count_instructions.py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def counted(script, tmp_path, monkeypatch):
    """Sets what is counted, and what was recorded; runs the script."""
    monkeypatch.setattr(script, "RECORDED", tmp_path / "instructions.toml")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "check_tools", lambda _halves: None)
    monkeypatch.setattr(sys, "argv", ["count_instructions.py"])

    def run(counts, *, record=False, versions=None, fails=None):
        def count(_directory):
            if fails:
                raise script.CannotCountError(fails)
            return counts

        half = script.Half(lambda: versions or {"rustc": "1"}, count)
        monkeypatch.setattr(script, "HALVES", {"core": half})
        monkeypatch.setattr(sys, "argv", ["count_instructions.py", *(["--record"] if record else [])])
        return script.main()

    return run


def test_instructions_belong_to_the_library_that_has_them(script):
    counts = script.instructions_by_object(COUNTS)
    assert dict(counts) == {
        "/a/shapetrace_rs/_core.cpython-311-x86_64-linux-gnu.so": 123,
        "/lib/libc.so.6": 5007,
    }
    assert [path for path in counts if script.is_native_module(path)] == [next(iter(counts))]


@pytest.mark.parametrize(
    ("count", "code", "says"),
    [
        (1000, 0, None),
        (1049, 0, None),
        (951, 0, None),
        (1051, 1, "More instructions than recorded"),
        (949, 0, "Fewer instructions than recorded"),
    ],
)
def test_beyond_five_percent_it_says_so_and_more_is_a_failure(counted, capsys, count, code, says):
    assert counted({"chain": 1000}, record=True) == 0
    capsys.readouterr()
    assert counted({"chain": count}) == code
    printed = capsys.readouterr().out
    assert (says or "chain") in printed
    assert ("than recorded" in printed) == (says is not None)


@pytest.mark.parametrize("counts", [{"chain": 10, "wide": 5}, {}, {"other": 10}])
def test_what_only_one_side_has_is_a_failure(counted, counts):
    assert counted({"chain": 10}, record=True) == 0
    assert counted(counts) == 1


def test_counts_of_other_versions_are_skipped_plainly(counted, capsys):
    assert counted({"chain": 10}, record=True) == 0
    assert counted({"chain": 99}, versions={"rustc": "2"}) == 0
    assert "SKIPPED" in capsys.readouterr().out
    assert counted({"chain": 99}) == 1


@pytest.mark.parametrize(("wide", "code"), [(5_000, 0), (6_400, 0), (6_600, 1)])
def test_an_op_costs_the_same_where_many_are_inside_one_parent(counted, capsys, wide, code):
    counts = {"width-10-full": 500, "width-100-full": wide}
    assert counted(counts, record=True) == code
    assert counted(counts) == code
    assert ("grow with the width" in capsys.readouterr().out) == bool(code)


def test_when_nothing_can_be_counted_it_is_an_error_of_its_own(counted, capsys):
    assert counted({"chain": 10}, record=True) == 0
    assert counted({}, fails="not found: valgrind") == 2
    assert "not found: valgrind" in capsys.readouterr().err


def test_the_recorded_counts_are_of_the_programs_that_are_counted(script):
    recorded = script.tomllib.loads((ROOT / "benches" / "instructions.toml").read_text())
    assert recorded.keys() == script.HALVES.keys()
    for half in recorded.values():
        assert all(isinstance(count, int) and count > 0 for count in half["counts"].values()), half
