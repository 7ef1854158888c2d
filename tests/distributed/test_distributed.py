"""Traces of distributed jobs: two ranks, on the CPU, each a process of its own with a hash seed of its own.

A collective that one rank lacks, or does in another order, lets all ranks wait for ever; so nothing here is about
speed, and everything about thunder's ops that communicate being where thunder alone leaves them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
SECONDS = 200


def _script() -> Any:
    """The script of a rank, for its names; it is not run here."""
    spec = importlib.util.spec_from_file_location("shapetrace_test_rank", HERE / "rank.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="needs a torch with torch.distributed and its backend gloo, for ranks on the CPU",
)
SCRIPT = _script() if torch.distributed.is_available() else None
RANKS = range(SCRIPT.RANKS) if SCRIPT else ()
SCENARIOS = list(SCRIPT.SCENARIOS) if SCRIPT else []

# A slice of the input that only this rank takes: thunder itself gives each rank a trace of its own.
DIFFER_BY_RANK = {"tensor parallel"}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw, by scenario."""
    directory = tmp_path_factory.mktemp("ranks")
    processes = []
    for rank in RANKS:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE.parent)]),
            "PYTHONHASHSEED": str(rank + 1),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            # A machine may have no name that leads to itself.
            "GLOO_SOCKET_IFNAME": "lo",
        }
        with (directory / f"{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, HERE / "rank.py", str(rank), directory / "rendezvous", directory / f"{rank}.pt"],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        end = time.monotonic() + SECONDS
        # One that failed lets the other wait: then there is nothing to wait for.
        while any(p.poll() is None for p in processes) and not any(p.poll() for p in processes):
            assert time.monotonic() < end, f"the ranks are not done after {SECONDS} seconds: {_logs(directory)}"
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * len(processes), _logs(directory)
    return [torch.load(directory / f"{rank}.pt", weights_only=True) for rank in RANKS]


def _logs(directory: Path) -> str:
    return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(directory.glob("*.log")))


@pytest.mark.parametrize("name", SCENARIOS)
def test_dead_code_elimination_leaves_communication_alone(name: str, ranks: list[dict[str, Any]]) -> None:
    """In each call the ops that communicate stay, in their order, with their values; dead ones go as with thunder."""
    for seen in ranks:
        passes = seen[name]["ours"]["passes"]
        assert any(before for before, _, _ in passes)
        for before, after, stock in passes:
            assert after == stock
            left = iter(before)
            assert all(op in left for op in after), "reordered"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_is_communicated_as_with_thunder_alone(name: str, ranks: list[dict[str, Any]]) -> None:
    """The final traces have the same collectives and waits in the same order, and so has what is executed."""
    for seen in ranks:
        stock, ours = seen[name]["stock"], seen[name]["ours"]
        assert _without_names(ours["communication"]) == _without_names(stock["communication"])
        assert ours["executed"] == stock["executed"]
        assert ours["executed"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_ranks_have_the_same_traces(name: str, ranks: list[dict[str, Any]]) -> None:
    """Each trace reads the same in both ranks, whose hash seeds differ, and both communicate in step."""
    first, second = (seen[name]["ours"] for seen in ranks)
    assert first["communication"] == second["communication"]
    assert first["executed"] == second["executed"]
    if name not in DIFFER_BY_RANK:
        assert len(first["texts"]) > 3
        assert first["texts"] == second["texts"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_results_and_gradients_are_those_of_thunder_alone(name: str, ranks: list[dict[str, Any]]) -> None:
    """Not a bit differs from thunder alone, and both agree with what eager PyTorch computes without communication."""
    for seen in ranks:
        stock, ours = seen[name]["stock"], seen[name]["ours"]
        assert set(ours["values"]) == set(stock["values"])
        for key, value in ours["values"].items():
            assert torch.equal(value, stock["values"][key]), key
        assert ours["expected"]
        for key, value in ours["expected"].items():
            torch.testing.assert_close(ours["values"][key], value, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_final_traces_are_well_formed(name: str, ranks: list[dict[str, Any]]) -> None:
    """Neither thunder's checker nor the verifier has anything to say about what runs in the end."""
    for seen in ranks:
        assert seen[name]["ours"]["findings"] == []


def test_one_compile_serves_several_shapes(ranks: list[dict[str, Any]]) -> None:
    """With symbolic values, the second shape runs what was compiled for the first."""
    for seen in ranks:
        assert seen["symbolic values"]["ours"]["misses"] == 1


def test_what_is_communicated_is_what_was_asked_for(ranks: list[dict[str, Any]]) -> None:
    """A look at what the other tests compare: two equal reductions stay two, and one in vain goes with thunder, too."""
    for seen in ranks:
        ours = seen["in a function"]["ours"]
        assert _count("all_reduce", ours["executed"]) == 3
        assert max(_count("all_reduce", before) for before, _, _ in ours["passes"]) == 4
        ddp = seen["ddp"]["ours"]
        weights = len([key for key in ddp["values"] if key != "output"])
        assert [op.split()[0] for op in ddp["communication"][1]] == ["all_reduce"] * weights + ["wait"] * weights


def _count(kind: str, ops: list[str]) -> int:
    return [op.split()[0] for op in ops].count(kind)


def _without_names(traces: list[list[str]]) -> list[list[str]]:
    """Ops by kind and shapes alone: names depend on how many values were made before."""
    return [[" ".join(w for w in op.split() if not w.endswith(":")) for op in trace] for trace in traces]
