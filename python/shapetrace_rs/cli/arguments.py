"""Kinds of arguments that several commands have."""

from __future__ import annotations

import argparse

__all__ = ["whole_number"]


def whole_number(word: str) -> int:
    """A number of things.

    Args:
        word: What was given on the command line.

    Returns:
        The number, not below 0.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    try:
        number = int(word)
    except ValueError:
        number = -1
    if number < 0:
        message = f"{word!r} is no whole number from 0 on"
        raise argparse.ArgumentTypeError(message)
    return number
