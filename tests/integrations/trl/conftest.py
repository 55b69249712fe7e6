"""These tests need TRL, which belongs to an environment of its own beside verl's."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("trl") else ["test_*.py"]
