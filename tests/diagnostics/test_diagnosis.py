"""Every rule finds its own fault and nothing else, and says what it stands on."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from isentrope.diagnostics.diagnosis import RULES, diagnose
from isentrope.diagnostics.thresholds import Thresholds
from tests.support.training_logs import SimulatedLog, faulty_logs, healthy_logs, simulate

DOCUMENT = Path(__file__).parents[2] / "docs" / "diagnostics.md"
NAMES = [rule.name for rule in RULES]


def test_nothing_is_found_in_ten_healthy_runs() -> None:
    found = {name: [each.rule for each in diagnose(log).findings] for name, log in healthy_logs().items()}
    assert found == {name: [] for name in found}
    assert len(found) == 10


def test_each_of_ten_planted_faults_is_found_and_no_other() -> None:
    found = {name: [each.rule for each in diagnose(log).findings] for name, log in faulty_logs().items()}
    assert found == {name: [name] for name in NAMES}
    assert len(found) == 10


@pytest.mark.parametrize("seed", range(30, 40))
def test_noise_alone_is_no_fault(seed: int) -> None:
    assert diagnose(simulate(seed)).findings == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_finding_says_everything(name: str) -> None:
    (finding,) = diagnose(faulty_logs()[name]).findings
    assert all([finding.title, finding.evidence, finding.threshold, finding.direction, finding.refuted_by])
    assert re.search(r"\d", finding.evidence)
    assert len(finding.change) == 1
    assert finding.thin == ()


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"clip_inactive", "controller_saturated"}))
def test_a_fault_in_the_first_half_only_is_none(name: str) -> None:
    """Back to the start: what is over is not named. Two rules are left out whose fault is there from the first step on."""
    faulty = faulty_logs()[name]
    columns = {
        key: np.concatenate([values, values[:3].mean() + 0.0 * values]) for key, values in faulty.columns.items()
    }
    log = SimulatedLog(columns=columns, step=np.arange(120), kind=faulty.kind, recipe=faulty.recipe)
    assert diagnose(log).findings == ()


def test_the_change_is_in_the_settings_of_the_logs_trainer() -> None:
    collapsed = faulty_logs()["entropy_collapse"]
    texts = {}
    for kind in ("isentrope", "trl", "verl"):
        (finding,) = diagnose(replace(collapsed, kind=kind)).findings
        assert list(finding.change) == [kind]
        texts[kind] = finding.change[kind]
    assert "kl_cov" in texts["isentrope"]
    assert "epsilon_high" in texts["trl"]
    assert "actor_rollout_ref" in texts["verl"]
    # A CSV says it by its columns, or not at all.
    verl = replace(collapsed, kind="csv", raw={"train/actor/entropy": collapsed.columns["entropy/mean"]})
    trl = replace(collapsed, kind="wandb", raw={"completions/mean_length": collapsed.columns["entropy/mean"]})
    assert [list(diagnose(log).findings[0].change) for log in (verl, trl)] == [["verl"], ["trl"]]
    assert len(diagnose(replace(collapsed, kind="csv", raw={})).findings[0].change) == 3


def test_every_change_is_given_for_every_trainer() -> None:
    for rule in RULES:
        assert "" in rule.changes
        for variant in rule.changes.values():
            assert list(variant) == ["isentrope", "trl", "verl"], rule.name


def test_a_missing_column_is_said_and_not_guessed() -> None:
    log = simulate(0)
    bare = replace(log, columns={"reward/mean": log.columns["reward/mean"]}, raw={}, recipe=None)
    diagnosis = diagnose(bare)
    assert diagnosis.findings == ()
    assert [each.rule for each in diagnosis.unchecked] == NAMES
    assert all("the log has no column for" in each.reason for each in diagnosis.unchecked)
    assert diagnosis.checked == 0


def test_without_a_controller_that_is_the_reason() -> None:
    reasons = {each.rule: each.reason for each in diagnose(simulate(0)).unchecked}
    assert reasons == {"controller_saturated": "the run has no controller"}


def test_too_few_steps_are_said() -> None:
    diagnosis = diagnose(simulate(0, steps=4))
    assert diagnosis.checked == 0
    assert {each.reason for each in diagnosis.unchecked if each.rule == "entropy_collapse"} == {
        "entropy/mean is known in 4 of 4 steps, and at least 5 are needed"
    }


def test_thin_evidence_is_said() -> None:
    short = simulate(0, steps=10, **{"entropy/mean": 0.4 * 0.6 ** np.arange(10)})
    (finding,) = diagnose(short).findings
    assert finding.rule == "entropy_collapse"
    assert finding.thin == ("only 10 steps: a trend over so few may turn",)
    sparse = faulty_logs()["dead_groups"]
    column = sparse.columns["groups/informative_fraction"].copy()
    column[np.arange(60) % 3 > 0] = np.nan
    (finding,) = diagnose(replace(sparse, columns={**sparse.columns, "groups/informative_fraction": column})).findings
    assert finding.thin == ("known in 20 of 60 steps",)
    certain = simulate(0, **{"entropy/mean": 0.08 * np.exp(-0.1 * np.arange(60)) + 0.0})
    assert any("certain before training" in text for text in diagnose(certain).findings[0].thin)


def test_the_first_step_of_a_fault_is_where_it_begins() -> None:
    entropy = np.where(np.arange(60) < 25, 0.4, 0.05)
    (finding,) = diagnose(simulate(0, **{"entropy/mean": entropy})).findings
    assert (finding.rule, finding.step) == ("entropy_collapse", 25)
    assert "halved in 25 steps" in finding.evidence


def test_a_target_that_is_followed_is_no_collapse_and_one_that_is_missed_is() -> None:
    falling = 0.4 * np.exp(-np.arange(60) / 15)
    followed = simulate(0, **{"entropy/mean": falling, "entropy/target": falling})
    missed = simulate(0, **{"entropy/mean": falling, "entropy/target": 0.3})
    assert [len(diagnose(log).findings) for log in (followed, missed)] == [0, 1]


def test_a_rising_target_that_costs_the_reward_is_an_explosion() -> None:
    rising, falling = 0.4 + np.arange(60) / 100, 0.4 - np.arange(60) / 200
    kept = simulate(0, **{"entropy/mean": rising, "entropy/target": rising})
    lost = replace(kept, columns={**kept.columns, "reward/mean": falling})
    assert diagnose(kept).findings == ()
    (finding,) = diagnose(lost).findings
    assert finding.rule == "entropy_explosion"
    assert "at the cost of the task" in finding.evidence
    assert "target" in finding.change["isentrope"]


def test_dead_groups_say_whether_the_problems_are_too_easy_or_too_hard() -> None:
    changes = []
    for level in (0.95, 0.02, 0.5):
        log = simulate(0, **{"groups/informative_fraction": 0.1, "reward/mean": level})
        changes.append(diagnose(log).findings[0].change["isentrope"])
    assert changes[0].startswith("harder")
    assert changes[1].startswith("easier")
    assert changes[2].startswith("rollout.refills")


def test_one_prompt_of_three_is_no_concentration() -> None:
    few, many = (
        simulate(0, **{"covariance/top_prompt_fraction": 0.7, "groups/kept_count": kept}) for kept in (3.0, 9.0)
    )
    assert [len(diagnose(log).findings) for log in (few, many)] == [0, 1]


def test_a_covariance_may_be_concentrated_where_the_entropy_is_on_its_target() -> None:
    steered, off = (
        simulate(0, **{"covariance/top_token_fraction": 0.7, "entropy/mean": 0.1, "entropy/target": target})
        for target in (0.1, 0.3)
    )
    assert not diagnose(steered).findings
    assert "covariance_concentrated" in [each.rule for each in diagnose(off).findings]


def test_kl_cov_is_not_advised_to_who_has_it() -> None:
    recipe = {"objective": {"name": "kl_cov", "fraction": 0.002}, "update": {"updates_per_rollout": 8}}
    columns = {"covariance/top_token_fraction": 0.8, "entropy/mean": 0.5 * np.exp(-np.arange(60) / 10)}
    found = {each.rule: each for each in diagnose(simulate(0, recipe=recipe, **columns)).findings}
    assert found["covariance_concentrated"].change == {
        "isentrope": "objective.fraction twice as large: KL-Cov then holds more of them"
    }
    assert "objective.penalty" in found["entropy_collapse"].change["isentrope"]
    assert "the entropy has fallen too" in found["covariance_concentrated"].thin[-1]
    other = {each.rule: each for each in diagnose(simulate(0, **columns)).findings}
    assert 'objective = "kl_cov"' in other["covariance_concentrated"].change["isentrope"]


def test_no_log_is_too_noisy_for_a_rule() -> None:
    """Columns that jump about their thresholds: a level between two values must not leave a finding without a step."""
    for seed in range(200):
        draw = np.random.default_rng(seed)
        steps = int(draw.integers(5, 45))
        columns = {key: draw.choice([0.0, 0.1, 0.3, 0.6, 1.0], steps) for key in simulate(0).columns}
        log = simulate(seed, steps=steps, **columns)
        for finding in diagnose(log).findings:
            assert 0 <= finding.step < steps


def test_verls_own_columns_count() -> None:
    verl = healthy_logs()["verl"]
    ones = np.ones(60)
    for raw, rule in (
        ({"actor/pg_clipfrac": 0.0 * ones}, "clip_inactive"),
        ({"actor/pg_clipfrac": 0.3 * ones}, "off_policy_drift"),
        ({"actor/ppo_kl": -0.2 * ones}, "off_policy_drift"),
    ):
        assert [each.rule for each in diagnose(replace(verl, raw=raw)).findings] == [rule]


def test_every_threshold_decides() -> None:
    """Each number, moved to where nothing passes it, changes what is found in the faulty logs."""
    extreme: dict[str, float] = {
        "collapse_share": 0.0,
        "explosion_ratio": 99.0,
        "explosion_rise": 99.0,
        "reward_share": 0.0,
        "easy_reward": 1.0,
        "hard_reward": 0.0,
        "informative_fraction": 0.0,
        "truncated_fraction": 1.0,
        "truncated_rise": 1.0,
        "logp_gap": 9.0,
        "saturated_fraction": 1.0,
        "saturated_error": 9.0,
        "malformed_fraction": 1.0,
        "malformed_rise": 1.0,
        "malformed_entropy": 9.0,
        "top_token_fraction": 1.0,
        "top_prompt_fraction": 1.0,
        "clip_fraction": 1.0,
        "policy_kl": 9.0,
        "target_tolerance": 9.0,
        "minimum_steps": 99,
        "thin_steps": 99,
    }
    assert set(extreme) == {each.name for each in fields(Thresholds)}
    ones = np.ones(60)
    logs = [
        *faulty_logs().values(),
        simulate(0, **{"covariance/top_prompt_fraction": 0.7}),
        simulate(0, **{"groups/informative_fraction": 0.1, "reward/mean": 0.9}),
        simulate(0, **{"groups/informative_fraction": 0.1, "reward/mean": 0.05}),
        simulate(
            0,
            **{
                "entropy/mean": 0.4 + np.arange(60) / 99,
                "entropy/target": 1.0,
                "reward/mean": 0.3 - np.arange(60) / 200,
            },
        ),
        replace(healthy_logs()["verl"], raw={"actor/ppo_kl": 0.2 * ones}),
        simulate(0, **{"entropy/mean": 0.4 * np.exp(-np.arange(60) / 15), "entropy/target": 0.3}),
    ]

    def outcome(limits: Thresholds) -> list[object]:
        return [[(each.rule, each.thin, each.change) for each in diagnose(log, limits).findings] for log in logs]

    before = outcome(Thresholds())
    for name, value in extreme.items():
        assert outcome(replace(Thresholds(), **{name: value})) != before, name


def test_every_rule_and_threshold_is_documented_with_its_value() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    assert set(NAMES) <= rows.keys()
    for each in fields(Thresholds):
        assert float(rows[each.name].split()[0]) == each.default, each.name
