"""Were the advantages those of their groups?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from isentrope.advantages import ADVANTAGES
from isentrope.audit.dump import Dump
from isentrope.audit.finding import Cause, Finding, conforms, differs, unchecked

if TYPE_CHECKING:
    from torch import Tensor

CHECK = "advantage"


def check_advantages(dump: Dump, name: str) -> Finding:
    """Recomputes the advantages with ``ADVANTAGES[name]`` from rewards and group ids."""
    from isentrope.errors import RewardError

    if "reward" not in dump or "group_id" not in dump:
        return unchecked(CHECK, "it takes reward and group_id, one number a sequence")
    per_token, mask_BT = dump["advantage"], dump.mask
    some_B = mask_BT.any(1)  # a sequence without a token has no advantage to look at
    given_B, spread = _per_sequence(per_token, mask_BT)
    reward_B, group_B = dump["reward"], dump["group_id"]
    try:
        wanted_B = ADVANTAGES[name](reward_B, group_B, None)
    except RewardError as error:
        return unchecked(CHECK, f"{error} A group that is cut over optimizer batches can't be recomputed from one")
    scale = max(float(given_B.norm()), 1e-12)
    if spread > dump.tolerance * max(float(given_B.abs().max()), 1e-12):
        cause = Cause(
            name="advantage_per_token", text="advantages differ along a response: per-token rewards or returns"
        )
        return differs(CHECK, f"up to {spread:.3g} within a sequence", [[cause]])

    def distance(wanted_B: Tensor) -> float:
        return float((given_B - wanted_B)[some_B].norm()) / scale

    size = distance(wanted_B)
    if size <= dump.tolerance:
        return conforms(CHECK, f"{name} of {len(group_B.unique())} groups (difference {size:.1e})")
    explanations = [[cause] for cause, make in _suspects(name, reward_B, group_B) if distance(make()) <= dump.tolerance]
    return differs(CHECK, f"relative difference {size:.3g} from {name}", explanations)


def _per_sequence(advantage_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, float]:
    """(B,) the value at each sequence's valid tokens, and the largest spread within one; 0 where there is none."""
    import torch

    low = torch.where(mask_BT, advantage_BT, torch.inf).amin(1)
    high = torch.where(mask_BT, advantage_BT, -torch.inf).amax(1)
    some = mask_BT.any(1)
    low, high = torch.where(some, low, 0.0), torch.where(some, high, 0.0)
    return (low + high) / 2, float((high - low).max())


def _suspects(name: str, reward_B: Tensor, group_B: Tensor) -> Iterator[tuple[Cause, Callable[[], Tensor]]]:
    """Other ways to compute them, the likeliest first."""
    import torch

    from isentrope.errors import RewardError

    ids, size_G = group_B.unique(return_counts=True)
    most = int(size_G.mode().values)
    position_B = torch.arange(len(group_B)) // most
    apart_B = torch.arange(len(group_B)) % max(len(ids), 1)

    def with_groups(ids_B: Tensor, function: Callable[..., Tensor]) -> Callable[[], Tensor]:
        def make() -> Tensor:
            try:
                return function(reward_B, ids_B, None)
            except RewardError:
                return torch.full_like(reward_B, torch.inf)

        return make

    population = Cause(
        name="population_std", text="standard deviation of the population (ddof 0) instead of the sample"
    )
    places = {
        "block": Cause(name="group_by_position", text=f"groups taken as blocks of {most} by position, not by group_id"),
        "stride": Cause(name="group_by_position", text=f"groups taken as every {len(ids)}th sequence, not by group_id"),
    }
    yield population, with_groups(group_B, _population)
    yield places["block"], with_groups(position_B, ADVANTAGES[name])
    yield places["stride"], with_groups(apart_B, ADVANTAGES[name])
    for place, ids_B in (("block", position_B), ("stride", apart_B)):
        both = Cause(name="group_by_position", text=f"{places[place].text}; and with the population's deviation")
        yield both, with_groups(ids_B, _population)
    for other in ADVANTAGES:
        if other != name:
            yield Cause(name="other_advantage", text=f"they are {other}'s"), with_groups(group_B, ADVANTAGES[other])
    yield Cause(name="no_baseline", text="rewards without a baseline"), lambda: reward_B
    yield (
        Cause(name="batch_mean", text="the mean of the batch as the baseline, not of the group"),
        lambda: reward_B - reward_B.mean(),
    )


def _population(reward_B: Tensor, group_B: Tensor, length_B: Tensor | None) -> Tensor:
    """GRPO's with ddof 0."""
    import torch

    ids, inverse_B = group_B.unique(return_inverse=True)
    size_G = torch.bincount(inverse_B, minlength=len(ids)).to(reward_B)
    mean_G = torch.zeros_like(size_G).index_add(0, inverse_B, reward_B) / size_G
    centred_B = reward_B - mean_G[inverse_B]
    variance_G = torch.zeros_like(size_G).index_add(0, inverse_B, centred_B.square()) / size_G
    return centred_B / (variance_G.sqrt()[inverse_B] + 1e-6)
