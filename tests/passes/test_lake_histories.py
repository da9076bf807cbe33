"""A refresh of a lake table is the model of its newest snapshot, bit for bit, whatever has happened to the table."""

import os

import numpy as np
import pytest

from learners.passes.learner import MemoryStore, Part, drive
from learners.passes.sources.lake.lake_tables import KnownSnapshot
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source, file_identity
from learners.registry import recipes
from learners.schema import Kept
from tests.lake_tables import DeltaHistory, IcebergHistory, anew
from tests.support.kept_seeds import kept_seeds, storing
from tests.support.passes import same

STEPS = ["append", "append", "delete", "delete", "merge", "compact", "compact", "overwrite", "vacuum", "grow"]
LEARNERS = [("nb", {}), ("kdb", {"k": 1})]
KINDS = [DeltaHistory, IcebergHistory]


def noted(source):
    """What a workspace notes of a snapshot after a training."""
    snapshot = source.snapshot
    files = {file.key: file_identity(told) for file, told in zip(snapshot.files, source.files, strict=True)}
    return KnownSnapshot(snapshot.kind, snapshot.folder, snapshot.version, files)


def run_history(kind, folder, seed, n_steps):
    """Returns what has happened and what was saved."""
    rng = np.random.default_rng(seed)
    learner, store, known, kept = LEARNERS[seed % len(LEARNERS)], MemoryStore(), None, None
    folder.mkdir()
    history, seen = kind(folder / "table", rng), set()
    for _ in range(n_steps):
        source = Source.open(history.path)
        source = source if known is None else source.since(known)
        chosen = Selection(source, dict.fromkeys(range(len(source.files)), ()))
        asked = recipes.learner(*learner, "class", None if kept is None else Kept(kept), {"person": "nominal"})
        accounts = []
        model = drive(asked, [Part(chosen.source, store, chosen)], threads=1, accounts=accounts)
        assert same(model, anew(history.rows(), folder, kept, learner)), (seed, seen)
        known, kept = noted(source), model.schema
        seen |= {"reused"} if any(account.n_rows_reused for account in accounts) else set()
        for step in rng.choice(STEPS, rng.integers(1, 4)):
            getattr(history, step)()
            seen.add(str(step))
        if not history.rows().num_rows:
            history.append()
    return seen


def run_histories(kind, folder, seeds, n_steps):
    """What all have seen; those that have failed before run first."""
    seen, name = set(), kind.__name__
    for one in (*kept_seeds(name), *({"seed": seed, "steps": n_steps} for seed in seeds)):
        with storing(name, **one):
            seen |= run_history(kind, folder / f"{one['seed']}-{one['steps']}", one["seed"], one["steps"])
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_histories(kind, tmp_path):
    """Short random ones: `make faults` takes 200 longer ones."""
    first = int(os.environ.get("FEWPASS_TEST_SEED", "0")) * 1000
    seen = run_histories(kind, tmp_path, range(first, first + 10), 3)
    assert seen == {*STEPS, "reused"}


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_many_histories(kind, tmp_path):
    run_histories(kind, tmp_path, range(100_000, 100_200), 9)
