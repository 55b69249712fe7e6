"""Puts tests/ on the import path, so that test modules share what stands in tests/support."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
