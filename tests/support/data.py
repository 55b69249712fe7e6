"""Where public data sets lie for tests, and the skip where they don't. The project doesn't contain them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[3] / "shared" / "data"


def data_folder() -> Path:
    """``$ISENTROPE_DATA``, or ``shared/data`` beside the repository; the test is skipped where it isn't there."""
    folder = Path(os.environ.get("ISENTROPE_DATA") or _BESIDE)
    if not folder.is_dir():
        pytest.skip(f"the public data sets are not in {folder}; set ISENTROPE_DATA to the folder that holds them")
    return folder


def data_file(name: str) -> Path:
    """A file of that folder; the test is skipped where it isn't there."""
    path = data_folder() / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return path
