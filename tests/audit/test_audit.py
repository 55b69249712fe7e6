"""Planted faults are named, conforming batches get a clean bill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.audit import Audit, audit, effects, load_dump, save_dump, selected_tokens
from isentrope.audit.checking import audit_recipe
from isentrope.audit.dump import make_dump
from isentrope.audit.inference import with_selection
from isentrope.audit.selections import check_selection
from isentrope.cli import main
from isentrope.errors import AuditError, RecipeError
from tests.support.dumps import FAULTS, Trainer


def settings(trainer: Trainer) -> list[str]:
    """What its user would say that it does."""
    words = [f"rollout.temperature={trainer.temperature}", f"update.aggregation={trainer.aggregation}"]
    if trainer.method in ("kl_cov", "clip_cov"):
        words.append(f"objective.fraction={trainer.fraction}")
    if trainer.method == "clip_cov":
        words.append("objective.band_low=0.5")
    if trainer.method == "kl_cov":
        words.append(f"objective.penalty={trainer.penalty}")
    return words


def audited(trainer: Trainer, **changes: Any) -> Audit:
    recipe = audit_recipe(trainer.method, settings(trainer))
    return audit(make_dump(trainer.dump() | changes), recipe)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_every_planted_fault_is_named_and_no_other(fault: str, seed: int) -> None:
    changes, cause = FAULTS[fault]
    result = audited(Trainer(**changes, seed=seed))
    assert not result.clean
    assert result.causes == {cause}, result.findings


CONFORMING = {
    "kl_cov": Trainer(seed=10),
    "kl_cov in fp64": Trainer(seed=11, dtype=torch.float64),
    "kl_cov in bf16": Trainer(seed=12, dtype=torch.bfloat16),
    "kl_cov without a weight": Trainer(seed=13, weighted=False),
    "kl_cov, tiny fraction": Trainer(seed=14, fraction=2e-4),
    "clip_cov": Trainer(seed=15, method="clip_cov"),
    "clip_cov in fp64": Trainer(seed=16, method="clip_cov", dtype=torch.float64),
    "grpo": Trainer(seed=17, method="grpo", clip=0.2),
    "grpo, sequence mean": Trainer(seed=18, method="grpo", clip=0.2, aggregation="sequence_mean"),
    "opefo": Trainer(seed=19, method="opefo"),
    "opefo in fp64, colder": Trainer(seed=20, method="opefo", dtype=torch.float64, temperature=0.8),
    "one sequence a prompt pair": Trainer(seed=21, prompts=4, samples=2),
}


@pytest.mark.parametrize("name", CONFORMING)
def test_a_batch_that_conforms_gets_a_clean_bill(name: str) -> None:
    result = audited(CONFORMING[name])
    assert result.clean, result.findings
    assert {finding.verdict for finding in result.findings} == {"conforms"}


def test_two_faults_are_both_named() -> None:
    result = audited(Trainer(denominator="padding", drop_weight=True))
    assert result.causes == {"means_over_padding", "missing_rollout_weight"}
    result = audited(Trainer(selection_size=8, fraction=0.001, percent=100.0, std="population"))
    assert result.causes == {"micro_batch_selection", "percent_as_fraction", "population_std"}


def test_the_size_of_the_micro_batch_is_found() -> None:
    for size in (4, 16):
        result = audited(Trainer(selection_size=size, fraction=0.02))
        [selection] = [finding for finding in result.findings if finding.check == "selection"]
        assert f"micro-batches of {size} sequences" in selection.causes[0].text


def test_micro_batches_in_no_order_are_found_by_their_ids() -> None:
    trainer = Trainer(selection_size=16, fraction=0.02)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(5))
    shuffled = {name: value[order] if value.dim() else value for name, value in trainer.dump().items()}
    recipe = audit_recipe("kl_cov", settings(trainer))
    without = audit(make_dump(shuffled), recipe)
    assert not without.clean and "micro_batch_selection" not in without.causes
    found = audit(make_dump({**shuffled, "micro_batch": order // 16}), recipe)
    [selection] = [finding for finding in found.findings if finding.check == "selection"]
    assert "the trainer's own micro-batches of 16 sequences" in selection.causes[0].text


def test_what_nothing_explains_is_said_with_its_size() -> None:
    dump = Trainer().dump()
    dump["grad_logp"] = torch.randn(dump["grad_logp"].shape, generator=torch.Generator().manual_seed(0))
    result = audit(make_dump(dump), audit_recipe("kl_cov", settings(Trainer())))
    [gradient] = [finding for finding in result.findings if finding.check == "gradient"]
    assert (gradient.verdict, gradient.causes) == ("differs", ())
    assert "relative difference" in gradient.text


def test_a_gradient_of_another_size_is_called_scaled() -> None:
    dump = Trainer().dump()
    dump["grad_logp"] = 8 * dump["grad_logp"]
    result = audit(make_dump(dump), audit_recipe("kl_cov", settings(Trainer())))
    assert result.causes == {"scaled_loss"}
    assert "8 times" in next(f for f in result.findings if f.check == "gradient").causes[0].text


def test_the_penalty_is_measured() -> None:
    result = audited(Trainer(actual_penalty=0.25))
    [gradient] = [finding for finding in result.findings if finding.check == "gradient"]
    assert gradient.causes[0].text == "the penalty's coefficient is 0.25, not 1"
    [loss] = [finding for finding in result.findings if finding.check == "loss"]
    assert loss.causes == gradient.causes


@pytest.mark.parametrize(
    ("clip", "asked", "cause"),
    [
        (0.2, "objective.clip_high=0.28", "the ratio is clipped at 0.2 / 0.2, not at 0.2 / 0.28"),
        (None, "objective.clip_high=0.2", "the ratio isn't clipped"),
    ],
)
def test_another_clip_is_named_with_its_bounds(clip: float | None, asked: str, cause: str) -> None:
    dump = make_dump(Trainer(method="grpo", clip=clip).dump())
    result = audit(dump, audit_recipe("grpo", [asked]))
    [gradient] = [finding for finding in result.findings if finding.check == "gradient"]
    assert [each.text for each in gradient.causes] == [cause]


def test_the_loss_alone_tells_too() -> None:
    dump = Trainer(denominator="padding").dump()
    del dump["grad_logp"]
    result = audit(make_dump(dump), audit_recipe("kl_cov", settings(Trainer())))
    assert result.causes == {"means_over_padding"}


def test_without_its_tensors_a_check_says_what_it_takes() -> None:
    whole = Trainer().dump()
    dump = make_dump({name: whole[name] for name in ("logp", "old_logp", "advantage", "mask")})
    result = audit(dump, audit_recipe("kl_cov"))
    assert not result.clean  # nothing was checked
    assert {finding.verdict for finding in result.findings} == {"not checked"}
    takes = {finding.check: finding.text for finding in result.findings}
    assert "selected" in takes["selection"] and "grad_logp" in takes["gradient"] and "reward" in takes["advantage"]
    with pytest.raises(AuditError, match="the dump needs entropy, sum_p2 and sum_p2_logp"):
        audit(dump, audit_recipe("opefo"))


@pytest.mark.parametrize(
    "trainer", [Trainer(method="clip_cov"), Trainer(), Trainer(seed=3, selection_size=16, fraction=0.02)]
)
def test_a_selection_that_is_not_dumped_is_read_off_the_gradient(trainer: Trainer) -> None:
    dump = trainer.dump()
    selected = dump.pop("selected")
    recipe = audit_recipe(trainer.method, settings(trainer))
    found, read = with_selection(make_dump(dump), recipe.objective_object())
    assert read and torch.equal(found["selected"], selected)
    result = audit(make_dump(dump), recipe)
    [selection] = [finding for finding in result.findings if finding.check == "selection"]
    assert "read off the gradient" in selection.text
    assert result.causes == ({"micro_batch_selection"} if trainer.selection_size else set())


def test_nothing_is_read_where_there_is_nothing_to_read() -> None:
    recipe = audit_recipe("kl_cov", settings(Trainer()))
    dump = Trainer().dump()
    del dump["selected"]
    still = {
        **dump,
        "old_logp": dump["logp"],
        "grad_logp": -dump["advantage"] * dump["rollout_weight"] * dump["mask"] / 900,
    }
    other = {**dump, "grad_logp": torch.randn(dump["logp"].shape, generator=torch.Generator().manual_seed(0))}
    for each in (still, other, {name: value for name, value in dump.items() if name != "grad_logp"}):
        found, read = with_selection(make_dump(each), recipe.objective_object())
        assert not read and "selected" not in found
    # Clip-Cov that takes none leaves the plain gradient everywhere, and that can be read.
    plain = Trainer(method="clip_cov", fraction=0.0001, selection_size=None).dump()
    silent = Trainer(method="grpo", clip=1.0).dump()
    plain["grad_logp"] = silent["grad_logp"]
    del plain["selected"]
    found, read = with_selection(make_dump(plain), audit_recipe("clip_cov").objective_object())
    assert read and not found["selected"].any()


def test_clip_covs_gradient_takes_the_selection() -> None:
    dump = Trainer(method="clip_cov").dump()
    del dump["selected"], dump["grad_logp"]
    result = audit(make_dump(dump), audit_recipe("clip_cov"))
    verdicts = {finding.check: finding.verdict for finding in result.findings}
    assert verdicts["gradient"] == verdicts["loss"] == verdicts["selection"] == "not checked"


def test_per_token_advantages_and_cut_groups_are_told_apart() -> None:
    dump = Trainer().dump()
    slope = torch.linspace(0.5, 1.5, dump["advantage"].shape[1])
    result = audit(
        make_dump({**dump, "advantage": dump["advantage"] * slope}), audit_recipe("kl_cov", settings(Trainer()))
    )
    assert "advantage_per_token" in result.causes
    alone = {**dump, "group_id": torch.arange(64)}
    result = audit(make_dump(alone), audit_recipe("kl_cov", settings(Trainer())))
    [advantage] = [finding for finding in result.findings if finding.check == "advantage"]
    assert advantage.verdict == "not checked" and "single sample" in advantage.text


def test_effects_are_those_of_the_objectives() -> None:
    from isentrope.objectives import KLCov

    dump = make_dump(Trainer().dump())
    done = {each.name: each for each in effects(dump, KLCov(fraction=0.05))}
    assert done["by definition"].selected == int(0.05 * dump.tokens)
    assert done["grpo"].selected == 0
    assert done["opefo"].net == pytest.approx(0, abs=1e-9)
    plan = KLCov(fraction=0.05).plan(dump.batch, seed=0)
    total, count = plan.statistics["flow/net"]
    assert done["by definition"].net == pytest.approx(1000 * total / count)
    gradient = dump["grad_logp"] * dump.tokens
    phi = dump["logp"].exp() * (dump["logp"] + dump["entropy"]) - dump["sum_p2_logp"] - dump["entropy"] * dump["sum_p2"]
    assert done["as dumped"].net == pytest.approx(1000 * float((gradient * phi)[dump.mask].mean()))
    assert done["as dumped"].net == pytest.approx(done["by definition"].net, rel=1e-5)
    bare = make_dump({name: dump[name] for name in ("logp", "old_logp", "advantage", "mask")})
    assert [each.net for each in effects(bare)] == [None] * 3


def test_selected_tokens_come_with_their_text() -> None:
    tensors = Trainer().dump()
    dump = make_dump(tensors, token_text={int(tensors["token_id"][0, 0]): " the"})
    tokens = selected_tokens(dump, dump["selected"], most=5)
    covariances = [token.covariance for token in tokens]
    assert covariances == sorted(covariances, reverse=True) and len(tokens) == 5
    for token in tokens:
        number = int(tensors["token_id"][token.sequence, token.position])
        assert token.text == dump.token_text.get(number, f"#{number}")


def test_a_file_from_writing_to_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "batch.safetensors"
    trainer = Trainer(selection_size=16, fraction=0.02)
    hostile = "[red]\x1b[31m<b>"
    save_dump(path, settings={"loss_mode": "kl_cov"}, token_text=dict.fromkeys(range(12), hostile), **trainer.dump())
    assert load_dump(path).settings == {"loss_mode": "kl_cov"}
    assert main(["audit", str(path), "--objective", "kl_cov", *settings(trainer)]) == 1
    out = capsys.readouterr().out
    assert "cause: selected in micro-batches of 16 sequences (micro_batch_selection)" in out
    assert "\x1b[31m" not in out and "loss_mode = kl_cov" in out
    assert main(["audit", str(path), "--objective", "kl_cov", *settings(trainer), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["clean"] is False and len(found["effects"]) == 6
    assert len(found["selected"]) == int(trainer.dump()["selected"].sum())

    save_dump(path, **replace(trainer, selection_size=None).dump())
    assert main(["audit", str(path), "--objective", "kl_cov", *settings(trainer)]) == 0
    assert "Everything that was checked conforms" in capsys.readouterr().out


def test_wrong_settings_are_refused_as_in_a_recipe() -> None:
    with pytest.raises(RecipeError, match="kl_vco"):
        audit_recipe("kl_vco")
    with pytest.raises(RecipeError, match=r"(?s)objective.fracton.*mean fraction"):
        audit_recipe("kl_cov", ["objective.fracton=0.1"])


@pytest.mark.parametrize("name", ["smallest_covariance", "absolute_covariance", "uncentred_covariance"])
def test_selections_by_another_score_are_named(name: str) -> None:
    dump = Trainer(fraction=0.03).dump()
    mask, logp, advantage = dump["mask"], dump["logp"].double(), dump["advantage"].double()
    covariance = (logp - logp[mask].mean()) * (advantage - advantage[mask].mean())
    score = {
        "smallest_covariance": -covariance,
        "absolute_covariance": covariance.abs(),
        "uncentred_covariance": logp * advantage,
    }[name]
    count = int(0.03 * mask.sum())
    chosen = score.masked_fill(~mask, -torch.inf).flatten().topk(count).indices
    selected = torch.zeros_like(mask).flatten().index_fill(0, chosen, True).view_as(mask)
    recipe = audit_recipe("kl_cov", ["objective.fraction=0.03"])
    found = check_selection(make_dump(dump | {"selected": selected}), recipe.objective_object())  # type: ignore[arg-type]
    assert [cause.name for cause in found.causes] == [name]
