"""Lets the tests of this folder run where neither thunder nor torch is installed."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import stand_ins

if stand_ins.missing():
    _directory = tempfile.TemporaryDirectory()
    stand_ins.write_to(Path(_directory.name))
    sys.path.append(_directory.name)
