"""``python -m isentrope``."""

from isentrope.cli import main

if __name__ == "__main__":  # a worker process that is spawned imports this file again
    raise SystemExit(main())
