"""KL-Cov pasted into TRL's GRPOTrainer, one optimizer step of it dumped, and what `isentrope audit` says.

    pip install 'isentrope[trl]'
    python examples/06_audit_trl.py
It chooses its tokens where the loss is made, as forks do: in each micro-batch.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

warnings.simplefilter("ignore", FutureWarning)  # TRL and transformers about each other

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from dump_hook import DumpHook  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from isentrope.cli import main as isentrope  # noqa: E402
from isentrope.policy.tiny import load_tiny  # noqa: E402
from isentrope.tasks import load_task  # noqa: E402

FRACTION, ACCUMULATION = 0.02, 4


class PastedKLCov(GRPOTrainer):
    hook: DumpHook

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        mask = inputs["completion_mask"].bool()
        logp, entropy, _ = self._get_per_token_logps_and_entropies(
            model, ids, attention, mask.shape[1], compute_entropy=True
        )
        old, advantage = inputs["old_per_token_logps"], inputs["advantages"][:, None].expand_as(logp)
        covariance = ((logp - logp[mask].mean()) * (advantage - advantage[mask].mean())).detach()
        chosen = covariance.masked_fill(~mask, -torch.inf).flatten().topk(max(1, int(FRACTION * mask.sum()))).indices
        selected = torch.zeros_like(mask).flatten().index_fill(0, chosen, True).view_as(mask)
        loss = -(logp - old).exp() * advantage + selected * (logp - old).abs()
        loss = (loss * mask).sum() / mask.sum() / ACCUMULATION
        group = torch.unique(inputs["prompt_ids"], dim=0, return_inverse=True)[1]
        self.hook.add(
            loss, logp, old_logp=old, advantage=advantage, mask=mask, selected=selected, entropy=entropy, group_id=group
        )
        if len(self.hook.parts) == ACCUMULATION:
            self.hook.write(trainer="TRL", loss="KL-Cov, pasted in")
        return loss


def main() -> None:
    model, tokenizer = load_tiny()
    problems = load_task("arithmetic").train[:64]
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="isentrope-audit-"),
        steps_per_generation=2 * ACCUMULATION,  # two optimizer steps a rollout: the second one is off-policy
        gradient_accumulation_steps=ACCUMULATION,
        max_completion_length=32,
        max_steps=2,
        learning_rate=1e-3,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    data = Dataset.from_list([{"prompt": problem.prompt, "answer": problem.answer} for problem in problems])
    trainer = PastedKLCov(model, reward, args=args, train_dataset=data, processing_class=tokenizer)
    trainer.hook = DumpHook(f"{args.output_dir}/batch.safetensors")
    trainer.train()
    isentrope(["audit", trainer.hook.path, "--objective", "kl_cov", f"objective.fraction={FRACTION}"])


def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(text.rpartition("=")[2] == right) for text, right in zip(completions, answer, strict=True)]


if __name__ == "__main__":
    main()
