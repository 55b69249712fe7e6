"""Starts ``main_ppo`` on a CPU with a tiny random model. Runs in verl's own environment; not a test by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Result:
    text: str
    lines: list[dict]
    """metrics.jsonl of the run folder."""
    folder: Path


def make_model(path: Path) -> None:
    """A random Qwen2 of two layers with a vocabulary of 64 words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = ["<pad>", "<eos>", "<unk>", *"0123456789", "+", "-", "=", "user", "assistant", ":"]
    words += [f"w{number}" for number in range(64 - len(words))]
    raw = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}assistant : {% endif %}"
    )
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
        bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(path)


def make_data(path: Path) -> None:
    import pandas

    rows = [
        {
            "data_source": "test",
            "prompt": [{"role": "user", "content": f"{number % 10} + {number * 3 % 10} ="}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "0"},
            "extra_info": {"index": number, "split": "train"},
        }
        for number in range(32)
    ]
    pandas.DataFrame(rows).to_parquet(path)


def arguments(place: Path, *, ranks: int, micro_batch: int, mode: str, steps: int) -> list[str]:
    """A working ``main_ppo`` command: what a user of verl has before attaching anything."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    mixed = f"+{actor}.fsdp_config.mixed_precision"
    return [
        "algorithm.adv_estimator=grpo", f"data.train_files={place}/train.parquet", f"data.val_files={place}/train.parquet",
        "data.train_batch_size=4", "data.max_prompt_length=32", "data.max_response_length=12", "data.shuffle=False",
        "data.dataloader_num_workers=0", f"actor_rollout_ref.model.path={place}/model",
        "actor_rollout_ref.model.use_remove_padding=False", "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager", f"{actor}.strategy=fsdp2",
        f"{actor}.ppo_mini_batch_size=2", f"{actor}.ppo_micro_batch_size_per_gpu={micro_batch}", f"{actor}.optim.lr=1e-2",
        f"{actor}.use_torch_compile=False", f"{actor}.fsdp_config.use_torch_compile=False", f"{mixed}.param_dtype=fp32",
        f"{mixed}.reduce_dtype=fp32", f"{mixed}.buffer_dtype=fp32", f"{rollout}.name=worker", f"{rollout}.nnodes=1",
        f"{rollout}.n=4", f"{rollout}.log_prob_micro_batch_size_per_gpu=4", f"{rollout}.response_length=12",
        f"+{rollout}.agent.agent_loop_manager_class=isentrope_verl_cpu.WorkerAgentLoopManager",
        f"{rollout}.calculate_log_probs=True", "trainer.device=cpu", f"trainer.n_gpus_per_node={ranks}", "trainer.nnodes=1",
        f"trainer.total_training_steps={steps}", "trainer.total_epochs=3", 'trainer.logger=["console"]',
        "trainer.val_before_train=False", "trainer.test_freq=-1", "trainer.save_freq=-1", "trainer.resume_mode=disable",
        f"trainer.default_local_dir={place}/out", f"trainer.v1.trainer_mode={mode}", "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1", "ray_kwargs.ray_init.num_cpus=24",
        "+ray_kwargs.ray_init.num_gpus=2",
        "+ray_kwargs.ray_init.include_dashboard=False", f"hydra.run.dir={place}/hydra",
    ]  # fmt: skip


def run(
    place: Path,
    toml: str | None,
    more: Sequence[str] = (),
    *,
    ranks: int = 2,
    micro_batch: int = 1,
    mode: str = "isentrope_cpu",
    steps: int = 3,
    batches: bool = False,
    fails: bool = False,
) -> Result:
    """One run of verl in a folder of its own."""
    place = place.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "model").exists():
        make_model(place / "model")
        make_data(place / "train.parquet")
    plans = place / "plans"
    plans.mkdir(exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "verl.trainer.main_ppo",
        *arguments(place, ranks=ranks, micro_batch=micro_batch, mode=mode, steps=steps),
    ]
    if toml is not None:
        (place / "isentrope.toml").write_text(toml)
        command.append(f"+isentrope={place}/isentrope.toml")
    environment = {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "isentrope_verl_cpu",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "ISENTROPE_TEST_PLANS": str(plans),
        **({"ISENTROPE_TEST_BATCHES": "1"} if batches else {}),
    }  # fmt: skip
    with (place / "log.txt").open("w") as log:
        code = subprocess.run(
            [*command, *more],
            env=environment,
            cwd=place,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        ).returncode
    text = (place / "log.txt").read_text()
    assert (code != 0) == fails, text[-6000:]
    folders = sorted((place / "out").glob("isentrope*"))
    lines = [json.loads(line) for line in (folders[-1] / "metrics.jsonl").read_text().splitlines()] if folders else []
    return Result(text, lines, folders[-1] if folders else place)


if __name__ == "__main__":
    result = run(Path(sys.argv[1]), Path(sys.argv[2]).read_text(), sys.argv[3:])
    print(result.text[-3000:])
    for line in result.lines:
        print(line)
