"""Each system call that changes a file fails, or is the last: afterwards nothing acknowledged is lost and nothing half visible.

`make test` looks at a seeded sample of the calls, `make faults` at every one, or at every n-th with FEWPASS_TEST_EVERY.
"""

import errno
import itertools
import os
import random
import signal

import pytest

from tests.processes import record
from tests.support.seen_states import Reference, same_bits, seen

OPERATIONS = ["train", "update", "forget", "alias", "publish", "delete", "backup", "restore"]
FAULTS = {"kill": ("kill", 0), "EIO": ("once", errno.EIO), "full": ("from_then_on", errno.ENOSPC)}


def disturb(forker, operation, reference, at, fault):
    """One run with one fault; how it ended. Raises if a promise was broken."""
    kind, error = FAULTS[fault]
    forker.reset()
    ended = forker.ask(operation, at, kind, error)
    facts = forker.ask("facts")
    where = f"{operation}, {fault} at call {at} of {reference.calls}: {ended}"
    assert "error" not in facts, (where, facts)
    before, after = seen(reference.before), seen(reference.after)
    assert all(line.partition(":")[0] == "orphans" for line in facts["doctor"]), (where, facts["doctor"])
    lost = {name for name in reference.before["versions"] if operation != "delete" and name not in facts["versions"]}
    assert not lost, where
    if ended["signal"]:
        assert ended["signal"] == signal.SIGKILL, where
        outcome = "killed"
    elif ended.get("error") == "Outcome unknown":
        outcome = "unknown"
    elif "error" in ended:
        assert ended["is_expected"], where  # by name, with what to do, and not a bare OSError
        outcome = "refused"
        if operation == "delete" and seen(facts) == after:  # first out of the registry, then its files
            assert "which removes it. It no longer belongs to a version" in ended["text"], where
            outcome = "deleted, files left"
        elif operation != "forget":  # whose rule stands once it is written; the models are still to be trained
            assert seen(facts) == before, (where, facts)  # no failure is reported of what is there
        if fault == "EIO" and outcome == "refused":
            assert not facts["doctor"], (where, facts)  # no file is left
    else:
        assert seen(facts) == after, (where, facts)  # acknowledged, so it is there
        outcome = "succeeded"
    if operation != "forget":
        assert seen(facts) in (before, after), (where, facts)
    repaired = forker.ask("repair")
    assert repaired["doctor"] == [] and repaired["hidden"] == [], (where, repaired)
    again = forker.ask(operation)
    assert "error" not in again, (where, again)
    final = seen(forker.ask("facts"))
    assert same_bits(final, after), (where, final, after)
    return outcome


@pytest.mark.parametrize(("operation", "fault"), [*zip(OPERATIONS, itertools.cycle(FAULTS), strict=False)])
def test_a_sample_of_the_calls(forker, operation, fault):
    reference = Reference(forker, operation)
    rng = random.Random(f"{operation} {os.environ.get('FEWPASS_TEST_SEED', '0')}")
    disturb(forker, operation, reference, rng.randint(1, reference.calls), fault)


@pytest.mark.parametrize("operation", ["alias", "publish"])
def test_a_commit_that_cannot_be_synced(forker, operation):
    """One error: the commit is taken back. A full disk from then on: nobody can say whether it is in, and that is the answer."""
    reference = Reference(forker, operation)
    forker.reset()
    log = forker.folder / "calls.log"
    log.unlink(missing_ok=True)
    forker.ask(operation, log=log)
    calls = [line.split() for line in log.read_text().splitlines()]
    syncs = [int(n) for n, call, path in calls if call == "fsync" and path.endswith("control.sqlite-wal")]
    commit = syncs[-2]  # the last one is of the checkpoint as the database is closed
    assert disturb(forker, operation, reference, commit, "EIO") == "refused"
    assert disturb(forker, operation, reference, commit, "full") == "unknown"


@pytest.mark.faults
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_call(forker, operation, fault):
    reference = Reference(forker, operation)
    ends: dict[str, int] = {}
    broken = []
    every = int(os.environ.get("FEWPASS_TEST_EVERY", "1"))
    for at in range(1, reference.calls + 1, every):
        try:
            outcome = disturb(forker, operation, reference, at, fault)
        except AssertionError as error:
            broken.append(str(error).partition("\n")[0][:1500])
            outcome = "broken"
        ends[outcome] = ends.get(outcome, 0) + 1
    record({"operation": operation, "fault": fault, "calls": reference.calls, "every": every, **ends})
    assert not broken, "\n".join(broken)
