"""Studies are read whole or refused with everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.errors import StudyError
from isentrope.study import load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))

WHOLE = """
about = "Two methods."
seeds = [0, 1]
overrides = ["steps=40"]
table = ["last(entropy/mean)", "final(pass@1)"]

[arms.grpo]
[arms.kl_cov]
overrides = ["objective.fraction=0.05"]

[[claims]]
says = "KL-Cov keeps more"
measure = "last(entropy/mean)"
arm = "kl_cov"
over = "grpo"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_study_is_what_its_file_says(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, WHOLE), ["update.learning_rate=1e-4"])
    assert study.name == "study"
    assert study.arm_names() == ["grpo", "kl_cov"]
    # The recipe of an arm without one has its name; the command line comes last.
    assert study.arms[1].recipe == "kl_cov"
    assert study.arms[1].overrides == ("steps=40", "objective.fraction=0.05", "update.learning_rate=1e-4")
    [claim] = study.claims
    assert (claim.compare, claim.direction, claim.value) == ("difference", "greater", 0.0)
    assert study.record == ("entropy/mean", "reward/mean")


def test_seeds_and_steps_scale_from_the_command_line(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, WHOLE), ["seeds=[4, 5, 6]", "steps=80"])
    assert study.seeds == (4, 5, 6)
    assert study.arms[0].overrides[-1] == "steps=80"


def test_schedules_cross_the_arms(tmp_path: Path) -> None:
    text = """
    seeds = [0]
    overrides = ["steps=40"]
    [arms]
    plain = { recipe = "grpo", schedules = false }
    bonus = { recipe = "entropy_bonus", overrides = ["controller.name=pid", "controller.actuator=entropy_bonus"] }
    [schedules]
    constant = ["schedule.name=constant", "schedule.value=0.3"]
    falling = ["schedule.name=linear", "schedule.start=0.4", "schedule.end=0.1"]
    """
    study = load_study(write(tmp_path, text))
    assert study.arm_names() == ["plain", "bonus-constant", "bonus-falling"]
    assert study.arms[2].overrides[-1] == "schedule.end=0.1"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [0, 1]", "", "seeds = None: give a list of different whole numbers"),
        ("seeds = [0, 1]", "seeds = [1, 1]", r"seeds = \[1, 1\]: give a list of different"),
        ("seeds = [0, 1]", "seeds = [true]", r"seeds = \[True\]"),
        ("seeds = [0, 1]", "seeds = [0]", "a paired interval needs two seeds"),
        ("about =", "abuot =", "abuot: no such key. Did you mean about?"),
        ('about = "Two methods."', "about = 3", "about = 3: give a text"),
        ('overrides = ["steps=40"]', 'overrides = "steps=40"', "overrides = 'steps=40': give a list of texts"),
        ("steps=40", "stpes=40", r"(?s)arms.grpo: .*mean steps\?"),
        ("steps=40", "seed=40", "seed=40 is set by the study; take it out"),
        ("last(entropy/mean)", "lest(entropy/mean)", "there is no 'lest'"),
        ("[arms.kl_cov]", "[arms.kl_vco]", "no recipe 'kl_vco'.*Did you mean kl_cov"),
        ("[arms.grpo]", '[arms."../grpo"]\nrecipe = "grpo"', r"arms.\.\./grpo: a name has letters"),
        ("[arms.grpo]", "[arms]\ngrpo = 3", "arms.grpo = 3: give a table"),
        (
            'overrides = ["objective',
            'override = ["objective',
            "arms.kl_cov.override: no such key. Did you mean overrides?",
        ),
        ('arm = "kl_cov"', 'arm = "klcov"', "claim 1: arm = 'klcov': there is no such arm; there are grpo, kl_cov"),
        ('over = "grpo"', "", "claim 1: value = None: give the number"),
        ('over = "grpo"', 'over = "grpo"\nvalue = "0"', "claim 1: value = '0': give the number"),
        ('over = "grpo"', 'over = "grpo"\ncompare = "logs"', "claim 1: compare = 'logs': one of difference, ratio"),
        ('over = "grpo"', 'over = "grpo"\ndirection = "up"', "claim 1: direction = 'up': one of greater, less"),
        ('over = "grpo"', 'over = "grpo"\nthan = 3', "claim 1: than: no such key"),
        (
            'over = "grpo"',
            'over = "grpo"\ncompare = "ratio"\nvalue = 0',
            "claim 1: value = 0: a ratio is compared with",
        ),
        ('says = "KL-Cov keeps more"', "", "claim 1: says is missing"),
        ('measure = "last(entropy/mean)"\n', "", "claim 1: measure None: give NAME"),
        ("[[claims]]", "[claims]", r"claims: give \[\[claims\]\] tables"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(StudyError, match=message):
        load_study(write(tmp_path, WHOLE.replace(old, new)))


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    text = WHOLE.replace("about", "abuot").replace("[0, 1]", "[]").replace("steps=40", "stpes=40")
    with pytest.raises(StudyError, match="5 problems"):
        load_study(write(tmp_path, text))


@pytest.mark.parametrize(("text", "message"), [("seeds = [", "isn't TOML"), ("", "arms is missing")])
def test_no_study_at_all(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        load_study(write(tmp_path, text))


def test_a_missing_file_and_seeds_that_are_no_list(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="can't be read: No such file"):
        load_study(tmp_path / "none.toml")
    with pytest.raises(StudyError, match=r"seeds=\[: give a list"):
        load_study(write(tmp_path, WHOLE), ["seeds=["])


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_studies_of_the_repository_are_whole(path: Path) -> None:
    study = load_study(path)
    assert study.about
    assert study.claims
    assert study.table
    assert len(study.seeds) >= 3


def test_there_are_studies() -> None:
    assert STUDIES
