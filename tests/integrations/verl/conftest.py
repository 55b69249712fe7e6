"""``cluster`` is loaded by verl's own processes, in verl's environment."""

collect_ignore = ["cluster"]
