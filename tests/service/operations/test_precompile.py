"""What an image compiles beforehand, and what a server runs before somebody asks."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from learners.circuits.model import CircuitModel
from learners.classifiers.lookup.lookup import LookupModel
from service.cli import app
from service.operations import precompile
from service.serving.predictor import REHEARSED, Predictor
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import meet
from tests.service.asking import learned


@pytest.mark.timeout(1500)  # two minutes of compiling, where nothing has been compiled yet, on a core of its own
def test_requests_compile_nothing_that_an_image_could_have_compiled(tmp_path):
    command = [sys.executable, "-m", "tests.service.operations.endpoints_after_precompiling", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == []


def test_the_command_compiles_in_processes_side_by_side(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(precompile, "TASKS", (partial(meet, first, second), partial(meet, second, first)))
    done = CliRunner().invoke(app, ["precompile", "--processes", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["seconds"] > 0
    assert [each.read_text() for each in (first, second)] == ["met", "met"]
    told = CliRunner().invoke(app, ["precompile", "--processes", "1"])
    assert "All kernels are compiled" in told.stdout


def test_a_task_that_fails_is_not_passed_over(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        tasks = [partial(Path.touch, tmp_path / "first"), partial(Path.unlink, tmp_path / "absent")]
        precompile.precompile_in_processes(1, tasks)


def test_a_model_has_answered_on_a_thread_before_it_does_on_the_event_loop(tmp_path, weather_files, monkeypatch):
    answered: list[int] = []
    for kind in (LookupModel, CircuitModel):
        original = kind.predict_proba

        def recorded(model, chunk, original=original):  # type: ignore[no-untyped-def]
            answered.append(chunk.n_rows)
            return original(model, chunk)

        monkeypatch.setattr(kind, "predict_proba", recorded)
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        for learner, target in (("nb", "class"), ("spn", "class"), ("spn", None)):
            learned(workspace, weather_files[0], "m", learner, target, holdout=0)
        predictor = Predictor(workspace.control)
        for version, n_rows in ((1, REHEARSED), (2, REHEARSED), (3, ())):
            answered.clear()
            assert predictor.resolve(f"m@{version}").version == version
            assert [n for n in answered if n > 1] == list(n_rows)
            predictor.resolve(f"m@{version}")
            assert len(answered) <= len(n_rows) + 1, "once"
