"""Receipts of forgotten rows: what a job signs, and how it is listed, shown and verified."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from service import product
from service.cli import app
from service.http.app import create_app
from service.jobs.steps import Run, ignore_report
from service.product.forgetting import forgetting
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import InvalidReceipt
from tests.support.http import problem
from tests.support.passes import days
from tests.support.product import WHERE, forget, n_left, of_nb

PAGE = (Path(__file__).parents[4] / "docs/how-to/receipts.md").read_text()


def command(place, *arguments, code=0):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, arguments), "--workspace", str(place)])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory):
    """A workspace that has forgotten rows once, its data and the result of the job."""
    root = tmp_path_factory.mktemp("forgotten")
    folder = days(root / "data", 3)
    with Workspace(Settings(workspace=root / "workspace", warm_up=False)) as workspace:
        product.train_model_version(workspace, of_nb(folder))
        yield workspace, folder, forget(workspace)


def receipts_in(workspace):
    return sorted(path.name for path in (workspace.layout.root / "receipts").glob("*.json"))


def test_a_receipt_says_what_was_done(forgotten):
    workspace, folder, done = forgotten
    receipt, n_rows = done["receipt"], pq.read_table(folder).num_rows
    assert receipt["subject"] == {"model": "daily"}
    assert receipt["rows"] == {"before": n_rows, "forgotten": done["n_rows"], "after": n_left(folder)}
    touched = receipt["files"]
    assert sum(file["n_forgotten"] for file in touched) == done["n_rows"] > 0
    of_files = {
        sha256: sum(own["n_forgotten"] for own in touched if own["sha256"] == sha256)
        for sha256 in {one["sha256"] for one in touched}
    }
    known = {
        file["footer_sha256"]: done["files"][file["path"]]
        for file in product.version_lineage(workspace, "daily@1")["files"]
    }
    assert of_files == known
    groups = [pq.ParquetFile(path).metadata for path in sorted(done["files"])]
    sizes = sorted(each.row_group(i).num_rows for each in groups for i in range(each.num_row_groups))
    assert sorted(own["n_rows"] for own in touched) == sizes and all("row_group" in own for own in touched)
    version = product.find_version(workspace, "daily@2")
    trained = [{"version": "daily@2", "sha256": version.sha256, "n_rows": n_left(folder)}]
    assert receipt["versions"] == {"trained": trained, "still_holding": ["daily@1"], "gone": []}
    proofs = [{"version": "daily@2", "is_equal": True, "n_rows": n_left(folder)}]
    assert receipt["proof"] == {"status": "proved", "versions": proofs}
    assert product.verify_receipt(
        product.read_receipt(workspace, receipt["id"]), product.receipts_public_key(workspace)
    )


def test_nothing_of_the_person_stands_in_it(forgotten):
    workspace, folder, done = forgotten
    text = product.read_receipt(workspace, done["receipt"]["id"]).decode()
    assert WHERE not in text and "user" not in text and str(folder) not in text and "parquet" not in text


def test_a_receipt_is_of_its_condition(forgotten):
    workspace, _, done = forgotten
    product.check_receipt_condition(workspace, done["receipt"], WHERE)
    with pytest.raises(InvalidReceipt, match="The receipt is valid, but for another condition or another workspace"):
        product.check_receipt_condition(workspace, done["receipt"], "user = 4")


def test_without_a_proof_it_says_so_and_deleted_versions_are_listed(workspace, folder):
    for _ in range(2):
        product.train_model_version(workspace, of_nb(folder))
    product.delete_version(workspace, "daily", 1)
    receipt = forget(workspace, prove=False)["receipt"]
    assert receipt["proof"] == {"status": "subtracted, proof pending", "versions": []}
    assert receipt["versions"]["gone"] == ["daily@1"] and receipt["versions"]["still_holding"] == ["daily@2"]


def test_a_later_proof_completes_the_receipt(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_nb(folder))
    pending, other = (
        forget(workspace, prove=False)["receipt"],
        forget(workspace, where="user = 5", prove=False)["receipt"],
    )
    stored = receipts_in(workspace)
    with monkeypatch.context() as failing:
        failing.setattr(forgetting, "_proof", lambda *_: {"is_equal": False, "n_rows": 1})
        assert forget(workspace, where="user = 5")["receipt"] is None
    assert receipts_in(workspace) == stored
    proved = forget(workspace, where="user = 5")["receipt"]
    data = product.read_receipt(workspace, other["id"])
    completed = product.verify_receipt(data, product.receipts_public_key(workspace))
    assert completed["proof"] == {**proved["proof"], "by": proved["id"]} and proved["proof"]["status"] == "proved"
    same = set(completed) - {"proof"}
    assert {name: completed[name] for name in same} == {name: other[name] for name in same}
    product.check_receipt_condition(workspace, completed, "user = 5")
    assert json.loads(product.read_receipt(workspace, pending["id"])) == pending  # of another condition


def test_the_command_says_that_a_proof_is_pending(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    pending = "Subtracted, proof pending: the same command without --no-prove proves it, and completes the receipt."
    asked = (workspace.layout.root, "forget", "daily", "--where", WHERE)
    assert pending in " ".join(command(*asked, "--no-prove").split())
    assert pending not in " ".join(command(*asked).split())


def test_nothing_trained_is_not_proved(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    assert forget(workspace, retrain=False)["receipt"]["proof"] == {"status": "not proved", "versions": []}


def test_a_dry_run_has_no_receipt(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    done = forget(workspace, dry_run=True)
    assert "receipt" not in done and "no_receipt" not in done and receipts_in(workspace) == []
    with pytest.raises(InvalidRequest, match="This workspace has signed no receipt yet"):
        product.receipts_public_key(workspace)


def test_a_failed_proof_has_no_receipt(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_nb(folder))
    monkeypatch.setattr(forgetting, "_proof", lambda *_: {"is_equal": False, "n_rows": 1})
    done = forget(workspace)
    assert done["receipt"] is None and receipts_in(workspace) == []
    assert done["no_receipt"] == "No receipt was written: the proof failed for daily@2."


def test_a_job_that_ends_before_its_proof_has_no_receipt(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_nb(folder))
    monkeypatch.setattr(forgetting, "_proof", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forget(workspace)
    assert receipts_in(workspace) == []


def test_without_the_library_rows_are_forgotten_and_the_extra_is_named(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_nb(folder))
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = forget(workspace, prove=False)
    assert done["n_rows"] > 0 and done["receipt"] is None
    assert done["no_receipt"] == (
        "No receipt was written. A signed receipt needs cryptography, which is not installed: pip install "
        "'fewpass[receipts]'. Then forget the same rows again."
    )


def test_a_job_that_is_started_again_has_one_receipt(forgotten):
    workspace, _, done = forgotten
    before = receipts_in(workspace)
    step = forgetting.forget_steps(workspace)["receipt"]
    request = {"model": "daily", "where": WHERE}
    result = {name: value for name, value in done.items() if name != "receipt"}
    searched = {"n_rows": done["receipt"]["rows"]["before"], "files": done["receipt"]["files"]}
    run = Run("job-again", request, {"mark": {"searched": searched}, "prove": result}, ignore_report)
    step(run)
    stored = json.loads(product.read_receipt(workspace, "job-again"))
    again = step(run)["receipt"]
    assert receipts_in(workspace) == sorted([*before, "job-again.json"])
    assert {**again, "at": "", "signature": ""} == {**stored, "at": "", "signature": ""}
    assert json.loads(product.read_receipt(workspace, "job-again")) == again
    (workspace.layout.root / "receipts" / "job-again.json").unlink()
    old = Run("job-old", request, {"mark": {}, "prove": result}, ignore_report)
    assert step(old)["no_receipt"] == "No receipt was written: forget the same rows again to get one."


def test_commands(forgotten, tmp_path):
    workspace, _, done = forgotten
    place, receipt_id = workspace.layout.root, done["receipt"]["id"]
    (listed,) = json.loads(command(place, "receipts", "list", "--json"))
    assert (listed["id"], listed["subject"], listed["proof"]) == (receipt_id, "daily", "proved")
    assert receipt_id in command(place, "receipts", "list")
    receipt, key = tmp_path / "receipt.json", tmp_path / "fewpass.pem"
    receipt.write_text(command(place, "receipts", "show", receipt_id))
    written = tmp_path / "written.json"
    assert (
        command(place, "receipts", "key", "--out", key)
        == command(place, "receipts", "show", receipt_id, "-o", written)
        == ""
    )
    assert written.read_text() == receipt.read_text() and key.read_text() == command(place, "receipts", "key")
    elsewhere = tmp_path / "elsewhere"
    holds = f"The receipt holds: {done['n_rows']:,} of {done['receipt']['rows']['before']:,} rows forgotten at "
    assert holds in command(elsewhere, "receipts", "verify", receipt, "--key", key)
    assert holds in command(place, "receipts", "verify", receipt, "--where", WHERE)
    assert "The receipt is valid, but for another condition or another workspace" in command(
        place, "receipts", "verify", receipt, "--where", "user = 4", code=1
    )
    receipt.write_text(receipt.read_text().replace('"is_equal":true', '"is_equal":null'))
    refused = command(place, "receipts", "verify", receipt, code=1)
    assert (
        refused.startswith(
            "The signature of the receipt is invalid: the receipt was altered or reformatted. Get it again with fewpass receipts show."
        )
        and refused.count("\n") == 1
    )


def test_routes(forgotten):
    workspace, _, done = forgotten
    with TestClient(create_app(workspace.settings), base_url="http://localhost") as client:
        page = client.get("/v1/receipts").json()
        assert [item["id"] for item in page["items"]] == [done["receipt"]["id"]] and page["next_cursor"] is None
        answer = client.get(f"/v1/receipts/{done['receipt']['id']}")
        assert answer.content == product.read_receipt(workspace, done["receipt"]["id"])
        assert answer.headers["content-type"] == "application/json"
        assert "There is no receipt 'job-x'" in problem(client.get("/v1/receipts/job-x"), 404)["detail"]
        assert problem(client.get("/v1/receipts?cursor=x"), 422)["title"] == "Invalid cursor"


def test_the_script_of_the_documentation_verifies_with_cryptography_alone(forgotten, tmp_path):
    workspace, _, done = forgotten
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert script.count("\n") <= 40 and "fewpass" not in re.findall(r"^(?:from|import) (\w+)", script, re.MULTILINE)
    files = {"verify.py": script.encode(), "key.pem": product.receipts_public_key(workspace)}
    files["receipt.json"] = product.read_receipt(workspace, done["receipt"]["id"])
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    def verify():
        arguments = [sys.executable, "-O", "verify.py", "receipt.json", "key.pem"]
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert verify().stdout.startswith(f"The receipt holds: {done['n_rows']} of ")
    signature = done["receipt"]["signature"].encode()
    whole = files["receipt.json"]
    altered = [
        whole.replace(b'"before":', b'"before":1'),
        whole.replace(signature, signature.upper()),
        b"[]",
        whole[1:],
    ]
    for data in [*altered, json.dumps(json.loads(whole)).encode()]:
        assert data != whole
        (tmp_path / "receipt.json").write_bytes(data)
        refused = verify()
        assert refused.returncode == 1 and refused.stderr.startswith("The receipt does not hold: "), refused
