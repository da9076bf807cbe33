"""One output of every command, kept as text in `outputs.txt`: a change of what users read is seen as a diff.

Numbers, ids, times, places and the width of columns are masked, as they differ from run to run.
`python -m tests.service.cli.test_outputs` writes the text.
"""

import contextlib
import json
import re
import shlex
import tempfile
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import typer.main
from typer.testing import CliRunner

from service import terminal_output
from service.cli import app
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.alert_records import edit_alert_records
from tests.service.asking import learn
from tests.service.conftest import weather
from tests.support.cli import commands
from tests.support.http import ALERT, CIRCUIT, Receiver
from tests.support.job_worker import job_worker
from tests.web import serving

KEPT = Path(__file__).with_name("outputs.txt")
# They run for long or until they are stopped; other tests run them.
APART = {
    "bench": "tests/service/operations/test_bench.py",
    "demo": "tests/service/operations/test_demo.py",
    "precompile": "tests/service/operations/test_precompile.py",
    "serve": "tests/service/cli/test_cli.py",
    "worker": "tests/support/job_worker.py",
}
TRAIN = {"kind": "train", "uris": ["{train}"], "target": "class", "learner": "nb", "model": "play"}
SCORE = {"kind": "score", "model": "play", "uris": ["{test}"]}
# In an order in which each finds what it needs; {…} are files and ids, and a line with > stores the id that its answer names. A job worker runs
# from the first job that is watched until jobs are listed.
LINES = """
train {train} -t class -l nb -n play --alias champion
train {train} -t class -l nb -n play --alias champion
predict play {test} --out {folder}/scored.parquet
evaluate play {test}
score play {test} --out {folder}/likely.parquet
impute play {test} --out {folder}/full.parquet
query play conditional --of outlook --given class=yes
schema {train} -t class
drift play {test}
report play {test} --html {folder}/report.html
compare {train} -t class -l nb -l kdb:k=1 --repetitions 1 --folds 2
labels play {labels} --key order --label class
monitor play
alerts
models list
models show play
models versions play
models structure play
models lineage play
models sql play --table plays --out {folder}/play.sql
models network play --out {folder}/play.bif
models circuit play --out {folder}/play.json
models picture plant --out {folder}/edges.svg
models trace sky --out {folder}/trace.svg
models export play --out {folder}/play.tar
models import {folder}/play.tar --name copy
models alias play@1 checked
models tag play team weather
models rollback play champion
models history play
models promotions play
models retention play --keep 10
models prune play --keep 5
models delete copy --all
jobs submit {train_job} > waiting
jobs cancel {waiting}
jobs retry {waiting}
jobs submit {train_job} > job
jobs submit {score_job} > scored
jobs watch {job}
jobs show {job}
jobs log {job}
jobs watch {scored}
jobs output {scored} --out {folder}/rows.parquet
jobs list
schedules create nightly --cron '30 2 * * *' --job {train_job}
schedules list
schedules show nightly
schedules change nightly --cron '0 4 * * *'
schedules run nightly
schedules pause nightly
schedules resume nightly
schedules delete nightly
forget play --where "outlook = 'rain'"
receipts list > receipt
receipts show {receipt} --out {folder}/receipt.json
receipts key --out {folder}/key.pem
receipts verify {folder}/receipt.json --key {folder}/key.pem
keys create ana --role predict
keys list
keys revoke ana
webhooks add {receiver} > webhook
webhooks list
webhooks test {webhook}
webhooks delete {webhook}
audit
backup {folder}/backup
restore {folder}/backup -w {folder}/restored
doctor
"""
MASKS = [
    (r"\b(fp|whsec)_[\w+/=-]+", r"\1_…"),
    (r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?)?", "TIME"),
    (r"\b(job|local)-[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b", "ID"),
    (r"\buser [\w.-]+", "user NAME"),
    (r"(cached in) \S+", r"\1 FOLDER."),
    (r"[-+−]?(\d[\d,.:]*|\.\d+)(e[-+]?\d+)?", "#"),
    (r"# ?(bytes|B|[kKMGT]i?B|ms|µs|s|min|h)\b", "#"),
    (r"#( #)+", "#"),
    (r"[─━]+", "─"),
    (r"[^\S\n]+", " "),
    (r" +\n", "\n"),
]
IDENTIFIER = r"(?:job|local)-[0-9a-f]+|\b(?=[0-9a-f]*\d)[0-9a-f]{10,}\b"


def sorted_members(line: str) -> str:
    """A line of a log by its names, which come in any order."""
    with contextlib.suppress(ValueError):
        return json.dumps(json.loads(line), sort_keys=True) if '"event":' in line else line
    return line


def masked(text: str, folder: Path) -> str:
    """What is the same in every run."""
    text = "\n".join(map(sorted_members, text.replace(str(folder), "FOLDER").split("\n")))
    for pattern, mark in MASKS:
        text = re.sub(pattern, mark, text)
    return text


def write_files(folder: Path, workspace: Path) -> dict[str, str]:
    """Files and models that the lines need and no command of them makes; what stands for the names in the lines."""
    train, test, labels = (folder / f"{name}.parquet" for name in ("train", "test", "labels"))
    pq.write_table(weather(1500, 1), train)
    pq.write_table(weather(300, 2), test)
    pq.write_table(pa.table({"order": ["o1", "o2"], "class": ["yes", "no"]}), labels)
    with Workspace(Settings(workspace=workspace)) as opened:
        learn(opened, train, "sky", learner="gibbs", target=None, parameters=CIRCUIT)
        learn(opened, train, "plant", learner="orders", target=None, columns={"station": "drop"}, parameters={})
    with edit_alert_records(workspace, "alerts") as alerts:
        alerts[ALERT["id"]] = ALERT
    names = {"train": str(train), "test": str(test), "labels": str(labels), "folder": str(folder)}
    for name, job in (("train_job", TRAIN), ("score_job", SCORE)):
        (folder / f"{name}.json").write_text(json.dumps(job | {"uris": [names[job["uris"][0][1:-1]]]}))
        names[name] = str(folder / f"{name}.json")
    return names


def outputs(folder: Path) -> str:
    """Each line, and what it prints."""
    workspace, lines = folder / "workspace", []
    names = write_files(folder, workspace)
    # A console takes its width from COLUMNS when it is made, which may be before this test.
    wide = [patch.object(console, "_width", 400) for console in (terminal_output.out, terminal_output.err)]
    with serving(Receiver) as address, wide[0], wide[1], contextlib.ExitStack() as worker:
        names["receiver"] = f"http://{address}/hook"
        surroundings = {"FEWPASS_WORKSPACE": str(workspace), "FEWPASS_WEBHOOK_HOSTS": '["127.0.0.1"]'}
        for line in LINES.strip().splitlines():
            asked, _, stored = line.partition(" > ")
            if asked == "jobs watch {job}":
                worker.enter_context(job_worker(workspace))
            elif asked == "jobs list":
                worker.close()
            done = CliRunner(env=surroundings).invoke(app, shlex.split(asked.format(**names)))
            assert done.exit_code == 0, (line, done.output, done.exception)
            if stored:
                names[stored] = re.findall(IDENTIFIER, done.stdout)[0]
            lines += [f"$ fewpass {asked}", masked(done.stdout, folder)]
    return "\n".join(lines)


def test_every_command_has_a_line():
    endings = {
        name.removeprefix("fewpass ")
        for name, one in commands(typer.main.get_command(app), "fewpass")
        if not (one.hidden or hasattr(one, "commands"))
    }
    lines = LINES.strip().splitlines()
    missing = {one for one in endings - set(APART) if not any(line.startswith(one) for line in lines)}
    assert not missing, f"give these commands a line in LINES: {missing}"
    assert all((Path(__file__).parents[3] / place).exists() for place in APART.values())


def test_the_outputs_are_the_kept_ones(tmp_path):
    assert outputs(tmp_path) == KEPT.read_text(), (
        "read the difference; python -m tests.service.cli.test_outputs writes it"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        KEPT.write_text(outputs(Path(place)))
