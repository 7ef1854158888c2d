"""Which versions of lightning-thunder and torch this package works with, checked before either is imported.

An unsuitable pair fails deep inside thunder's own import, with a message about something else. Reading the
metadata of the installed distributions costs no import, so the reason can be given in words first.
"""

from __future__ import annotations

import re
from importlib import metadata, util

from .errors import UnsupportedVersionError

__all__ = ["check_versions", "installed_version"]

OLDEST_THUNDER = (0, 2, 6)
THUNDER_BELOW = (0, 3, 0)
OLDEST_TORCH = (2, 7, 1)
TORCH_BELOW = (2, 13, 0)

_ADVICE = "Install a pair that works together: pip install 'lightning-thunder==0.2.6' 'torch==2.9.1'"


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, without importing it.

    Args:
        distribution: The distribution's name, such as `"lightning-thunder"`.

    Returns:
        Its version, or `None` when no metadata of it can be found.
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_versions() -> None:
    """Check that lightning-thunder and torch are there and can be imported together.

    A package that can be imported but has no metadata (some builds from source) is taken as suitable.

    Raises:
        UnsupportedVersionError: One of the two is missing, or its version is outside the supported range. The
            message says which, why, and what to install.
    """
    thunder_version = _require("lightning-thunder", "thunder")
    torch_version = _require("torch", "torch")

    if thunder_version is not None and not OLDEST_THUNDER <= _release(thunder_version) < THUNDER_BELOW:
        message = (
            f"shapetrace_rs works with lightning-thunder {_dotted(OLDEST_THUNDER)} and later versions below "
            f"{_dotted(THUNDER_BELOW)}, but {thunder_version} is installed. {_ADVICE}"
        )
        raise UnsupportedVersionError(message)
    if torch_version is None:
        return
    if _release(torch_version) >= TORCH_BELOW:
        message = (
            f"lightning-thunder {thunder_version or _dotted(OLDEST_THUNDER)} cannot be imported with torch "
            f"{_dotted(TORCH_BELOW)} or newer, and torch {torch_version} is installed. {_ADVICE}"
        )
        raise UnsupportedVersionError(message)
    if _release(torch_version) < OLDEST_TORCH:
        message = (
            f"lightning-thunder {thunder_version or _dotted(OLDEST_THUNDER)} needs torch "
            f"{_dotted(OLDEST_TORCH)} or newer, and torch {torch_version} is installed. {_ADVICE}"
        )
        raise UnsupportedVersionError(message)


def _require(distribution: str, module: str) -> str | None:
    """The version of a distribution that has to be there, `None` when only its module can be found."""
    version = installed_version(distribution)
    if version is None and util.find_spec(module) is None:
        message = f"shapetrace_rs needs {distribution}, which is not installed. {_ADVICE}"
        raise UnsupportedVersionError(message)
    return version


def _release(version: str) -> tuple[int, int, int]:
    """The leading numbers of a version: `(2, 9, 1)` of `"2.9.1+cu128"`, `(2, 13, 0)` of `"2.13.0a0+git1"`."""
    match = re.match(r"(?:\d+!)?(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    if match is None:
        message = f"shapetrace_rs cannot read the version number {version!r}. {_ADVICE}"
        raise UnsupportedVersionError(message)
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def _dotted(release: tuple[int, int, int]) -> str:
    """A release as people write it: `2.13` for `(2, 13, 0)`."""
    major, minor, patch = release
    return f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"
