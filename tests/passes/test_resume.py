"""A run that is killed goes on from its checkpoints, and ends with the same model."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from learners import Source, collect, drive, load_model
from learners.counts.pairwise import PairwiseCounts
from learners.errors import Cancelled
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.learner import MemoryStore
from learners.passes.sources.row_filter import Selection
from learners.passes.statistic_reuse import Recall, Supply
from learners.registry import recipes
from storage.datasets.statistics import CheckpointFile
from storage.models.compiled import map_compiled
from tests.processes import wait_for
from tests.support.passes import User, days, learned, same

# Each line it is sent starts a run of its own; only the importing, which takes a second, is done once for all of them.
PROGRAM = """
import os, sys
from learners.registry import recipes
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from service.product.datasets.dataset_statistics import ForgivingStore, JobCheckpoints
from storage.models.compiled import write_compiled
from storage.datasets.statistics import StatisticStore
from pathlib import Path
data, work = map(Path, sys.argv[1:])
for line in sys.stdin:
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    model = drive(
        recipes.learner("kdb", {"k": 2}, "class", None, {"user": "drop", "time": "drop"}),
        Source.open(data),
        store=ForgivingStore(work / "statistics", 2**30),
        checkpoints=JobCheckpoints(work / "passes", 0.0),
    )
    write_compiled(work / "model.arrow", *model.to_arrays(), replace=True)
    os._exit(0)
"""


@pytest.fixture
def folder(tmp_path):
    return days(tmp_path / "data", 4, n=5000)


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
    monkeypatch.setattr("learners.passes.threads.REPORT_EVERY_S", 0.001)
    source, checkpoint = Source.open(folder), Checkpoint()
    whole = collect(ColumnSummaries("class"), source, threads=2)
    raw, reports, stopped = Source.read_weighted, [], threading.Event()

    def stop(progress):
        reports.append(progress)
        if len(checkpoint.saved) >= 3:
            stopped.set()
            raise Cancelled("enough")

    def behind(self, fragment, *rest):
        """No thread runs ahead of the one that saves."""
        n_reports = len(reports)
        wait_for(lambda: stopped.is_set() or len(reports) > n_reports + 1)
        return raw(self, fragment, *rest)

    with monkeypatch.context() as patched, pytest.raises(Cancelled):
        patched.setattr(Source, "read_weighted", behind)
        collect(ColumnSummaries("class"), source, threads=2, on_progress=stop, checkpoint=checkpoint)
    done = checkpoint.saved[-1][1]["fragments"]
    assert 0 < len(done) < len(source.fragments)
    read = []

    def noted(self, fragment, *rest):
        read.append(fragment)
        return raw(self, fragment, *rest)

    monkeypatch.setattr(Source, "read_weighted", noted)
    assert collect(ColumnSummaries("class"), source, threads=2, checkpoint=checkpoint) == whole
    left = [fragment for index, fragment in enumerate(source.fragments) if index not in done]
    assert sorted(read, key=source.fragments.index) == left


def test_each_source_of_a_pass_has_a_checkpoint_of_its_own(folder):
    """The rows to subtract lie in several sources: the second must not get what the first has counted."""
    source, store, checkpoints = Source.open(folder), MemoryStore(), dict[str, Checkpoint]()
    pairs = PairwiseCounts(learned("nb", {}, source).schema)
    chosen = Selection(source, {0: (User(),), 1: (User(),), 2: (), 3: ()})

    def finished(statistic, part, key):
        """A pass that was over, and its checkpoint saved, when the run was killed."""
        checkpoint = checkpoints.setdefault(key, Checkpoint())
        whole = collect(statistic, part, checkpoint=checkpoint)
        checkpoint.save(whole.to_arrow(), {"fragments": list(range(len(part.fragments)))})
        return whole

    for rows, selection in ((source, None), (chosen.source, chosen)):
        recall = Recall(Supply(rows, selection), store, finished, lambda put, *a, **named: put(*a, **named))
        assert recall.statistic(pairs) == collect(pairs, rows)
    assert recall.accounts[0].n_files_read == 2, "only what leaves was read"


def test_a_damaged_checkpoint_is_not_believed(tmp_path, folder):
    file = CheckpointFile(tmp_path / "pass.checkpoint")
    assert file.load() is None
    statistic = collect(ColumnSummaries("class"), Source.open(folder))
    file.save(statistic.to_arrow(), {"fragments": [1, 2]})
    table, note = file.load()
    assert note == {"fragments": [1, 2]}
    assert ColumnSummaries("class").from_arrow(table) == statistic
    content = file.path.read_bytes()
    file.path.chmod(0o644)
    flipped = (content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :] for at in (0, 40, len(content) // 2))
    for broken in (*flipped, content[:-1] + bytes([content[-1] ^ 0xFF]), content[:10]):
        file.path.write_bytes(broken)
        assert file.load() is None


def test_killed_at_random_moments_a_job_ends_with_the_same_model(tmp_path, folder):
    """Six kills."""
    work, chance, n_kills = tmp_path / "work", random.Random(1), 0
    command = [sys.executable, "-c", PROGRAM, str(folder), str(work)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as starter:

        def run(kill_after):
            starter.stdin.write("run\n")
            pid = int(starter.stdout.readline())
            if kill_after is not None:
                time.sleep(kill_after)
                with contextlib.suppress(ProcessLookupError):  # it was faster
                    os.kill(pid, signal.SIGKILL)
            return int(starter.stdout.readline())

        while n_kills < 6:
            if run(chance.uniform(0.01, 0.4)) == 0:
                shutil.rmtree(work)
            else:
                n_kills += 1
        assert run(None) == 0
        starter.stdin.close()
    resumed = load_model(*map_compiled(work / "model.arrow"))
    learner = recipes.learner("kdb", {"k": 2}, "class", None, {"user": "drop", "time": "drop"})
    assert same(resumed, drive(learner, Source.open(folder)))
