"""A run that is killed goes on from its checkpoints, and ends with the same model."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from learners import recipes
from learners.errors import Cancelled
from learners.passes.engine import collect
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.summaries import ColumnSummaries
from storage.checkpoints import CheckpointFile
from storage.compiled import map_compiled
from tests.passes.test_engine import same
from tests.passes.test_reuse import write

PROGRAM = """
import sys
from learners import recipes
from learners.passes.learner import drive
from learners.passes.source import Source
from service.jobs.checkpoints import ForgivingStore, JobCheckpoints
from storage.compiled import write_compiled
from storage.statistics import StatisticStore
from pathlib import Path
data, work = map(Path, sys.argv[1:])
model = drive(
    recipes.learner("kdb", {"k": 2}, "class", None, {"user": "drop", "time": "drop"}),
    Source.open(data),
    store=ForgivingStore(StatisticStore(work / "statistics"), 2**30),
    checkpoints=JobCheckpoints(work / "passes", 0.0),
)
write_compiled(work / "model.arrow", *model.to_arrays(), replace=True)
"""


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for day in range(4):
        write(data, day, n=5000)
    return data


class Checkpoint:
    """One that keeps everything and is asked for all the time."""

    every_s = 0.0

    def __init__(self):
        self.saved = []

    def load(self):
        return self.saved[-1] if self.saved else None

    def save(self, table, note):
        self.saved.append((table, note))


def test_what_was_saved_is_not_read_again(folder, monkeypatch):
    monkeypatch.setattr("learners.passes.engine.REPORT_EVERY_S", 0.001)
    source, checkpoint = Source.open(folder), Checkpoint()
    whole = collect(ColumnSummaries("class"), source, threads=2)

    def stop(progress):
        if len(checkpoint.saved) >= 3:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        collect(ColumnSummaries("class"), source, threads=2, on_progress=stop, checkpoint=checkpoint)
    done = checkpoint.saved[-1][1]["fragments"]
    assert 0 < len(done) < len(source.fragments)
    read = []
    raw = Source.read
    monkeypatch.setattr(Source, "read", lambda self, fragment, *a: (read.append(fragment), raw(self, fragment, *a))[1])
    assert collect(ColumnSummaries("class"), source, threads=2, checkpoint=checkpoint) == whole
    assert sorted(read, key=source.fragments.index) == [
        fragment for index, fragment in enumerate(source.fragments) if index not in done
    ]


def test_a_damaged_checkpoint_is_not_believed(tmp_path, folder):
    file = CheckpointFile(tmp_path / "pass.checkpoint")
    assert file.load() is None
    statistic = collect(ColumnSummaries("class"), Source.open(folder))
    file.save(statistic.to_arrow(), {"fragments": [1, 2]})
    table, note = file.load()
    assert note == {"fragments": [1, 2]}
    assert ColumnSummaries("class").from_arrow(table) == statistic
    content = bytearray(file.path.read_bytes())
    file.path.chmod(0o644)
    for position in (0, 40, len(content) // 2, len(content) - 1):
        broken = bytearray(content)
        broken[position] ^= 0xFF
        file.path.write_bytes(broken)
        assert file.load() is None
    file.path.write_bytes(content[:10])
    assert file.load() is None


def test_killed_at_random_moments_a_job_ends_with_the_same_model(tmp_path, folder):
    """Ten kills; `python -m benchmarks.resume` does two hundred."""
    work, chance = tmp_path / "work", random.Random(1)
    kills = 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(work)])
        try:
            process.wait(chance.uniform(0.5, 2.0) if kills < 10 else 120)
            break
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            time.sleep(0.01)
    assert process.returncode == 0
    from learners.kinds import load_model

    resumed = load_model(*map_compiled(work / "model.arrow"))
    learner = recipes.learner("kdb", {"k": 2}, "class", None, {"user": "drop", "time": "drop"})
    assert same(resumed, drive(learner, Source.open(folder)))
