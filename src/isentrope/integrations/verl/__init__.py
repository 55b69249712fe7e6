"""Isentrope in verl: a plugin for ``python -m verl.trainer.main_ppo``, with objectives, schedules and controllers.

Attach mode takes two more overrides on a command that works already::

    python -m verl.trainer.main_ppo ... trainer.v1.trainer_mode=isentrope +isentrope=isentrope.toml

verl finds :mod:`isentrope.integrations.verl.plugin` by itself, through the entry-point group ``verl.plugins``. ``attach``,
``mapping`` and ``settings`` load neither verl nor torch.
"""
