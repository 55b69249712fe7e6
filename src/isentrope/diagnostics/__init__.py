"""Layer 1: what happens to the entropy, in numbers.

``flow``, ``covariance``, ``positions``, ``step`` and ``per_token`` turn tensors of a training step into metrics and columns;
``history`` looks back over a run; ``diagnosis`` names faults of a training log, ours or another trainer's.
"""
