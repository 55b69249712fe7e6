"""Layer 3: the local engine. ``train`` runs a recipe, ``resume`` goes on where a run stopped."""

from isentrope.training.loop import resume, train
from isentrope.training.summary import RunSummary

__all__ = ["RunSummary", "resume", "train"]
