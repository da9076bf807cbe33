"""A training job killed with SIGKILL at random moments, two hundred times: equal models, and how much work is repeated.

python -m benchmarks.resume --kills 200
python -m benchmarks.resume --learner spn --parameters '{"structure": "hclt", "passes": 3}' --rows 500000 --kills 50
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks import tables
from benchmarks.measuring import Figure, machine, report

# A worker that survives: it forks a child for every run, so that a kill does not cost the imports again.
PROGRAM = """
import json, os, sys
from pathlib import Path
from learners.registry import recipes
from learners.counts.pairs import pairwise
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from service.jobs.checkpoints import ForgivingStore, JobCheckpoints
from storage.models.compiled import write_compiled
from storage.datasets.statistics import StatisticStore
data, schema, every_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
learner, parameters = sys.argv[4], json.loads(sys.argv[5])
from learners.schema import Schema
for line in sys.stdin:
    work = Path(line.strip())
    child = os.fork()
    if child == 0:
        raw = Source.read
        log = (work / "read.log").open("a", buffering=1)
        def read(self, fragment, columns=None):
            log.write(f"{self.fragments.index(fragment)}\\n")
            return raw(self, fragment, columns)
        Source.read = read
        model = drive(
            recipes.learner(learner, parameters, "class", Schema.from_json(schema.read_text())),
            Source.open(data),
            store=ForgivingStore(work / "statistics", 2**32),
            checkpoints=JobCheckpoints(work / "passes", every_s),
        )
        write_compiled(work / "model.arrow", *model.to_arrays(), replace=True)
        os._exit(0)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(status, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--every-s", type=float, default=0.1)
    parser.add_argument("--learner", default="kdb")
    parser.add_argument("--parameters", default='{"k": 2}', help="of the learner, as JSON")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    from learners.passes.inference import infer_schema
    from learners.passes.sources.source import Source
    from storage.models.compiled import map_compiled

    path = tables.table(args.rows)
    source = Source.open(str(path))
    schema = infer_schema(source, "class")
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schema.json").write_text(schema.to_json())
        command = [sys.executable, "-c", PROGRAM, str(path), f"{folder}/schema.json", str(args.every_s)]
        command += [args.learner, args.parameters]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:

            def run(work: Path, kill_after_s: float | None) -> bool:
                """Whether it was killed."""
                work.mkdir(exist_ok=True)
                worker.stdin.write(f"{work}\n")
                worker.stdin.flush()
                child = int(worker.stdout.readline())
                if kill_after_s is not None:
                    time.sleep(kill_after_s)
                    with suppress(ProcessLookupError):  # it was faster
                        os.kill(child, signal.SIGKILL)
                return int(worker.stdout.readline()) != 0

            started = time.perf_counter()
            run(Path(folder) / "whole", None)
            whole_s = time.perf_counter() - started
            _, expected = map_compiled(Path(folder) / "whole" / "model.arrow")
            n_fragments = len((Path(folder) / "whole" / "read.log").read_text().split())
            kills, jobs, repeated, equal = 0, 0, [], 0
            while kills < args.kills:
                work, killed_here = Path(folder) / f"job-{jobs}", 0
                while kills < args.kills and run(work, chance.uniform(0.02, 0.5 * whole_s)):
                    kills, killed_here = kills + 1, killed_here + 1
                run(work, None)
                jobs += 1
                _, arrays = map_compiled(work / "model.arrow")
                equal += all(np.array_equal(arrays[name], expected[name], equal_nan=True) for name in expected)
                if killed_here:
                    read = len((work / "read.log").read_text().split())
                    repeated.append((read - n_fragments) / killed_here)
            worker.stdin.close()
    per_kill = statistics.mean(repeated)
    detail = f"{kills} kills; {n_fragments} fragments in {whole_s:.2f} s are a whole run"
    figures = [
        Figure(
            "jobs with equal models", equal / jobs, equal / jobs, equal / jobs, "1", "1", f"{equal} of {jobs}; {detail}"
        ),
        Figure("fragments repeated per kill", per_kill, min(repeated), max(repeated), "", "", "spread over jobs"),
    ]
    facts = {
        "kills": kills,
        "jobs": jobs,
        "equal_models": equal,
        "seconds_of_a_run": whole_s,
        "fragments_of_a_run": n_fragments,
        "fragments_repeated_per_kill": per_kill,
        "checkpoint_every_s": args.every_s,
        "machine": machine(),
    }
    report("Killed and resumed", figures, facts, args.json)
    if equal < jobs:
        raise SystemExit("some models differ")


if __name__ == "__main__":
    main()
