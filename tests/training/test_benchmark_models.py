"""What the first argument of `isentrope evaluate` stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.errors import RunFolderError
from isentrope.training import train
from isentrope.training.benchmark_models import find_source
from tests.training.test_loop import small


def test_a_run_without_such_a_checkpoint_says_which_there_are(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(small(steps=2, evaluation={"every": 0, "k": [1]}), folder)
    assert find_source(str(folder)).step == 2
    assert find_source(str(folder), checkpoint="1").step == 1
    assert find_source(str(folder), checkpoint="start").step == 0
    with pytest.raises(RunFolderError, match="no best checkpoint yet; there are steps 1, 2"):
        find_source(str(folder), checkpoint="best")  # two steps are no ten
    with pytest.raises(RunFolderError, match="allowed are start, latest, best and the steps there are: 1, 2"):
        find_source(str(folder), checkpoint="last")
    for checkpoint in (folder / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / checkpoint.name)
    with pytest.raises(RunFolderError, match="has no checkpoint yet; wait for one, or give start"):
        find_source(str(folder))
    assert find_source(str(folder), checkpoint="start").step == 0


def test_a_model_has_no_checkpoints() -> None:
    assert find_source("builtin:tiny").step is None
    with pytest.raises(RunFolderError, match="no run's folder"):
        find_source("builtin:tiny", checkpoint="best")
