"""Jobs that forget: several conditions in one, the proof as a job of its own, networks before trees."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from service import product
from service.cli import app
from service.jobs.steps import STAND_IN, Run, ignore_report, local_scratch
from service.product import networks_first
from service.product.forgetting import forgetting
from service.requests.requests import ForgetRequest
from storage.datasets.forgotten import forgotten_rule_sha256
from storage.errors import InvalidReceipt
from tests.support.product import WHERE, forget, of_nb, request_of

OTHER = "user = 5 -- on the telephone"
BOTH = [WHERE, OTHER]


def rules_of(workspace, reference):
    return product.version_lineage(workspace, reference)["provenance"]["forgotten"]


def test_several_conditions_are_one_training_and_a_rule_and_a_receipt_each(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    done = forget(workspace, where=[*BOTH, WHERE, "user < 4 AND user = 3"])
    users = pq.read_table(folder)["user"]
    n = {user: pc.sum(pc.equal(users, user)).as_py() for user in (3, 5)}
    assert done["n_rows"] == n[3] + n[5], "a row of two conditions counts once"
    assert [entry["version"] for entry in done["versions"]] == [2]
    proofs = [{"model": "daily", "version": 2, "is_equal": True, "n_rows": len(users) - n[3] - n[5]}]
    assert done["proofs"] == proofs and "holding_each" not in done
    assert [receipt["rows"]["forgotten"] for receipt in done["receipts"]] == [n[3], n[5], n[3]]
    assert done["receipt"] == done["receipts"][0]
    for receipt, own, other in zip(done["receipts"], BOTH, reversed(BOTH), strict=False):
        stored = product.read_receipt(workspace, receipt["id"])
        content = product.verify_receipt(stored, product.receipts_public_key(workspace))
        product.check_receipt_condition(workspace, content, own)
        with pytest.raises(InvalidReceipt, match="for another condition"):
            product.check_receipt_condition(workspace, content, other)
    # Each rule is taken back alone.
    product.withdraw_forgetting_rule(workspace, "daily", OTHER, by="ana", reason="a mistake")
    assert product.train_model_version(workspace, of_nb(folder)).n_rows == len(users) - n[3]


def test_of_several_conditions_each_names_the_versions_that_know_its_rows(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    forget(workspace, prove=False)
    done = forget(workspace, where=BOTH, prove=False)
    assert [receipt["versions"]["still_holding"] for receipt in done["receipts"]] == [
        ["daily@1"],
        ["daily@1", "daily@2"],
    ]
    assert done["still_holding"] == ["daily@1", "daily@2"]
    assert forget(workspace, where=BOTH, prove=False)["versions"] == [{"model": "daily", "version": 3, "passes": []}]


def test_several_conditions_by_command_and_a_proof_that_a_worker_makes(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    words = ["forget", "daily", "--where", WHERE, "--where", OTHER, "--prove-later", "-w", str(workspace.layout.root)]
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
    assert done.exit_code == 0, done.output
    (job,) = product.job_queue(workspace).list().items
    assert f"a worker proves it in {job.id}" in done.output and "What stays:" in done.output
    assert job.kind == "forget" and job.request["where"] == BOTH and job.request["prove"]
    pending = product.list_receipts(workspace).items
    assert {receipt.proof for receipt in pending} == {"subtracted, proof pending"} and len(pending) == 2
    request = ForgetRequest(**job.request)
    proved = product.forget_rows(workspace, request)
    assert proved["versions"] == [{"model": "daily", "version": 2, "passes": []}], "nothing is trained again"
    assert {receipt.proof for receipt in product.list_receipts(workspace).items} == {"proved"}


def test_a_step_that_is_started_again_queues_no_second_proof(workspace, folder):
    product.train_model_version(workspace, of_nb(folder))
    result = {"versions": [{"model": "daily", "version": 1}]}
    request = ForgetRequest(model="daily", where=WHERE, prove_later=True).model_dump()
    run = Run("job-1", request, {"receipt": result}, ignore_report)
    first, again = (forgetting.queue_later_proof(workspace, run) for _ in range(2))
    assert first == again == result | {"proof_job": product.job_queue(workspace).list().items[0].id}
    assert len(product.job_queue(workspace).list().items) == 1


def of_trees(folder, **more):
    return request_of(folder, learner="auto", parameters={"members": 2}, aliases=["champion"], holdout=0, **more)


def test_networks_answer_under_the_alias_until_the_trees_are_back(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_trees(folder))
    seen, run_steps = [], forgetting.run_job_steps

    def watched(*arguments):
        seen.append(dict(product.aliases_of(workspace, "daily")))
        return run_steps(*arguments)

    for module in (networks_first, forgetting):
        monkeypatch.setattr(module, "run_job_steps", watched)
    done = forget(workspace, networks_first=True)
    assert seen == [{"champion": 1}, {"champion": 2}] and product.aliases_of(workspace, "daily") == {"champion": 3}
    assert [proof["is_equal"] for proof in done["proofs"]] == [True, True]
    efforts = [product.find_version(workspace, f"daily@{n}").parameters.get("effort") for n in (1, 2, 3)]
    assert efforts == [None, "low", None]
    assert all(forgotten_rule_sha256(WHERE) in rules_of(workspace, f"daily@{n}") for n in (2, 3))
    again = forget(workspace, networks_first=True, prove=False)
    assert [entry["version"] for entry in again["versions"]] == [2, 3], "both follow the rule"


def test_after_a_kill_between_networks_and_trees_the_next_job_learns_the_trees(workspace, folder, monkeypatch):
    product.train_model_version(workspace, of_trees(folder))
    run_steps = forgetting.run_job_steps

    def cut_short(steps, job_id, *rest):
        if not job_id.endswith(STAND_IN):
            raise KeyboardInterrupt
        return run_steps(steps, job_id, *rest)

    with monkeypatch.context() as dying:
        dying.setattr(forgetting, "run_job_steps", cut_short)
        with pytest.raises(KeyboardInterrupt):
            forget(workspace, networks_first=True)
    assert product.aliases_of(workspace, "daily") == {"champion": 2} and not product.list_receipts(workspace).items
    done = forget(workspace)
    assert [entry["version"] for entry in done["versions"]] == [3] and done["still_holding"] == ["daily@1"]
    assert product.find_version(workspace, "daily@3").parameters.get("effort") is None
    assert product.aliases_of(workspace, "daily") == {"champion": 3}


def test_the_cost_of_trees_is_said_before(workspace, folder):
    product.train_model_version(workspace, of_trees(folder, model="trees"))
    product.train_model_version(workspace, of_nb(folder))
    (line,) = product.costs_of_trees(workspace, ForgetRequest(model="trees", where=WHERE))
    took = product.find_version(workspace, "trees").metrics["train_s"]
    assert (
        f"If trees has learned such rows, its weights and trees are trained again ({took:.1f} s for trees@1)." in line
    )
    assert "Meanwhile trees@1 keeps answering, or with --networks-first the networks" in line
    (line,) = product.costs_of_trees(workspace, ForgetRequest(model="trees", where=WHERE, networks_first=True))
    assert "Meanwhile networks without the rows answer." in line
    assert product.costs_of_trees(workspace, ForgetRequest(model="daily", where=WHERE)) == []


def test_what_killed_commands_left_in_scratch_goes_and_what_runs_stays(workspace):
    layout = workspace.layout
    for name in ("local-dead", "local-dead-networks", "local-lives-networks", "job-1"):
        layout.scratch_directory(name).mkdir()
    with local_scratch(layout, "local-lives"):
        with local_scratch(layout, "local-other"):
            names = {path.name for path in layout.scratch.glob("[a-z]*-*")}
            assert names == {"local-lives", "local-other", "job-1"}
            layout.scratch_directory("local-lives-networks").mkdir()
        with local_scratch(layout, "local-third"):
            assert layout.scratch_directory("local-lives-networks").exists()
    assert {path.name for path in layout.scratch.glob("[a-z]*-*")} == {"job-1"}
