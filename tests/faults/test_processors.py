"""Two kinds of processors in one run: what is counted is equal bit for bit, what is computed from it agrees to the last digits.

docs/reliability.md says so. The environment makes numpy, OpenBLAS and numba take the code of another processor.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__

ROOT = Path(__file__).parent.parent.parent
TRAINED = """
import hashlib, json, sys
from learners import Source, drive, encode
from learners.registry import recipes
source = Source.open("rows.parquet")
said = {}
for title, name, parameters in (
    ("nb", "nb", {}), ("kdb", "kdb", {"k": 2}), ("auto", "auto", {"members": 2}),
    ("learnspn", "spn", {"structure": "learnspn"}), ("random", "spn", {"structure": "random"}), ("spn", "spn", {"minutes": 0.01}),
):
    model = drive(recipes.learner(name, parameters, "class"), source, threads=1)
    header, arrays = model.to_arrays()
    whole = {key: hashlib.sha256(a.tobytes()).hexdigest() for key, a in sorted(arrays.items()) if a.dtype.kind in "iu"}
    batch = next(source.batches())
    said[title] = {"schema": model.schema.fingerprint, "whole": whole, "p": model.predict_proba(encode(batch, model.schema)).tolist()}
json.dump(said, sys.stdout)
"""
OTHER = {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__)}
AGREE = 1e-9  # auto differs by 1e-13 today, circuits by 1e-15


def said(folder, environment):
    """What models say that a process of such a processor has trained."""
    around = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"} | environment
    done = subprocess.run(
        [sys.executable, "-c", TRAINED], cwd=folder, env=around, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# numba for no processor in particular compiles every kernel anew: a minute.
@pytest.mark.parametrize(
    "environment", [OTHER, pytest.param(OTHER | {"NUMBA_CPU_NAME": "generic"}, marks=pytest.mark.faults)]
)
def test_another_processor_counts_the_same_and_agrees_in_every_answer(environment, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (2, 800))
    number = rng.normal(size=800) + a
    label = np.char.mod("c%d", (a + b + (number > 2) + (rng.random(800) < 0.1)) % 3)
    pq.write_table(
        pa.table({"a": np.char.mod("v%d", a), "b": b, "number": number, "class": label}), tmp_path / "rows.parquet"
    )
    here, there = said(tmp_path, {}), said(tmp_path, environment)
    for name in ("nb", "kdb", "learnspn", "random", "spn"):
        assert here[name]["schema"] == there[name]["schema"]
        assert here[name]["whole"] and here[name]["whole"] == there[name]["whole"], name
    for name, own in here.items():
        np.testing.assert_allclose(there[name]["p"], own["p"], rtol=0, atol=AGREE, err_msg=name)
