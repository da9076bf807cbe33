"""A process from which small runs of the product are forked, each with one system call that fails or kills.

`python -m tests.faults.forker LIBRARY FOLDER`, preloaded with LIBRARY, reads commands as lines of JSON and answers each
with a line. It has run everything once, so that a forked run costs what its own work costs.
"""

import contextlib
import ctypes
import gc
import hashlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service import product
from service.operations import backup, doctor
from service.requests.problems import is_expected_error, problem_from_error
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.serving.predictor import map_model_version
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten
from storage.errors import NotFound
from storage.models import aliases as model_aliases
from storage.models import model_versions
from storage.models.compiled import map_compiled
from storage.models.model_file import read_model_file, read_model_key_values
from tests.service.conftest import weather

KINDS = {"none": 0, "kill": 1, "once": 2, "from_then_on": 3}
RUN_S = 240
library: ctypes.CDLL | None = None  # once the process is armed


def acknowledge():
    """Say in the log of calls that the caller has his answer now; a server closes nothing after that."""
    if library is not None:
        library.fault_note(b"acknowledged")


def settings_of(folder):
    return Settings(workspace=folder / "workspace", threads=1)


def asked(folder, model, **given):
    plain = {"learner": "nb", "target": "class", "parameters": {"m": 1.0}, "holdout": 0}
    return TrainRequest(uris=[str(folder / "data")], model=model, **(plain | given))


def in_workspace(operation):
    """An operation on the opened workspace of a folder; the caller has his answer before it is closed."""

    def run(folder):
        with Workspace(settings_of(folder)) as workspace:
            operation(workspace, folder)
            acknowledge()

    return run


@in_workspace
def train(workspace, folder):
    product.train_model_version(workspace, asked(folder, "fresh", aliases=["champion"]))


@in_workspace
def update(workspace, folder):
    product.train_model_version(workspace, asked(folder, "m", update=True, aliases=["champion"]))


@in_workspace
def alias(workspace, _):
    product.set_alias(workspace, "m", "other", 1)


@in_workspace
def publish(workspace, folder):
    product.import_version(workspace, folder / "m.tar", "imported")


def forget(folder):
    with Workspace(settings_of(folder)) as workspace:
        product.forget_rows(workspace, ForgetRequest(model="m", where="outlook = 'rain' AND windy"))


def delete(folder):
    with Workspace(settings_of(folder)) as workspace, contextlib.suppress(NotFound):  # an earlier start has deleted it
        product.delete_version(workspace, "old", 1)


def copy(folder):
    target = folder / "copy"
    if target.exists():  # of an earlier start, whose answer was lost: it must be whole
        backup.restore_workspace(target, folder / "looked-at")
        shutil.rmtree(folder / "looked-at")
        return
    with Workspace(settings_of(folder)) as workspace:
        backup.back_up_workspace(workspace, target)


def restore(folder):
    if not (folder / "restored").exists():
        backup.restore_workspace(folder / "kept", folder / "restored")
    with Workspace(Settings(workspace=folder / "restored")) as workspace:
        model_versions.get_version(workspace.control, "m", 1)


OPERATIONS: dict[str, Callable[[Path], None]] = {
    "train": train,
    "update": update,
    "forget": forget,
    "alias": alias,
    "publish": publish,
    "delete": delete,
    "backup": copy,
    "restore": restore,
}


def prepare(folder):
    """A workspace with a model of one file, one that nobody needs, an export, a backup, and a second file to learn."""
    (folder / "data").mkdir(parents=True)
    table = weather(240, 1)
    pq.write_table(table, folder / "data" / "a.parquet")
    with Workspace(settings_of(folder)) as workspace:
        product.train_model_version(workspace, asked(folder, "m", update=True, aliases=["champion"]))
        product.train_model_version(workspace, asked(folder, "old"))
        product.write_export(workspace, "m", folder / "m.tar")
        backup.back_up_workspace(workspace, folder / "kept")
    complaints(settings_of(folder))  # which makes the tables of jobs, as a server does
    pq.write_table(pa.concat_tables([weather(120, 2)]), folder / "data" / "b.parquet")


def facts(folder):
    """What others see of a workspace: each version's bits, the aliases, the rules; and what doctor says."""
    settings = settings_of(folder)
    with Workspace(settings) as workspace:
        versions = {
            f"{version.name}@{version.version}": digest(version.arrow_path)
            for version in backup.all_model_versions(workspace.control)
        }
        names = {reference.partition("@")[0] for reference in versions}
        aliases = {name: dict(model_aliases.versions_by_alias(workspace.control, name)) for name in sorted(names)}
        rules = sorted(
            rule.where
            for path in workspace.layout.models.glob("*/data/forgotten.json")
            for rule in Forgotten(path).rules()
        )
    return {"versions": versions, "aliases": aliases, "rules": rules, "doctor": complaints(settings)}


def complaints(settings):
    ignored = {"disk space", "compiled kernels", "workers"}
    return [
        f"{found.check}: {found.state}: {found.detail}"
        for found in doctor.run_doctor_checks(settings)
        if found.state != "ok" and found.check not in ignored
    ]


def repair(folder):
    doctor.run_doctor_checks(settings_of(folder), is_repairing=True)
    hidden = [str(path) for path in (folder / "workspace").rglob(".*.partial")]
    return {"doctor": complaints(settings_of(folder)), "hidden": hidden}


def served(folder):
    """What `m` answers when it is served, with which arrays, and which number it has."""
    with Workspace(settings_of(folder)) as workspace:
        version = product.find_version(workspace, "m")
        model = map_model_version(version)
    asked = [{}, {"outlook": "rain", "humidity": 60.0}, {"windy": True, "station": "north"}]
    answers = [model.classify(record).tolist() for record in asked]
    return {"version": model.version, "answers": answers, "digest": digest(version.arrow_path)}


def read(folder):
    """What the DuckDB file of `m` holds, as exports and rebuilt serving files have it."""
    with Workspace(settings_of(folder)) as workspace:
        path = product.find_version(workspace, "m").duckdb_path
    header, arrays = read_model_file(path)
    return {"digest": digest_of(header, arrays), "provenance": read_model_key_values(path, "provenance").get("request")}


def learned(folder):
    """What the next training makes of all that is kept of the data."""
    update(folder)
    return served(folder)


def registered(folder):
    """Register the data, and learn from it once all its bytes were read."""
    with Workspace(settings_of(folder)) as workspace:
        request = DatasetRequest(name="d", uris=[str(folder / "data")], target="class")
        product.register_dataset(workspace, request)
    return learned_from_dataset(folder, verify=True)


def learned_from_dataset(folder, *, verify=False):
    plain = {"learner": "nb", "parameters": {"m": 1.0}, "holdout": 0, "verify": verify}
    with Workspace(settings_of(folder)) as workspace:
        version = product.train_model_version(workspace, TrainRequest(dataset="d", model="of-d", **plain))
        return {"digest": digest(version.arrow_path)}


def imported(folder):
    with Workspace(settings_of(folder)) as workspace:
        return {"digest": digest(product.import_version(workspace, folder / "m.tar", "imported").arrow_path)}


def restored(folder):
    backup.restore_workspace(folder / "kept", folder / "restored")
    with Workspace(Settings(workspace=folder / "restored")) as workspace:
        return {"digest": digest(product.find_version(workspace, "m").arrow_path)}


ANSWERS: dict[str, Callable[[Path], dict[str, object]]] = {
    "served": served,
    "read": read,
    "learned": learned,
    "registered": registered,
    "learned from data set": learned_from_dataset,
    "imported": imported,
    "restored": restored,
}


def digest(path):
    """Of all that a model answers by; not of how long its training took."""
    return digest_of(*map_compiled(path))


def digest_of(header, arrays):
    told = {name: value for name, value in header.items() if name != "facts"}
    found = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode())
    for name in sorted(arrays):
        found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:16]


def ran(armed, command):
    folder = Path(command["folder"])
    if command["do"] == "facts":
        return facts(folder)
    if command["do"] == "repair":
        return repair(folder)
    if command["do"] in ANSWERS:
        try:
            return ANSWERS[command["do"]](folder)
        except Exception as error:
            return told(error)
    global library
    library = armed
    armed.fault_keep(command["keep"].encode())
    armed.fault_arm(
        str(folder).encode(), command["log"].encode(), command["at"], KINDS[command["kind"]], command["errno"]
    )
    try:
        OPERATIONS[command["do"]](folder)
    except BaseException as error:
        armed.fault_disarm()
        return told(error)
    return {"calls": armed.fault_disarm()}


def told(error):
    text = "".join(traceback.format_exception(error))[-3000:]
    return {"error": problem_from_error(error).title, "is_expected": is_expected_error(error), "text": text}


def forked(library, command):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(RUN_S)
        try:
            answer = ran(library, command)
        except BaseException as error:
            answer = {"error": "harness", "is_expected": False, "text": "".join(traceback.format_exception(error))}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    answer = json.loads(told) if told else {}
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, **answer}


def main(path, folder):
    library = ctypes.CDLL(path)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries and logs may print
    run = folder / "run"
    prepare(run)
    shutil.copytree(run, folder / "base")
    for operation in OPERATIONS.values():  # imports and kernels, before the first fork
        operation(run)
    facts(run)
    repair(run)
    served(run)
    read(run)
    gc.collect()
    gc.freeze()  # or each forked process would write to, and so copy, the pages of all that is loaded
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(forked(library, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
