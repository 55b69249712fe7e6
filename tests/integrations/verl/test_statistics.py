"""The columns that the engine's forward pass gives: our statistics, in the places of verl's own outputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from isentrope.integrations.verl.statistics import StatisticsTap, nested_statistics
from tests.support.batches import plain_statistics

LENGTHS = [4, 2, 5]
INPUTS = [torch.arange(length) % 6 for length in LENGTHS]
LOGITS_BLV = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def jagged(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


@pytest.mark.parametrize("temperature", [1.0, 0.7, torch.full((3,), 0.7), torch.tensor([0.5, 1.0, 2.0])], ids=str)
def test_position_i_scores_token_i_plus_one_at_the_sampling_temperature(temperature: float | torch.Tensor) -> None:
    columns = nested_statistics(LOGITS_BLV, jagged(INPUTS), temperature, cubes=True)
    temperatures = torch.as_tensor(temperature).expand(3)
    for row, ids in enumerate(INPUTS):
        length = len(ids) - 1
        expected = plain_statistics(LOGITS_BLV[row, :length] / temperatures[row], ids[1:])
        for name in ("logp", "entropy", "sum_p2", "sum_p2_logp", "sum_p3", "sum_p3_logp"):
            found = columns[f"isentrope_{name}"].unbind()[row]
            assert len(found) == len(ids)
            torch.testing.assert_close(found[:length].double(), expected[name], rtol=1e-5, atol=1e-6)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    expected = nested_statistics(LOGITS_BLV, jagged(INPUTS), 1.0)
    padded = LOGITS_BLV.clone()
    for row, length in enumerate(LENGTHS):
        padded[row, length:] = float("nan")
    found = nested_statistics(padded, jagged(INPUTS), 1.0)
    for name, column in expected.items():
        assert torch.equal(found[name].values(), column.values())


def test_the_engines_own_method_runs_untouched_outside_a_recording() -> None:
    calls: list[tuple] = []

    class Engine:
        def prepare_model_outputs(self, output, output_args, micro_batch, logits_processor_func):
            calls.append((output, output_args, micro_batch, logits_processor_func))
            return {"log_probs": "verl's"}

    engine = Engine()
    tap = StatisticsTap(engine)
    output = SimpleNamespace(logits=LOGITS_BLV)
    batch = {"input_ids": jagged(INPUTS), "temperature": 1.0}
    assert engine.prepare_model_outputs(output, {}, batch, None) == {"log_probs": "verl's"}
    with tap.recording():
        assert set(engine.prepare_model_outputs(output, {}, batch, None)) == {
            "log_probs",
            "isentrope_entropy",
            "isentrope_sum_p2",
            "isentrope_sum_p2_logp",
        }
    assert len(calls) == 2
    with tap.recording(alone=True):
        found = engine.prepare_model_outputs(output, {}, batch, None)
    assert "isentrope_logp" in found and "log_probs" not in found and len(calls) == 2
    assert engine.prepare_model_outputs(output, {}, batch, None) == {"log_probs": "verl's"}
