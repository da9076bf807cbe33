"""What a serving process keeps of versions that it serves one after the other: of those that nobody asks any more, nothing."""

import gc
import sys
import weakref
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learners.errors import LearnerError
from learners.models.query import Marginal
from learners.registry.model_kinds import KINDS
from service import product
from service.operations.doctor import run_doctor_checks
from service.product.inference.queries import queryable_circuit
from service.product.monitoring.windows import Watching
from service.requests.problems import problem_from_error
from service.serving.monitoring_counts import Observer
from service.serving.predictor import Predictor
from service.settings import Settings
from service.workspace import Workspace
from storage.control.control import control_generation
from storage.errors import CorruptFile, OutdatedModel
from storage.files.atomic_files import read_manifest, sha256_of_file, write_manifest
from storage.models import model_file
from storage.models.compiled import map_compiled, write_compiled
from storage.monitoring.monitoring_files import MonitoringFiles
from tests.service.asking import learn

NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
RECORD = {"outlook": "rain", "windy": True}
N_VERSIONS = 8


@pytest.fixture
def workspace(tmp_path, weather_files):
    """With one version of a model, and a file from which others are imported."""
    settings = Settings(workspace=tmp_path / "workspace", threads=1, request_timeout_s=1e-9)
    with Workspace(settings) as opened:
        learn(opened, weather_files[0], "m", holdout=0)
        product.write_export(opened, "m", tmp_path / "m.tar")
        yield opened


@pytest.fixture
def observer(workspace):
    made = Observer(workspace.settings, lambda _: {}, clock=lambda: NOON)
    yield made
    made.close()


def import_version(workspace):
    product.import_version(workspace, workspace.layout.root.parent / "m.tar", "m")


def one_more(workspace, predictor):
    import_version(workspace)
    assert predictor.refresh()


def ask(observer, served, n_rows=1):
    """Let it answer so many rows, and write down what was counted."""
    for _ in range(n_rows):
        served.classify(RECORD)
    observer.fold()
    observer.flush()


def n_counted(workspace, version):
    watching = Watching(workspace, f"m@{version}")
    return watching.window(NOON.replace(hour=0), NOON.replace(hour=23)).counts.n_rows


def mapped_files(root):
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if f"{root}/models/" in line}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/maps is Linux'")
def test_versions_that_nobody_asks_any_more_leave_no_model_no_mapping_and_no_counts(workspace, observer, monkeypatch):
    monkeypatch.setattr(model_file, "MOST_PACKED", 0)  # as a large model, whose file stays mapped
    predictor = Predictor(workspace.control, observer=observer)
    predictor.resolve("m")
    left: list[weakref.ref[object]] = []
    for number in range(N_VERSIONS):
        served = predictor.served("m")
        for _ in range(number + 1):
            served.classify(RECORD)
        queryable_circuit(served.model).answer([Marginal({})])
        left += [weakref.ref(served), weakref.ref(served.model), weakref.ref(served.watch)]
        observer.fold()
        one_more(workspace, predictor)
        del served
        product.prune_model_versions(workspace, "m", keep=2)
    observer.fold()
    observer.flush()
    gc.collect()
    assert [one() for one in left] == [None] * len(left)
    now = product.find_version(workspace, "m")
    assert mapped_files(workspace.layout.root) == {str(now.arrow_path)}
    assert [watch.version for watch in observer.watches] == [now.version] and not observer.watches[0].hours
    # What they served was written first: of the two versions that are left, all rows.
    assert n_counted(workspace, N_VERSIONS) == N_VERSIONS


def test_a_version_that_comes_back_within_the_hour_adds_to_what_it_served(workspace, observer):
    predictor = Predictor(workspace.control, observer=observer)
    product.set_alias(workspace, "m", "champion", 1)
    predictor.resolve("m@champion")
    import_version(workspace)
    for version, n_rows in ((1, 3), (2, 5), (1, 7), (2, 11)):
        product.set_alias(workspace, "m", "champion", version)
        predictor.refresh()
        served = predictor.served("m@champion")
        assert served.version == version
        ask(observer, served, n_rows)
    observer.flush()
    assert [n_counted(workspace, version) for version in (1, 2)] == [3 + 7, 5 + 11]


def test_a_version_that_is_evicted_again_and_again_has_one_file_an_hour(workspace, observer):
    for _ in range(20):
        served = Predictor(workspace.control, observer=observer).resolve("m")
        served.classify(RECORD)
        observer.leave(served.watch)
        observer.fold()
        observer.flush()
    assert len(MonitoringFiles(workspace.layout.root, "m").slices(1)) == 1
    assert n_counted(workspace, 1) == 20


def test_a_version_that_a_request_may_still_hold_is_watched_on(workspace):
    settings = workspace.settings.model_copy(update={"request_timeout_s": 600.0})
    observer = Observer(settings, lambda _: {}, clock=lambda: NOON)
    predictor = Predictor(workspace.control, observer=observer)
    held = predictor.resolve("m")
    one_more(workspace, predictor)
    observer.flush()
    held.classify(RECORD)
    observer.close()
    assert n_counted(workspace, 1) == 1


def test_of_references_that_are_meant_the_least_recent_goes_first(workspace):
    for _ in range(2):
        import_version(workspace)
    predictor = Predictor(workspace.control, max_mapped=2)
    for reference in ("m@1", "m@2", "m@1", "m@3"):
        predictor.resolve(reference)
    assert {reference for reference in ("m@1", "m@2", "m@3") if predictor.served(reference)} == {"m@1", "m@3"}
    # A version that replaces another takes its place, and not that of a third one.
    predictor = Predictor(workspace.control, max_mapped=2)
    predictor.resolve("m@1")
    predictor.resolve("m")
    one_more(workspace, predictor)
    assert predictor.served("m@1") is not None and predictor.served("m").version == 4
    assert predictor.generation == control_generation(workspace.control)


@pytest.mark.parametrize("limit", ["MOST_REHEARSED", "MOST_KEPT"])
def test_the_circuit_of_a_network_is_there_before_the_first_query(workspace, monkeypatch, limit):
    monkeypatch.setattr(f"service.serving.predictor.{limit}", 3)
    large = Predictor(workspace.control).resolve("m")
    monkeypatch.undo()
    served = Predictor(workspace.control).resolve("m")

    def never(*_):
        raise AssertionError("compiled by a query")

    monkeypatch.setattr("service.serving.compiled_networks.compile_model_circuit", never)
    (answer,) = queryable_circuit(served.model).answer([Marginal({})])
    assert answer["probability"] == pytest.approx(1.0)
    with pytest.raises(AssertionError, match="compiled by a query"):
        queryable_circuit(large.model)


def test_what_a_version_rehearses_is_never_counted(workspace, observer, monkeypatch):
    def fold_meanwhile(*about):
        observer.fold()
        return 10**9

    monkeypatch.setitem(KINDS, "lookup", replace(KINDS["lookup"], n_circuit_edges=fold_meanwhile))
    ask(observer, Predictor(workspace.control, observer=observer).resolve("m"))
    assert n_counted(workspace, 1) == 1


def models_finding(workspace, **options):
    """What doctor says of the models first, and how many are whole."""
    return [found for found in run_doctor_checks(workspace.settings, **options) if found.check == "models"]


def made_by_an_older_release(version):
    """Whole files, of a kind of model that is gone."""
    header, arrays = map_compiled(version.arrow_path)
    write_compiled(version.arrow_path, {**header, "kind": "bygone"}, arrays, replace=True)
    manifest = version.duckdb_path.with_suffix(".sha256")
    names = read_manifest(manifest) | {version.arrow_path.name: sha256_of_file(version.arrow_path)}
    write_manifest(manifest, names)


def test_a_version_that_no_model_can_be_made_of_is_named_with_what_to_do(workspace, monkeypatch):
    made_by_an_older_release(product.find_version(workspace, "m"))
    predictor = Predictor(workspace.control)
    with pytest.raises(OutdatedModel, match="m@1 was made by an older release") as raised:
        predictor.resolve("m")
    refusal = problem_from_error(raised.value)
    assert (refusal.status, refusal.title) == (409, "Outdated model")
    assert "Train it again with fewpass train FILES --name m --learner nb --set m=1.0" in refusal.detail
    assert "m@1" in predictor.damaged["m"]  # /readyz says degraded
    seen: list[object] = []
    monkeypatch.setattr("service.serving.predictor.verify_model_files", seen.append)
    with pytest.raises(OutdatedModel, match="Train it again"):
        predictor.resolve("m")
    predictor.refresh()
    assert seen == [] and predictor.damaged, "a request and a poll read all bytes again"
    monkeypatch.undo()
    first = models_finding(workspace)[0]
    assert first.state == "failed" and "older release" in first.detail
    assert first.remedy.startswith("fewpass train FILES --name m")
    # The DuckDB file is of a kind that this release knows: here the remedy is another one.
    assert "rebuilt the compiled form" in models_finding(workspace, is_repairing=True)[0].detail
    predictor.refresh()
    assert predictor.damaged == {} and predictor.served("m") is not None


def test_what_cannot_be_made_anew_is_not_called_repaired(workspace, monkeypatch):
    def refuse(*_):
        raise LearnerError("The model lacks what this release needs.")

    monkeypatch.setattr("service.serving.predictor.load_model", refuse)
    for is_repairing in (False, True):
        first, count = models_finding(workspace, is_repairing=is_repairing)
        assert first.state == "failed" and first.remedy.startswith("fewpass train")
        assert count.detail.startswith("0 versions verified")


def test_a_damaged_file_is_not_called_outdated(workspace, monkeypatch):
    version = product.find_version(workspace, "m")
    made_by_an_older_release(version)
    version.duckdb_path.chmod(0o600)
    with version.duckdb_path.open("r+b") as file:
        first = file.read(1)[0]
        file.seek(0)
        file.write(bytes([first ^ 255]))  # it belongs to a checksum, so any letter may stand there already
    with pytest.raises(CorruptFile, match="is damaged") as raised:
        Predictor(workspace.control).resolve("m")
    assert not isinstance(raised.value, OutdatedModel)
