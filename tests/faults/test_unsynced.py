"""The power fails after each call, and the disk forgets all that was not synced: nothing acknowledged is lost.

`make test` looks at the last state of each operation and a seeded sample of the others, `make faults` at every one.
"""

import os
import random
import shutil
from collections import Counter

import pytest

from tests.faults.unsynced import Disk, names_of, of_path, write
from tests.processes import record
from tests.support.seen_states import Reference, same_bits, seen

OPERATIONS = ["alias", "publish", "train", "update", "delete", "backup", "restore"]
MADE = {"backup": "copy", "restore": "restored"}


def states_of(forker, operation, *, keeps_names):
    """The different states that a power cut may leave, in the order of the calls, and which is the first after the answer."""
    forker.reset()
    log, kept = forker.folder / "unsynced.log", forker.folder / "kept"
    log.unlink(missing_ok=True)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    disk = Disk(forker.run, kept)
    done = forker.ask(operation, log=log, keep=kept)
    assert "error" not in done, done
    found = [disk.left(keeps_names=keeps_names)]
    acknowledged = None
    for line in log.read_text().splitlines():
        if line == "0 acknowledged /":
            acknowledged = len(found) - 1
            continue
        disk.follow(line)
        if (left := disk.left(keeps_names=keeps_names)) != found[-1]:
            found.append(left)
    assert names_of(disk.root) == names_of(of_path(forker.run)), "the model of the disk is not what happened"
    return found, len(found) - 1 if acknowledged is None else acknowledged


def look(forker, operation, reference, state):
    """Which state others see after the power cut; raises if a promise was broken."""
    shutil.rmtree(forker.run)
    write(state, forker.run)
    facts = forker.ask("facts")
    assert "error" not in facts, facts
    before, after = seen(reference.before), seen(reference.after)
    assert all(line.partition(":")[0] == "orphans" for line in facts["doctor"]), facts["doctor"]
    assert seen(facts) in (before, after), facts
    repaired = forker.ask("repair")
    assert repaired["doctor"] == [] and repaired["hidden"] == [], repaired
    again = forker.ask(operation)
    assert "error" not in again, again
    assert same_bits(seen(forker.ask("facts")), after)
    return "after" if seen(facts) == after else "before"


def cut_the_power(forker, operation, *, keeps_names, n_sampled):
    """Look at all states, or at a sample and the first one after the answer."""
    reference = Reference(forker, operation)
    states, acknowledged = states_of(forker, operation, keeps_names=keeps_names)
    chosen = set(range(len(states)))
    if n_sampled is not None:
        chosen = set(random.Random(os.environ.get("FEWPASS_TEST_SEED", "0")).sample(range(len(states)), n_sampled))
    ends = Counter[str]()
    for n in sorted(chosen | {acknowledged}):
        found = look(forker, operation, reference, states[n])
        if n >= acknowledged:
            assert found == "after", f"{operation}: state {n} has lost what was acknowledged at {acknowledged}"
            assert MADE.get(operation, "") in states[n], f"{operation}: state {n} has lost what was made"
        ends[found] += 1
    return ends


@pytest.mark.parametrize("operation", ["alias", "publish"])
def test_a_sample_of_the_states(forker, operation):
    cut_the_power(forker, operation, keeps_names=False, n_sampled=2)


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("keeps_names", [False, True], ids=["forgets names", "keeps names"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_state(forker, operation, keeps_names):
    found = cut_the_power(forker, operation, keeps_names=keeps_names, n_sampled=None)
    record({"operation": operation, "unsynced": "names kept" if keeps_names else "all forgotten", **found})


def test_the_model_of_the_disk_forgets(tmp_path):
    root, kept = tmp_path / "root", tmp_path / "kept"
    root.mkdir()
    kept.mkdir()
    (root / "old").write_bytes(b"old")
    disk = Disk(root, kept)
    (kept / "3").write_bytes(b"new")
    expected = {"": None, "old": b"old"}
    for line in ["1 open /draft", "2 write /draft", "3 fsync /draft", "0 from /draft", "4 rename /old"]:
        disk.follow(line)
        assert disk.left(keeps_names=False) == expected, "no name is safe before its folder is"
    assert disk.left(keeps_names=True) == {"": None, "old": b"new"}
    disk.follow("5 fsync ")
    assert disk.left(keeps_names=False) == {"": None, "old": b"new"}
