"""Kill a job that forgets at a random moment, start it again, and look whether anything is half-forgotten.

python -m load_tests.erasure --kills 50

Each round copies a workspace with one model, forgets a customer in a process of its own, which is killed after a random time, and looks
at what is left: every version answers, every alias leads to a version that is there, `fewpass doctor` has no complaint (files without a
version are counted, and it must remove them), and each receipt verifies and holds: the rule stands, its versions exist with the bytes
that it names and were trained under the rule. Then the same is asked again, and must end with a proved receipt and a model that equals the one of an undisturbed run, array for array. The other
half of the rounds kill the proof of rows that are forgotten already.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service import product
from service.operations import doctor
from service.product.forgetting.receipts import PENDING, PROVED
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten, forgotten_rule_sha256
from storage.models.compiled import map_compiled

WHERE = "customer = 7"
N_ROWS, N_CUSTOMERS = 20_000, 800
FORGETTING, PROVING = "forgetting", "proving"
ORPHANS = "orphans"  # files that nobody sees, which the doctor names and removes
NOT_OURS = {"disk space", "compiled kernels", "workers"}  # checks of the machine
ENOUGH_S = 300


class Found(AssertionError):
    """What must not be."""


def settings_of(folder):
    return Settings(workspace=folder / "workspace", threads=1)


def prepare(folder, learner):
    """Write a table of customers, and train a model of it that an alias names."""
    draw = np.random.default_rng(0)
    columns = {"customer": draw.integers(0, N_CUSTOMERS, N_ROWS), "size": np.round(draw.gamma(2.0, 3.0, N_ROWS), 1)}
    columns |= {name: draw.integers(0, 6, N_ROWS) for name in ("channel", "region", "hour")}
    late = draw.random(N_ROWS) < 1 / (1 + np.exp(2 - columns["size"] / 4 - (columns["channel"] == 2)))
    (folder / "data").mkdir()
    table = pa.table(columns | {"late": np.where(late, "yes", "no")})
    pq.write_table(table, folder / "data" / "a.parquet", row_group_size=4_096)
    request = TrainRequest(
        uris=[str(folder / "data")],
        model="late",
        target="late",
        learner=learner,
        columns={"customer": "drop"},
        update=True,
        aliases=["champion"],
    )
    with Workspace(settings_of(folder)) as workspace:
        product.train_model_version(workspace, request)


def forget(folder, *, prove):
    with Workspace(settings_of(folder)) as workspace:
        return product.forget_rows(workspace, ForgetRequest(model="late", where=WHERE, prove=prove))


def arrays_of(workspace, version):
    """What a version answers by."""
    return map_compiled(product.find_version(workspace, f"late@{version}").arrow_path)[1]


def _complaints(settings):
    return [one for one in doctor.run_doctor_checks(settings) if one.state != "ok" and one.check not in NOT_OURS]


def look(folder):
    """Return what a killed job has left; raise `Found` for anything that is half done."""
    settings, stage = settings_of(folder), "nothing"
    with Workspace(settings) as workspace:
        (rules_path,) = workspace.layout.models.glob("late/data")
        standing = {rule.where for rule in Forgotten(rules_path / "forgotten.json").rules()}
        stage = "rule" if WHERE in standing else stage
        versions = {version.version: version for version in product.list_versions(workspace, "late").items}
        for number in versions:
            arrays_of(workspace, number)
        aliases = product.aliases_of(workspace, "late")
        if set(aliases) != {"champion"} or not set(aliases.values()) <= set(versions):
            raise Found(f"aliases {aliases} of versions {sorted(versions)}")
        following = {
            number
            for number in versions
            if forgotten_rule_sha256(WHERE)
            in product.version_lineage(workspace, f"late@{number}")["provenance"]["forgotten"]
        }
        if following and not standing:
            raise Found(f"versions {following} follow a rule that does not stand")
        if following and aliases["champion"] not in following:
            raise Found(f"versions {following} are published, and the alias leads to {aliases}")
        stage = "version" if following else stage
        for summary in product.list_receipts(workspace).items:
            data = product.read_receipt(workspace, summary.id)
            receipt = product.verify_receipt(data, product.receipts_public_key(workspace))
            product.check_receipt_condition(workspace, receipt, WHERE)
            named = {int(each["version"].partition("@")[2]): each["sha256"] for each in receipt["versions"]["trained"]}
            if not named or any(versions[number].sha256 != sha256 for number, sha256 in named.items()):
                raise Found(f"receipt {summary.id} names {named}")
            if not set(named) <= following:
                raise Found(f"receipt {summary.id} names versions that know the rows")
            stage = "proved" if receipt["proof"]["status"] == PROVED else "receipt"
    if any(
        one.check == ORPHANS for one in _complaints(settings)
    ):  # of a kill between the files and the row of a version
        stage += ", files without a version"
        doctor.run_doctor_checks(settings, is_repairing=True)
    if wrong := [f"{one.check}: {one.detail}" for one in _complaints(settings)]:
        raise Found("; ".join(wrong))
    return stage


def finish(folder, expected):
    """Ask again; what comes of it must be what an undisturbed job makes."""
    done = forget(folder, prove=True)
    if [proof["is_equal"] for proof in done["proofs"]] != [True]:
        raise Found(f"proofs {done['proofs']}")
    if look(folder) != PROVED:
        raise Found("no receipt is proved")
    with Workspace(settings_of(folder)) as workspace:
        if any(receipt.proof == PENDING for receipt in product.list_receipts(workspace).items):
            raise Found("a receipt is pending after the proof")
        arrays = arrays_of(workspace, done["versions"][0]["version"])
    if arrays.keys() != expected.keys() or not all(
        np.array_equal(arrays[name], expected[name], equal_nan=True) for name in arrays
    ):
        raise Found("the model differs from that of an undisturbed job")
    return sorted(path.name for path in (folder / "workspace" / "scratch").glob("*"))


def in_child(work, *arguments, after_s=None):
    """Run a function in a forked process, which is killed after a time; return its answer, or None if it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(ENOUGH_S)
        try:
            answer = {"answer": work(*arguments)}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}", "text": traceback.format_exc()}
        os.write(writing, json.dumps(answer, default=str).encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        if after_s is None:
            raise Found(f"a process ended by signal {os.WTERMSIG(status)}")
        return None
    answer = json.loads(text)
    if "error" in answer:
        raise Found(answer["text"])
    return answer["answer"]


def _forget_quietly(folder, prove):
    forget(folder, prove=prove)
    return True


def undisturbed_s(base, run, prove, rounds=2):
    """Return how long a forked job takes, which is when a kill still meets it."""
    took = []
    for _ in range(rounds):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(base, run, symlinks=True)
        started = time.perf_counter()
        in_child(_forget_quietly, run, prove)
        took.append(time.perf_counter() - started)
    return min(took)


def disturbed(folder, kills, seed, learner="kdb"):
    """Kill `kills` jobs that forget and as many that prove; return how far they had come, and what is wrong."""
    rng, run = random.Random(seed), folder / "run" / "it"
    # The workspace stays where it was made: it knows its data by their paths.
    run.mkdir(parents=True)
    bases = {}
    prepare(run, learner)
    base = folder / "trained"
    shutil.copytree(run, base)
    bases[FORGETTING] = base
    forget(run, prove=False)
    shutil.copytree(run, folder / "forgotten")
    bases[PROVING] = folder / "forgotten"
    forget(run, prove=True)
    with Workspace(settings_of(run)) as workspace:
        expected = {name: np.array(array) for name, array in arrays_of(workspace, 2).items()}
    look(run)
    reached, wrong = {what: Counter() for what in bases}, []
    for what, trained in bases.items():
        length = undisturbed_s(trained, run, prove=what == PROVING)
        for number in range(kills):
            shutil.rmtree(run)
            shutil.copytree(trained, run)
            try:
                done = in_child(_forget_quietly, run, what == PROVING, after_s=rng.uniform(0, length))
                stage = in_child(look, run)
                reached[what][stage if done is None else "ended before"] += 1
                left = in_child(finish, run, expected)
                if left:
                    wrong.append(f"{what} {number}: left in scratch: {left}")
            except Found as found:
                wrong.append(f"{what} {number}: {found}")
    return {"reached": {what: dict(stages) for what, stages in reached.items()}, "wrong": wrong}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m load_tests.erasure", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="of jobs that forget, and as many of jobs that prove")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learner", default="kdb")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fewpass-erasure-") as directory:
        result = disturbed(Path(directory), args.kills, args.seed, args.learner)
    print(json.dumps(result | {"kills": 2 * args.kills, "seed": args.seed, "learner": args.learner}, indent=1))
    return int(bool(result["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
