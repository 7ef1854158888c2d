"""Skips the tests of this group, saying why, where nvFuser cannot be imported."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from nvfuser_harness import NvFuserMissingError, nvfuser_executor

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory as skipped if there is no nvFuser."""
    ours = [item for item in items if _HERE in item.path.parents]
    if not ours:
        return
    with warnings.catch_warnings():
        # The packages remark at import that there is no GPU.
        warnings.simplefilter("ignore")
        try:
            nvfuser_executor()
        except NvFuserMissingError as error:
            reason = f"needs nvFuser: {error}; scripts/test_nvfuser.sh installs it"
            for item in ours:
                item.add_marker(pytest.mark.skip(reason=reason))
