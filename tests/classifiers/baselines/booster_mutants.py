"""Tries changed boosters, each in a process forked from this one, and prints how many ended in which way.

`python -m tests.classifiers.baselines.booster_mutants MODEL.duckdb N SEED`; this process itself never calls XGBoost, whose threads no
fork would survive.
"""

import json
import multiprocessing
import os
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from service.product.versions import export_import
from storage.models.model_file import read_model_file

REFUSED = 3  # the exit code


def change(array, rng):
    changed = np.array(array)
    for _ in range(rng.choice([1, 1, 1, 4])):
        changed[rng.randrange(changed.size)] ^= 1 << rng.randrange(8)
    return changed


def attempt(header, arrays):
    os._exit(REFUSED if export_import.model_refusal_reason(header, arrays) else 0)


def main(path, n, seed):
    header, arrays = read_model_file(path)
    rng, ends = random.Random(seed), Counter()
    fork = multiprocessing.get_context("fork")
    for _ in range(n):
        process = fork.Process(target=attempt, args=(header, arrays | {"booster": change(arrays["booster"], rng)}))
        process.start()
        process.join(60)
        ends["hangs" if process.exitcode is None else str(process.exitcode)] += 1
        process.kill()
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
