"""verl on a CPU, for tests alone: a platform, gloo ranks, and sampling by the actor's own workers.

Loaded in every process of verl by ``VERL_USE_EXTERNAL_MODULES=isentrope_verl_cpu``, before the plugins. Ray is told of two GPUs
that aren't there; they are its slots for ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import types
from pathlib import Path

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform


def _device_module() -> types.ModuleType:
    module = types.ModuleType("cpu_as_a_device")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))
    module.current_device = lambda: torch.device("cpu")
    for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
        setattr(module, name, lambda *_args, **_kwargs: 0)
    for name in ("empty_cache", "reset_peak_memory_stats", "ipc_collect", "set_device"):
        setattr(module, name, lambda *_args, **_kwargs: None)
    module.get_device_name = lambda *_args, **_kwargs: "CPU"
    module.mem_get_info = lambda *_args, **_kwargs: (0, 1)
    module.get_rng_state = lambda *_args, **_kwargs: torch.get_rng_state()
    module.set_rng_state = lambda state, *_args, **_kwargs: torch.set_rng_state(state)
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "generic"
    device_module = _device_module()

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, index):
        pass

    def synchronize(self, index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


set_platform(PlatformCPU())

# Only now: these ask for the platform while they load.
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402
from verl.trainer.ppo.v1.trainer_base import register_trainer  # noqa: E402
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # noqa: E402
from verl.workers.engine import EngineRegistry  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker  # noqa: E402
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry  # noqa: E402

from isentrope.integrations.verl.trainer import PlannedTrainer  # noqa: E402
from isentrope.integrations.verl.worker import PlannedTrainingWorker  # noqa: E402

EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)


class _NoReplica(RolloutReplica):
    """No rollout server: the actor's workers sample."""


RolloutReplicaRegistry.register("worker", lambda: _NoReplica)


def _gloo() -> None:
    # verl asks for the backend "cpu:gloo,cpu:gloo", which torch refuses; it leaves a group alone that is there already.
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
        )


class _Recorder:
    """Writes what each optimizer step's plan was, per sequence, where ``ISENTROPE_TEST_PLANS`` says."""

    def _plan(self, data, order):
        pairs = super()._plan(data, order)
        place = os.environ.get("ISENTROPE_TEST_PLANS")
        if place:
            names = ("weight", "penalty", "clip_low", "clip_high")
            dense = data.select(*(f"isentrope_{name}" for name in names)).to_padded_tensor()
            row = {
                "step": order.step,
                "update": self._update,
                "order": order.to_text(),
                "sequence": data["isentrope_sequence"].tolist(),
                "tokens": data["response_mask"].offsets().diff().tolist(),
                **{name: dense[f"isentrope_{name}"].tolist() for name in names},
            }
            rank = torch.distributed.get_rank()
            with (Path(place) / f"rank{rank}.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            if os.environ.get("ISENTROPE_TEST_BATCHES"):
                keep = ("prompts", "responses", "response_mask", "old_log_probs", "advantages", "isentrope_entropy")
                keep = (*keep, "isentrope_sum_p2", "isentrope_sum_p2_logp", "isentrope_sequence", "isentrope_group")
                columns = {}
                for name in keep:
                    column = data[name]
                    columns[name] = [part.clone() for part in column.unbind()] if column.is_nested else column.clone()
                weights = {
                    name: each.full_tensor() if hasattr(each, "full_tensor") else each
                    for name, each in self.engine.module.state_dict().items()
                }
                torch.save(
                    {"columns": columns, "plan": row, "pairs": pairs, "weights": weights},
                    Path(place) / f"batch-{order.step}-{self._update}-{rank}.pt",
                )
        return pairs


class CPUTrainingWorker(_Recorder, PlannedTrainingWorker):
    def __init__(self, config):
        _gloo()
        super().__init__(config)

    def train_batch(self, data):
        output = super().train_batch(data)
        place = os.environ.get("ISENTROPE_TEST_PLANS")
        if place and output is not None and torch.distributed.get_rank() == 0:
            from verl.utils import tensordict_utils

            with (Path(place) / "norms.jsonl").open("a") as file:
                file.write(json.dumps(tensordict_utils.get(output, "metrics")["grad_norm"]) + "\n")
        return output


class PlainTrainingWorker(TrainingWorker):
    def __init__(self, config):
        _gloo()
        super().__init__(config)


class _Samples:
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def sample(self, prompts, limit, seed, end):
        """(token ids, log-probs) per prompt, the same on every rank."""
        module = self.actor.engine.module
        module.eval()
        results = []
        with torch.no_grad():
            for row, prompt in enumerate(prompts):
                generator = torch.Generator().manual_seed(seed * 1_000_003 + row)
                ids, logps = list(prompt), []
                while len(logps) < limit and (not logps or ids[-1] != end):
                    logits = module(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
                    logp = logits.float().log_softmax(-1)
                    ids.append(int(torch.multinomial(logp.exp(), 1, generator=generator)))
                    logps.append(float(logp[ids[-1]]))
                results.append((ids[len(prompt) :], logps))
        return results


class CPUActorWorker(_Samples, ActorRolloutRefWorker):
    actor_worker_cls = CPUTrainingWorker


class PlainActorWorker(_Samples, ActorRolloutRefWorker):
    actor_worker_cls = PlainTrainingWorker


class _NoServers:
    """What a trainer leaves out where there are no rollout servers."""

    _enable_hybrid_replicas = False

    def on_step_end(self):
        pass

    def on_sample_end(self):
        pass

    def fit(self, agent_loop_manager):
        agent_loop_manager.trainer = self
        return super().fit(agent_loop_manager)


@register_trainer("isentrope_cpu")
class CPUTrainer(_NoServers, PlannedTrainer, PPOTrainerSync):
    worker_class = CPUActorWorker

    def on_init_end(self):
        self.checkpoint_manager_update = None
        self._begin()


@register_trainer("plain_cpu")
class PlainTrainer(_NoServers, PPOTrainerSync):
    """verl's own trainer and loss, for comparison."""

    def __init__(self, config):
        config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _init_resource_pool_mgr(self):
        import ray

        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(PlainActorWorker)

    def on_init_end(self):
        pass


class WorkerAgentLoopManager:
    """``rollout.agent.agent_loop_manager_class``: samples in the actor's workers, rewards digits, fills the store."""

    @classmethod
    def create(cls, **_kwargs):
        return cls()

    def generate_sequences(self, batch):
        import transfer_queue as tq
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        trainer = self.trainer
        rollout, tokenizer = trainer.config.actor_rollout_ref.rollout, trainer.tokenizer
        step, samples = int(batch["global_steps"]), rollout.n
        uids, models = list(batch["uid"]), list(batch["reward_model"])
        prompts = [
            tokenizer.apply_chat_template(
                [dict(message) for message in raw], add_generation_prompt=True, tokenize=True, return_dict=False
            )
            for raw in batch["raw_prompt"]
            for _ in range(samples)
        ]
        answers = trainer.actor_rollout_wg.sample(prompts, rollout.response_length, step, tokenizer.eos_token_id)[0]
        keys, fields, tags = [], [], []
        for row, (prompt, (answer, logps)) in enumerate(zip(prompts, answers, strict=True)):
            group, sample = divmod(row, samples)
            scores = torch.zeros(len(answer))
            scores[-1] = sum(character.isdigit() for character in tokenizer.decode(answer)) / 4.0
            ids, mask = torch.tensor([*prompt, *answer]), torch.ones(len(answer), dtype=torch.long)
            keys.append(f"{uids[group]}_{sample}_0")
            fields.append(
                {
                    "uid": uids[group],
                    "prompts": torch.tensor(prompt),
                    "responses": torch.tensor(answer),
                    "response_mask": mask,
                    "loss_mask": mask.clone(),
                    "input_ids": ids,
                    "position_ids": torch.arange(len(ids)),
                    "rm_scores": scores,
                    "rollout_log_probs": torch.tensor(logps),
                    "num_turns": 2,
                    "reward_model": models[group],
                    "data_source": "test",
                }
            )
            versions = {"global_steps": step, "min_global_steps": step - 1, "max_global_steps": step - 1}
            lengths = {"prompt_len": len(prompt), "response_len": len(answer), "seq_len": len(ids)}
            tags.append({"status": "success", **lengths, **versions})
        tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id="train")
        for uid in uids:
            tq.kv_batch_put(keys=[uid], partition_id="train", tags=[{"status": "finished"}])
