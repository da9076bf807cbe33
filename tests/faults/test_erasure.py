"""Kills of jobs that forget and that prove: `python -m load_tests.erasure` has fifty of each."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_half_forgotten_and_receipts_hold(seed):
    words = [sys.executable, "-m", "load_tests.erasure", "--kills", "3", "--seed", str(seed)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert (
        result["wrong"] == []
        and sum(sum(stages.values()) for stages in result["reached"].values()) == result["kills"] == 6
    )
