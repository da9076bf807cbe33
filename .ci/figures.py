"""A few figures beside those that landed, in .ci/figures.json: a step back past its tolerance fails with the sentence that says which.

python .ci/figures.py            # after `fewpass precompile`, so that no kernel is compiled here
python .ci/figures.py --write    # new expected values; the commit says why they change

Processor seconds are multiples of a fixed loop in the same run, so that they hold on any machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EXPECTED = Path(__file__).with_suffix(".json")
TABLES = ("breast_cancer", "iris", "wine", "digits")
# How much larger than expected a figure may be: of some dozen test rows a log loss is rough, and processor time depends on what else runs.
TOLERANCES = {"log loss": 1.2, "processor": 2.0, "memory": 1.4}
ROUNDS = 3


def losses() -> dict[str, float]:
    """Log loss of `auto` on a third of four tables that scikit-learn brings."""
    from sklearn import datasets
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    from fewpass import FewPassClassifier

    found = {}
    for name in TABLES:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        train, test, y_train, y_test = train_test_split(x, y, test_size=1 / 3, random_state=0, stratify=y)
        model = FewPassClassifier(threads=1).fit(train, y_train)
        found[f"log loss of auto on {name}"] = log_loss(y_test, model.predict_proba(test), labels=model.classes_)
    return found


def unit() -> float:
    """Processor seconds of a fixed loop of numpy and Python, which sorts nothing: numpy sorts five times faster where AVX2 or AVX-512 is."""
    import numpy as np

    started = time.process_time()
    codes = np.random.default_rng(0).integers(0, 1 << 16, 1 << 20)
    numbers = codes / 7
    for _ in range(20):
        np.bincount(codes, weights=numbers, minlength=1 << 16)
        np.cumsum(numbers[codes])
    sum(index * index % 7 for index in range(2_000_000))
    return time.process_time() - started


def costs() -> dict[str, float]:
    """What training `auto` on 20,000 rows and 10,000 predictions cost in this process, and its peak memory."""
    import numpy as np
    import pyarrow as pa

    from fewpass import FewPassClassifier
    from service.operations.bench import peak_rss_bytes

    rng = np.random.default_rng(0)
    columns = {f"c{i}": np.char.mod("v%d", rng.integers(0, 6, 20_000)) for i in range(6)}
    columns |= {f"n{i}": rng.normal(size=20_000) for i in range(6)}
    y = (columns["c0"] == columns["c1"]) ^ (columns["n0"] > 0.5) ^ (rng.random(20_000) < 0.1)
    table = pa.table(columns | {"class": np.where(y, "yes", "no")})
    FewPassClassifier(threads=1).fit(table.slice(0, 500), "class").predict_proba(table.slice(0, 10))  # loads kernels
    of_unit = unit()
    before = time.process_time()
    model = FewPassClassifier(threads=1).fit(table, "class")
    trained = time.process_time()
    for _ in range(10):
        model.predict_proba(table.slice(0, 10_000))
    predicted = time.process_time()
    return {
        "processor time of training auto on 20,000 rows": (trained - before) / of_unit,
        "processor time of 10,000 predictions of auto": (predicted - trained) / 10 / of_unit,
        "memory of that process at its peak, MiB": peak_rss_bytes() / 2**20,
    }


def starts() -> dict[str, float]:
    """Processor time of `import fewpass` and `fewpass --help`, with compiled modules on disk, as after an installation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def cpu(*command: str) -> float:
        before = os.times()
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    of_unit = unit()
    bare = min(cpu(sys.executable, "-c", "pass") for _ in range(ROUNDS))
    imported = min(cpu(sys.executable, "-c", "import fewpass") for _ in range(ROUNDS)) - bare
    helped = min(cpu(sys.executable, "-m", "service.cli", "--help") for _ in range(ROUNDS))
    # What an import takes is next to nothing: a tenth of the unit is added, so that noise is not a step back.
    return {
        "processor time of import fewpass": 0.1 + imported / of_unit,
        "processor time of fewpass --help": helped / of_unit,
    }


def in_fresh_process(part: str) -> dict[str, float]:
    """The figures of a part, by a process that has done nothing else."""
    command = [sys.executable, __file__, "--part", part]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured() -> dict[str, float]:
    """All figures; of those that other processes disturb the median of some rounds."""
    rounds = [in_fresh_process("costs") | in_fresh_process("starts") for _ in range(ROUNDS)]
    return in_fresh_process("losses") | {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def steps_back(found: dict[str, float], expected: dict[str, float]) -> list[str]:
    """A sentence for each figure that is worse than expected by more than its tolerance, or that nobody expects."""
    said = [f"{name}: no expected value; --write adds it." for name in found if name not in expected]
    for name, value in expected.items():
        most = value * next(factor for word, factor in TOLERANCES.items() if name.startswith(word))
        if name not in found:
            said.append(f"{name}: no longer measured; --write drops it.")
        elif found[name] > most:
            said.append(f"{name}: {found[name]:.4g}, expected {value:.4g}, at most {most:.4g}.")
    return said


def main() -> None:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make what is measured the expected values")
    parser.add_argument("--part", choices=("losses", "costs", "starts"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        parts: dict[str, Any] = {"losses": losses, "costs": costs, "starts": starts}
        print(json.dumps(parts[given.part]()))
        return
    found = measured()
    if given.write:
        EXPECTED.write_text(json.dumps({name: round(value, 4) for name, value in found.items()}, indent=2) + "\n")
        return
    expected: dict[str, float] = json.loads(EXPECTED.read_text())
    for name, value in found.items():
        print(f"{name}: {value:.4g} (expected {expected.get(name, float('nan')):.4g})")
    if said := steps_back(found, expected):
        sys.exit("A step back:\n" + "\n".join(said))


if __name__ == "__main__":
    main()
