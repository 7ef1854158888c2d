"""The group of tests that run on a GPU, its options, and the table of figures at its end.

pytest tests/cuda                   on the GPU; skipped, with the reason, where there is none
pytest tests/cuda --device cpu      the same tests on the CPU with small sizes, to know that they work
"""

from __future__ import annotations

import json
import platform
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from cuda_cases import Figures, environment, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE = Path(__file__).parent
_FIGURES = pytest.StashKey[list[Figures]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this group; they are there when pytest is given this directory."""
    group = parser.getgroup("cuda", "tests on a GPU")
    group.addoption("--device", default="cuda", help="cuda, cuda:1, ...; cpu tries the tests themselves, small (cuda)")
    group.addoption("--layers", type=int, default=4, metavar="N", help="of the GPT whose figures are taken (4)")
    group.addoption("--require-device", action="store_true", help="fail, rather than skip, without the device")
    group.addoption("--figures", type=Path, metavar="FILE", help="also write all figures to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare for figures."""
    config.stash[_FIGURES] = []


def _device(config: pytest.Config) -> str:
    # Without its directory on the command line, pytest meets this file too late for options.
    return str(config.getoption("--device", default="cuda"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this directory, and skip them all if they cannot run on the device."""
    reason = why_not(_device(config))
    if reason is not None and config.getoption("--require-device", default=False):
        raise pytest.UsageError(reason)
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cuda)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"{reason}; scripts/test_cuda.sh runs these tests"))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device to run on."""
    name = _device(request.config)
    with warnings.catch_warnings():
        # What thunder, torch and nvFuser remark about versions of each other is not the matter here.
        warnings.simplefilter("ignore")
        yield name
    if name != "cpu":
        torch.cuda.empty_cache()


@pytest.fixture
def layers(request: pytest.FixtureRequest, device: str) -> int:
    """How many layers the GPT has whose figures are taken."""
    return 1 if device == "cpu" else int(request.config.getoption("--layers", default=4))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[Figures]:
    """Where figures go."""
    return request.config.stash[_FIGURES]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show all figures, and write them to a file."""
    figures = config.stash[_FIGURES]
    if not figures:
        return
    device = _device(config)
    facts = environment(device) | {"python": platform.python_version()}
    terminalreporter.section("figures")
    terminalreporter.write_line(", ".join(f"{name} {value}" for name, value in facts.items()))
    terminalreporter.write_line(
        "thunder alone / with the drop-in, and the second over the first; one process, in turns"
    )
    for line in Figures.table(figures):
        terminalreporter.write_line(line)
    path = config.getoption("--figures", default=None)
    if path is not None:
        document = {"environment": facts, "figures": [entry.as_dict() for entry in figures]}
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        terminalreporter.write_line(f"All figures are in {path}.")
