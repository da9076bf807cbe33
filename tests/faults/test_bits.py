"""Single bits flip in every file of ours: an error by name, or the same answers, never others.

`make test` flips a few, `make faults` at least 2,000.
"""

import os
import random
import shutil
from collections import Counter

import pytest

from tests.processes import record

# Files by what they are: where they lie, what is asked of them, and of 2,000 flips how many.
FILES = {
    "serving file": ("workspace/models/m/*.arrow", "served", 500),
    "model file": ("workspace/models/m/*.duckdb", "read", 400),
    "manifest": ("workspace/models/m/*.sha256", "served", 100),
    "statistics": ("workspace/models/m/data/statistics/*.duckdb", "learned", 200),
    "statistics' note": ("workspace/models/m/data/statistics/*.json", "learned", 150),
    "kept schema": ("workspace/models/m/data/schemas/*.json", "learned", 100),
    "rules of forgotten rows": ("workspace/models/m/data/forgotten.json", "learned", 200),
    "order of columns": ("workspace/datasets/d/columns.json", "learned from data set", 60),
    "verified contents": ("workspace/datasets/d/contents.json", "learned from data set", 60),
    "control database": ("workspace/control.sqlite", "served", 150),
    "export": ("m.tar", "imported", 150),
    "backup": ("kept/**/*", "restored", 150),
}
FLIPS = sum(n for _, _, n in FILES.values())


@pytest.fixture(scope="module")
def forgotten(forker):
    """The workspace after rows were forgotten and data was registered, so that there are rules and notes to damage."""
    forker.reset()
    assert "error" not in forker.ask("forget")
    assert "error" not in (told := forker.ask("registered")), told
    shutil.copytree(forker.run, forker.folder / "ruled", dirs_exist_ok=True)
    return forker


def flip(path, offset, bit):
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def ended(answer, expected):
    if answer["signal"]:
        return "crash"
    if "error" in answer:
        return "refused" if answer["is_expected"] else "bare error"
    return "same" if answer == expected else "other"


def flips(forker, kind, n, seed):
    """What `n` flips in files of a kind did, and the places of those that broke the promise."""
    pattern, question, _ = FILES[kind]
    rng, found, broken = random.Random(f"{kind} {seed}"), Counter(), []
    is_read_only = question in {"served", "read"}

    def reset():
        shutil.rmtree(forker.run)
        shutil.copytree(forker.folder / "ruled", forker.run)

    reset()
    expected = forker.ask(question)
    assert "error" not in expected, expected
    reset()
    for _ in range(n):
        files = sorted(path for path in forker.run.glob(pattern) if path.is_file() and path.stat().st_size)
        path = rng.choice(files)
        offset, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
        flip(path, offset, bit)
        answer = forker.ask(question)
        outcome = ended(answer, expected)
        found[outcome] += 1
        if outcome not in {"same", "refused"}:
            broken.append(f"{outcome}: {path.name} byte {offset} bit {bit}: {answer.get('text', answer)!s:.1500}")
        flip(path, offset, bit) if is_read_only else reset()
    return found, broken


@pytest.mark.parametrize("kind", [kind for kind, (_, question, _) in FILES.items() if question in {"served", "read"}])
def test_a_few_flips(forgotten, kind):
    found, broken = flips(forgotten, kind, 4, int(os.environ.get("FEWPASS_TEST_SEED", "0")))
    assert found.keys() <= {"same", "refused"}, broken


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", FILES)
def test_many_flips(forgotten, kind):
    found, broken = flips(forgotten, kind, FILES[kind][2], 1)
    record({"file": kind, "flips": FILES[kind][2], **found})
    assert found.keys() <= {"same", "refused"}, "\n".join(broken[:20])


def test_the_full_run_flips_two_thousand_bits():
    assert FLIPS >= 2_000
