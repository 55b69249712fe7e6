"""How many threads torch uses for a policy on a CPU."""

from __future__ import annotations

import os

import torch

from isentrope.policy import Policy

SMALL = 10_000_000
"""Parameters below which threads cost more than they give: their barriers wait actively, which on a busy machine stretched a
step of `builtin:tiny` from one second to twenty-seven."""


def use_few_threads(policy: Policy) -> None:
    """One thread for a small policy on a CPU, unless OMP_NUM_THREADS says otherwise. It holds for the whole process."""
    parameters = sum(parameter.numel() for parameter in policy.model.parameters())
    if policy.device.type == "cpu" and parameters < SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
