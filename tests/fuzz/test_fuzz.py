"""A seeded sample of what `make fuzz` tries, and all inputs that it has ever found.

Each parser runs in a process of its own, as a damaged file can end a process.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.__main__ import FOUND
from tests.fuzz.mutating import mutated

VALID = """
from tests.fuzz.targets import ARROW, JSON, TARGETS, application
own = application()
asked = [("predict-arrow", "/v1/models/weather/predict", ARROW), ("predict-json", "/v1/models/weather/predict", JSON),
         ("query-json", "/v1/models/weather/query", JSON), ("invocations-csv", "/invocations", b"text/csv")]
for name, path, kind in asked:
    print("valid", name, *[own.ask(path, seed, {b"content-type": kind}) for seed in TARGETS[name].seeds()])
print("valid import", own.ask("/v1/models/imported/import", own.export, {b"content-type": b"application/x-tar"}))
"""
MUTATED = """
import os, random, sys
from pathlib import Path
from tests.fuzz.mutating import mutated
from tests.fuzz.targets import TARGETS
for asked in sys.argv[2:]:
    name, n = asked.split(":")
    target, rng = TARGETS[name], random.Random(f"{name} {sys.argv[1]}")
    seeds = target.seeds()
    found = sorted(Path("tests/fuzz/found", name).glob("*"))
    cases = [*seeds, *(path.read_bytes() for path in found), *(mutated(rng, seeds) for _ in range(int(n)))]
    for content in cases:
        Path(os.environ["LAST"], name).write_bytes(content)
        target.parse(content)
    print("mutated", name, len(cases))
"""
IN_THE_APPLICATION = ["predict-arrow", "predict-json", "infer-binary", "query-json", "invocations-csv", "import"]
OF_FILES = {"circuit": 400, "cron": 400, "parquet": 400, "where": 30}


def told(program, n_of):
    """What a process of its own says of mutants, by the first word of its lines and the name of the parser."""
    root = Path(__file__).parents[2]
    asked = [f"{name}:{n}" for name, n in n_of.items()]
    command = [sys.executable, "-c", program, os.environ.get("FEWPASS_TEST_SEED", "0"), *asked]
    environment = os.environ | {"PYTHONPATH": str(root), "FEWPASS_LOG_LEVEL": "error", "NUMBA_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        environment["LAST"] = folder
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        stored = store_last(Path(folder)) if done.returncode else None
    assert done.returncode == 0, f"{done.stderr[-4000:]}\nThe input is stored in {stored}: commit it with the repair."
    lines: dict[str, dict[str, str]] = {"valid": {}, "mutated": {}}
    for line in done.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in lines:
            lines[kind][rest.partition(" ")[0]] = rest.partition(" ")[2]
    return lines


def store_last(folder, found=FOUND):
    """Where the input is that a parser did not survive: every later run tries it again."""
    last = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, default=None)
    if last is None:
        return None
    place = found / last.name / hashlib.sha256(last.read_bytes()).hexdigest()[:16]
    place.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copyfile(last, place)


def test_an_input_that_does_harm_is_stored(tmp_path):
    (tmp_path / "work").mkdir()
    assert store_last(tmp_path / "work", tmp_path / "found") is None
    for name in ("cron", "where"):
        (tmp_path / "work" / name).write_bytes(name.encode())
    os.utime(tmp_path / "work" / "cron", (0, 0))
    stored = store_last(tmp_path / "work", tmp_path / "found")
    assert stored.parent == tmp_path / "found" / "where" and stored.read_bytes() == b"where"


def test_no_input_does_harm_in_the_application():
    found = told(VALID + MUTATED, dict.fromkeys(IN_THE_APPLICATION, 20) | {"import": 4})
    assert list(found["mutated"]) == IN_THE_APPLICATION
    # Else the mutants of a parser would all be refused for one reason, and nothing would be tried.
    statuses = found["valid"]
    assert statuses.keys() >= {"predict-arrow", "predict-json", "query-json", "invocations-csv"}
    assert statuses.pop("import") == "201"
    assert all(set(each.split()) == {"200"} for each in statuses.values()), statuses


def test_no_file_or_text_does_harm():
    assert list(told(MUTATED, OF_FILES)["mutated"]) == list(OF_FILES)


def test_mutants_are_reproducible_and_differ():
    made = [[mutated(random.Random(seed), [b"abc", b"1234"]) for _ in range(3)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_what_was_found_belongs_to_a_parser():
    known = {*IN_THE_APPLICATION, *OF_FILES}
    assert {path.name for path in FOUND.glob("*")} <= known
