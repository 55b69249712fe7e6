"""Layer 4: what connects other trainers to this package."""
