from __future__ import annotations

import json
import sys

import pytest

from isentrope.training.manifest import make_manifest


def test_the_manifest_says_versions_seeds_and_machine_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    monkeypatch.setenv("USER", "someone_private")
    manifest = make_manifest(seeds={"run": 7}, device="cpu")
    assert manifest["seeds"] == {"run": 7}
    assert manifest["versions"]["torch"] == torch.__version__
    assert manifest["versions"]["python"] == sys.version.split()[0]
    assert manifest["machine"]["threads"] == torch.get_num_threads()
    assert manifest["machine"]["usable_cpu_count"] >= 1
    text = json.dumps(manifest, allow_nan=False)
    assert "hf_very_secret" not in text
    assert "someone_private" not in text
