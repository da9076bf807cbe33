"""Predictions that are forgotten before the server that answered them has written them."""

from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from learners.monitoring.served_counts import BatchRows
from learners.schema.encoding.encode import encode
from service import product
from service.product.monitoring.predictions import Label
from service.serving.monitoring_counts import Observer
from service.serving.predictor import map_model_version
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.monitoring_files import MonitoringFiles
from tests.monitoring import problems
from tests.service.asking import learned


@pytest.mark.parametrize("mode", ["rows", "counts"])
def test_a_prediction_that_is_forgotten_before_it_is_written_never_is(mode, tmp_path):
    pq.write_table(problems.rows(2000, 1), tmp_path / "train.parquet")
    table, keys, gone = problems.rows(20, 71), [f"order-{row}" for row in range(20)], ("order-3", "order-4")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        learned(workspace, tmp_path / "train.parquet", "parcels", "kdb", parameters={"k": 1})
        now = datetime.now(UTC)
        observer = Observer(workspace.settings, lambda _: {"mode": mode}, clock=lambda: now)
        served = map_model_version(product.find_version(workspace, "parcels"), observer)
        chunk = encode(table, served.schema, with_class=False)
        hashed = [served.watch.key_of("key", key) for key in keys]

        def answer():
            served.answered(chunk, served.predict_proba(chunk), BatchRows(table), hashed)
            observer.fold()

        def written():
            files = MonitoringFiles(workspace.layout.root, "parcels").rows(1, "predictions", ["key"])
            return [key for _, rows in files for key in rows["key"].to_pylist()]

        answer()
        done = product.forget_predictions(workspace, "parcels", gone)
        assert done == {"predictions": 0, "labels": 0, "subtracted": 0}, "nothing is written yet"
        observer.flush()
        assert sorted(written()) == sorted(key for name, key in zip(keys, hashed, strict=True) if name not in gone)
        (counts,) = served.watch.hours.values()
        assert counts.n_rows == (18 if mode == "rows" else 20), "of counts alone nobody knows which row they came from"

        labels = [Label("key", key, "no") for key in gone]
        assert product.add_prediction_labels(workspace, "parcels", labels)["matched"] == 0
        observer.clock = lambda: now + timedelta(minutes=1)
        answer()
        observer.close()
        assert len(written()) == 18 + 20, "whoever asks again under the same key is served as others are"
