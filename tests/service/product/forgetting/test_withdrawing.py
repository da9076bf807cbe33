"""Rules of forgotten rows are taken back on purpose and recorded, and never by a file that is gone."""

import json
from functools import partial

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from service import product
from service.operations.doctor import run_doctor_checks
from service.requests.problems import InvalidRequest
from storage.control import tables
from storage.datasets.forgotten import Forgotten
from storage.errors import CorruptFile, NotFound
from tests.service.asking import finished, model_of
from tests.support import product as support
from tests.support.cli import fewpass
from tests.support.passes import same, write
from tests.support.product import OF_ROWS, WHERE, n_left, of_nb, register

N_ROWS = 600
BY = {"by": "ana", "reason": "a test"}


forget = partial(support.forget, retrain=False)


def rules_path(workspace):
    return workspace.layout.model_directory("daily") / "data" / "forgotten.json"


def test_rows_of_a_withdrawn_rule_are_learned_again_as_if_it_had_never_stood(workspace, folder):
    before = product.train_model_version(workspace, of_nb(folder))
    forget(workspace)
    without = product.train_model_version(workspace, of_nb(folder))
    assert (before.n_rows, without.n_rows) == (N_ROWS, n_left(folder))
    done = product.withdraw_forgetting_rule(workspace, "daily", f" {WHERE} ", **BY)
    assert done["still_under"] == []
    (withdrawal,) = Forgotten(rules_path(workspace)).withdrawals(WHERE)
    assert withdrawal == {"at": done["withdrawn_at"], "by": "ana", "reason": "a test"}
    assert product.find_version(workspace, "daily@latest").version == 2, "models stay"
    after = product.train_model_version(workspace, of_nb(folder, cuts="fresh"))
    assert after.n_rows == N_ROWS and same(model_of(after), model_of(before))
    forget(workspace)  # the last event counts
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == n_left(folder)
    assert len(Forgotten(rules_path(workspace)).withdrawals(WHERE)) == 1


def test_a_withdrawn_rule_does_not_come_back_from_another_name(workspace, folder):
    register(workspace, folder)
    forget(workspace, dataset="rows")
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == n_left(folder), "it has followed the files"
    assert product.withdraw_forgetting_rule(workspace, "rows", WHERE, **BY)["still_under"] == ["daily"]
    of_rows = of_nb(folder, **OF_ROWS, model="other")
    assert product.train_model_version(workspace, of_rows).n_rows == N_ROWS
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == n_left(folder), "under this name it stands"
    assert product.withdraw_forgetting_rule(workspace, "daily", WHERE, **BY)["still_under"] == []
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == N_ROWS


def test_what_cannot_be_withdrawn_says_so(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    forget(workspace)
    with pytest.raises(InvalidRequest, match=r"The name 'daily' has no such rule. Its rules: user = 3\."):
        product.withdraw_forgetting_rule(workspace, "daily", "user = 4", **BY)
    with pytest.raises(InvalidRequest, match="Give a reason, which is kept with the rule"):
        product.withdraw_forgetting_rule(workspace, "daily", WHERE, by="ana", reason=" ")
    with pytest.raises(NotFound, match="There is no dataset 'daily'"):
        product.withdraw_forgetting_rule(workspace, "daily", WHERE, kind="dataset", **BY)
    product.withdraw_forgetting_rule(workspace, "daily", WHERE, **BY)
    with pytest.raises(InvalidRequest, match=r"The name .* has no such rule. Its rules: none"):
        product.withdraw_forgetting_rule(workspace, "daily", WHERE, **BY)


def finding_of(workspace):
    (finding,) = [each for each in run_doctor_checks(workspace.settings) if each.check == "rules of forgotten rows"]
    return finding


@pytest.mark.parametrize("harm", ["removed", "emptied", "older"])
def test_a_file_of_rules_that_lost_one_brings_no_rows_back(workspace, folder, harm):
    product.train_model_version(workspace, of_nb(folder))
    forget(workspace, "user = 4")
    path = rules_path(workspace)
    older = path.read_bytes()
    forget(workspace)
    path.unlink()
    if harm != "removed":
        path.write_bytes(older if harm == "older" else json.dumps({"rules": []}).encode())
    for asked in (of_nb(folder), of_nb(folder, model="another")):  # rules follow the files, whatever trains on them
        with pytest.raises(CorruptFile, match=r"json is damaged: it lacks rules of forgotten rows \(.*user = 3"):
            product.train_model_version(workspace, asked)
    assert (finding := finding_of(workspace)).state == "failed" and WHERE in finding.detail
    forget(workspace)
    if harm != "older":
        product.withdraw_forgetting_rule(workspace, "daily", "user = 4", **BY)
    n_wanted = n_left(folder)
    if harm == "older":  # there the rule of the others stands as well
        n_wanted -= int(pc.sum(pc.equal(pq.read_table(folder)["user"], 4)).as_py())
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == n_wanted
    assert finding_of(workspace).state == "ok"


def test_rules_of_an_earlier_release_stand_and_are_noted_by_the_next_training(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    forget(workspace)
    with workspace.control.writing() as connection:
        connection.execute(sa.delete(tables.forgotten_rules))
    write(folder, 5)
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == n_left(folder)
    rules_path(workspace).unlink()
    with pytest.raises(CorruptFile, match="it lacks rules of forgotten rows"):
        product.train_model_version(workspace, of_nb(folder))


def test_the_command_line_withdraws_a_rule(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    forget(workspace)
    place, withdraw = workspace.layout.root, ["forget", "daily", "--withdraw", WHERE]
    for wrong in (withdraw, ["forget", "daily", "--reason", "a test"], [*withdraw, "--where", WHERE]):
        fewpass(*wrong, workspace=place, code=2)
    done = json.loads(fewpass(*withdraw, "--reason", "a test", "--json", workspace=place).stdout)
    assert (done["where"], done["reason"]) == (WHERE, "a test") and done["by"]
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == N_ROWS


def test_an_administrator_withdraws_a_rule_over_rest(site, folder):
    client = site.client
    asked_files = {"name": "taken-back", "uris": [str(folder)], "target": "class"}
    assert client.post("/v1/datasets", json=asked_files).status_code == 201
    finished(client, {"kind": "forget", "dataset": "taken-back", "where": WHERE})
    asked = {"kind": "train", "dataset": "taken-back", "learner": "nb", "model": "taken-back", "holdout": 0}
    finished(client, asked)
    withdrawal = {"where": WHERE, "reason": "a test"}
    assert client.post("/v1/models/taken-back/rules/withdraw", json=withdrawal).status_code == 422
    assert client.post("/v1/datasets/absent/rules/withdraw", json=withdrawal).status_code == 404
    done = client.post("/v1/datasets/taken-back/rules/withdraw", json=withdrawal)
    assert done.status_code == 200, done.text
    assert done.json()["by"] == "a request without a key"
    assert "taken-back" not in done.json()["still_under"]  # other tests of this site have the rule under other names
    finished(client, asked)
    versions = client.get("/v1/models/taken-back/versions").json()["items"]
    assert {each["version"]: each["n_rows"] for each in versions} == {1: n_left(folder), 2: N_ROWS}
