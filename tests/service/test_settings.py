"""Settings that cannot be meant are refused at the start, in words that name the variable."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from service.cli import app
from service.processes import supervisor
from service.requests.problems import problem_from_error
from service.settings import SECRETS, Settings, unknown_setting_warnings
from storage.errors import Unwritable
from storage.files.workspace_layout import Layout


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch):
    """What tests/conftest.py sets for all other tests is not set here."""
    monkeypatch.delenv("FEWPASS_REQUEST_TIMEOUT_S")


NONSENSE = [
    ("PORT", "abc", "must be a whole number"),
    ("PORT", "70000", "at most 65535"),
    ("WORKERS", "0", "at least 1"),
    ("THREADS", "1000000", "at most 1024"),
    ("MEMORY", "lots", "such as 512MiB"),
    ("MEMORY", "9" * 40, "more memory than any machine"),
    ("REQUEST_TIMEOUT_S", "nan", "finite number"),
    ("SHUTDOWN_S", "inf", "finite number"),
    ("DATA_ROOTS", "/data", 'must be a JSON list, such as ["/data"]'),
    ("DATA_ROOTS", "[1]", "must be text"),
    ("DATA_ROOTS", '["tables"]', "'tables' must begin with /"),
    ("TRUSTED_HOSTS", "here", 'must be a JSON list, such as ["here"]'),
    ("CLUSTER", "local:0", "tcp://host:port"),
    ("CLUSTER", "scheduler", "tcp://host:port"),
    ("DEFAULT_MODEL", "my model", "the name of a model, or name@alias"),
    ("WORKSPACE", "", "must name a folder"),
    ("LOG_LEVEL", "loud", "'debug', 'info'"),
]
OF_SECRETS = {"admin_key": "a-key-of-24-characters-x", "control_url": "sqlite:///x"}


def refusal(monkeypatch, name, value):
    monkeypatch.setenv(f"FEWPASS_{name}", value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    return problem_from_error(refused.value).detail


@pytest.mark.parametrize(("name", "value", "words"), NONSENSE)
def test_nonsense_is_refused_by_its_name(monkeypatch, name, value, words):
    told = refusal(monkeypatch, name, value)
    assert told.startswith(f"FEWPASS_{name}") and words in told


def test_every_secret_is_hidden_and_may_stand_in_a_file(monkeypatch):
    hidden = {name for name, field in Settings.model_fields.items() if not field.repr}
    named = {name for name in Settings.model_fields if re.search("key$|secret|password|token|_url$", name)}
    assert hidden == named == set(SECRETS) == set(OF_SECRETS)
    assert not any(value in repr(Settings(**OF_SECRETS)) for value in OF_SECRETS.values())
    refused = refusal(monkeypatch, "ADMIN_KEY", "hush-hush")
    assert "at least 16 characters" in refused and "hush" not in refused


@pytest.mark.parametrize(("name", "value"), OF_SECRETS.items())
def test_a_secret_may_stand_in_a_file(monkeypatch, tmp_path, name, value):
    file, variable = tmp_path / "secret", f"FEWPASS_{name.upper()}_FILE"
    file.write_text(f"{value}\n")
    monkeypatch.setenv(variable, str(file))
    settings = Settings()
    assert getattr(settings, name) == value
    children = settings.within({variable: str(file), "PATH": "/bin"})
    assert children == {"PATH": "/bin", f"FEWPASS_{name.upper()}": value}, "a child gets it once"
    assert not unknown_setting_warnings({variable: str(file)})
    told = refusal(monkeypatch, name.upper(), value)
    assert told.startswith(f"FEWPASS_{name.upper()}") and f"{variable} is, too" in told and value not in told
    monkeypatch.delenv(f"FEWPASS_{name.upper()}")
    told = refusal(monkeypatch, f"{name.upper()}_FILE", str(tmp_path / "nothing"))
    assert "cannot be read from the file" in told and "nothing" in told


@pytest.mark.parametrize("address", ["local", "local:4", "local:256", "tcp://host:8786", "tls://10.0.0.1:8786"])
def test_what_names_a_cluster_is_taken(address):
    assert Settings(cluster=address).cluster == address


def test_what_was_given_wins_in_every_process_over_what_the_environment_says():
    """Also where it is the default, and in a process that gets its settings from this one."""
    given = Settings(port=8000, workspace=Path("workspace"), workers=2)
    around = {"FEWPASS_PORT": "9000", "fewpass_workspace": "/other", "FEWPASS_DEBUG": "1", "HOME": "/"}
    assert given.within(around) == {"FEWPASS_DEBUG": "1", "HOME": "/", "FEWPASS_WORKERS": "2"}


def test_settings_are_given_on_by_the_environment(monkeypatch):
    """Those that were given, lists as JSON."""
    given = {"data_roots": ("/a b", "s3://c"), "threads": 3, "warm_up": False, "log_level": "debug"}
    settings = Settings(workspace=Path("/w"), **given)
    environment = settings.environment()
    assert environment.keys() == {f"FEWPASS_{name.upper()}" for name in ("workspace", *given)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


@pytest.mark.parametrize(
    ("variables", "options", "expected"),
    [
        ({"LOG_FORMAT": "console", "PORT": "9000"}, ["--json", "--port", "8000"], ("json", 8000, False)),
        ({"PREDICT_ONLY": "true"}, ["--no-predict-only"], ("json", 8000, False)),
        ({"PREDICT_ONLY": "true", "LOG_FORMAT": "console"}, [], ("console", 8000, True)),
    ],
)
def test_options_win_over_variables(monkeypatch, variables, options, expected):
    served: list[Settings] = []
    monkeypatch.setattr(supervisor, "run_server", served.append)
    for name, value in variables.items():
        monkeypatch.setenv(f"FEWPASS_{name}", value)
    assert CliRunner().invoke(app, ["serve", *options]).exit_code == 0
    assert (served[0].log_format, served[0].port, served[0].predict_only) == expected


@pytest.mark.parametrize(("predict_only", "n_workers"), [(False, 2), (True, 0)])
def test_who_only_predicts_starts_no_worker(monkeypatch, predict_only, n_workers):
    kept: list[Settings] = []
    monkeypatch.setattr(supervisor, "_keep_worker", lambda settings, stop: kept.append(settings))
    with supervisor.supervised_job_workers(Settings(job_workers=2, predict_only=predict_only)):
        pass
    assert len(kept) == n_workers


def test_variables_that_are_no_setting_are_told():
    names = ("FEWPASS_WORKRS", "FEWPASS_DEBUG", "FEWPASS_PORT", "HOME", "FEWPASS_ZZZZZZZZZZ")
    assert unknown_setting_warnings(dict.fromkeys(names, "1")) == [
        "FEWPASS_WORKRS is not a setting and has no effect (similar: FEWPASS_WORKERS).",
        "FEWPASS_ZZZZZZZZZZ is not a setting and has no effect.",
    ]


def test_a_workspace_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for place, words in (
        (tmp_path / "file", "a file, not a folder"),
        (Path("/proc/x"), "its file system does not support folders. Choose another place"),
    ):
        with pytest.raises(Unwritable, match=words):
            Layout(place).create()
