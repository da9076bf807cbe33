"""A seeded sample of what `make fuzz` tries, and all inputs that it has ever found.

Each parser runs in a process of its own, as a damaged file can end a process.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import FOUND
from tests.fuzz.mutating import mutated

ONE = """
import random, sys
from pathlib import Path
from tests.fuzz.mutating import mutated
from tests.fuzz.targets import TARGETS
n, seed = int(sys.argv[1]), sys.argv[2]
for name in sys.argv[3:]:
    target, rng = TARGETS[name], random.Random(f"{name} {seed}")
    seeds = target.seeds()
    found = sorted(Path("tests/fuzz/found", name).glob("*"))
    cases = [*seeds, *(path.read_bytes() for path in found), *(mutated(rng, seeds) for _ in range(n))]
    for content in cases:
        print(name, content[:3000].hex(), file=sys.stderr)
        target.parse(content)
    print(name, len(cases))
"""
IN_THE_APPLICATION = ["predict-arrow", "predict-json", "infer-binary", "query-json", "invocations-csv", "import"]


@pytest.mark.parametrize(
    ("names", "n"),
    [(IN_THE_APPLICATION, 150), (["circuit", "cron", "parquet"], 1000), (["where"], 60)],
    ids=["application", "files", "where"],
)
def test_no_input_does_harm(names: list[str], n: int) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", ONE, str(n), os.environ.get("FEWPASS_TEST_SEED", "0"), *names]
    environment = os.environ | {"PYTHONPATH": str(root), "FEWPASS_LOG_LEVEL": "error", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert [line.split()[0] for line in done.stdout.splitlines() if line.split()[0] in names] == names


def test_valid_inputs_are_answered() -> None:
    """Else the mutants of a target would all be refused for one reason, and nothing would be tried."""
    root = Path(__file__).parents[2]
    program = (
        "from tests.fuzz.targets import ARROW, JSON, TARGETS, application, circuits, CONDITIONS, where\n"
        "own = application()\n"
        "asked = [('predict-arrow', '/v1/models/weather/predict', ARROW), ('predict-json', '/v1/models/weather/predict', JSON),\n"
        "         ('query-json', '/v1/models/weather/query', JSON), ('invocations-csv', '/invocations', b'text/csv')]\n"
        "for name, path, kind in asked:\n"
        "    print(name, [own.ask(path, seed, {b'content-type': kind}) for seed in TARGETS[name].seeds()])\n"
        "print('import', [own.ask('/v1/models/imported/import', own.export, {b'content-type': b'application/x-tar'})])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(root), "FEWPASS_LOG_LEVEL": "error", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    statuses = {line.split()[0]: line.partition(" ")[2] for line in done.stdout.splitlines() if line[0] in "piq"}
    assert set(statuses) >= {"predict-arrow", "predict-json", "query-json", "invocations-csv", "import"}
    assert statuses.pop("import") == "[201]"
    assert all(set(told.strip("[]").split(", ")) == {"200"} for told in statuses.values()), statuses


def test_mutants_are_reproducible_and_differ() -> None:
    made = [[mutated(random.Random(seed), [b"abc", b"1234"]) for _ in range(3)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_what_was_found_belongs_to_a_parser() -> None:
    known = {*IN_THE_APPLICATION, "circuit", "cron", "parquet", "where"}
    assert {path.name for path in FOUND.glob("*")} <= known
