from __future__ import annotations

from collections.abc import Callable

import pytest

from support import networks


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Folder of a saved random model of a kind, made once."""
    made: dict[str, str] = {}

    def get(kind: str) -> str:
        if kind not in made:
            made[kind] = networks.save(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return get
