"""XGBoost's bytes with something wrong in them: refused, or used like others, in a process that may end of it."""

import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from learners import Source, load_model
from learners.classifiers.baselines import boosted_checks
from learners.classifiers.baselines.boosted import load_xgboost_booster
from learners.classifiers.baselines.boosted_checks import check_booster
from service.product.versions import export_import
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.models.model_file import write_model
from tests.classifiers.baselines import booster_mutants
from tests.support.boosters import rows, train

N_CHANGES = int(os.environ.get("FEWPASS_TEST_BOOSTERS", "4"))


@cache
def trained(n_classes):
    return train(Source.of_table(rows(n_classes, 240)), rounds=3)


def document(model):
    return json.loads(bytes(load_xgboost_booster(model.to_arrays()[1]["booster"]).save_raw("json")))


def serialised(told):
    return np.frombuffer(json.dumps(told).encode(), np.uint8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_was_trained_is_taken(n_classes):
    model = trained(n_classes)
    check_booster(model.schema, "booster", model.to_arrays()[1])
    check_booster(model.schema, "booster", {"booster": serialised(document(model))})
    assert load_model(*model.to_arrays(), is_trusted=False).schema == model.schema


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("left_children", lambda old: [0, *old[1:]]),
        ("right_children", lambda old: [10**6, *old[1:]]),
        ("split_indices", lambda old: [3, *old[1:]]),
        ("default_left", lambda old: old[:-1]),
        ("split_conditions", lambda old: [float("inf")] * len(old)),
        ("categories_nodes", lambda old: [*old, 10**6]),
        ("categories", lambda old: [*old, 10**6]),
    ],
)
def test_what_xgboost_would_follow_is_looked_at(field, change):
    model = trained(3)
    changed = document(model)
    tree = changed["learner"]["gradient_booster"]["model"]["trees"][0]
    assert len(tree["left_children"]) > 1
    tree[field] = change(tree[field])

    class Read:
        """What XGBoost would say, had it taken the document as it is."""

        def save_raw(self, _form):
            return json.dumps(changed).encode()

        def num_features(self):
            return model.schema.n_attributes

    assert boosted_checks._wrong(model.schema, Read()) == "has an invalid tree"


def test_a_changed_byte_is_refused_or_answers(tmp_path):
    """Each change in a process of its own, which the library may end; what was taken has answered and explained itself."""
    path = write_model(tmp_path, "m", 1, *trained(3).to_arrays(), {}).duckdb_path
    command = [sys.executable, "-m", "tests.classifiers.baselines.booster_mutants", str(path), N_CHANGES, "1"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    ends = json.loads(done.stdout.splitlines()[-1])
    assert sum(ends.values()) == N_CHANGES and ends[str(booster_mutants.REFUSED)] > 0, ends
    assert ends.keys() <= {"0", str(booster_mutants.REFUSED), "-11", "-6", "-7", "-8"}, ends  # signals of the library


def dies(_workspace, _draft):
    os.abort()


def test_a_model_that_ends_its_process_is_refused(tmp_path, monkeypatch):
    header, arrays = trained(3).to_arrays()
    sound = write_model(tmp_path, "m", 1, header, arrays, {}).duckdb_path
    damaged = arrays | {"booster": np.array(arrays["booster"])[:-40]}
    cut = write_model(tmp_path, "m", 2, header, damaged, {}).duckdb_path
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        export_import.try_imported_model(workspace, tmp_path / "bundle", sound, header, arrays)
        with pytest.raises(
            CorruptFile, match=r"cannot be used|is damaged: its model crashes the process that reads it"
        ):
            export_import.try_imported_model(workspace, tmp_path / "bundle", cut, header, damaged)
        monkeypatch.setattr(export_import, "_tried_file", dies)
        with pytest.raises(CorruptFile, match="is damaged: its model crashes the process that reads it"):
            export_import.try_imported_model(workspace, tmp_path / "bundle", sound, header, arrays)
