"""What commands load: a second of imports is a second that everybody waits."""

import gc
import io
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from service import startup, terminal_output
from tests.processes import wait_for

LEARNING = {"sklearn", "xgboost", "matplotlib", "dbos", "fastapi", "pyarrow.dataset", "pandas"}
LEARNING |= {"scipy.special", "scipy.linalg", "yaml"}
LOGGING = {"structlog", "prometheus_client", "service.serving.predictor"}
LISTING = LEARNING | {"numba", "numpy", "pyarrow", "duckdb", "scipy", "structlog", "alembic"}
LISTING |= {"psycopg", "distributed", "uvicorn", "httpx"}


def loaded(workspace, *arguments):
    """Runs a command, and tells which modules it has loaded."""
    code = (
        "import atexit, sys, service.cli\n"
        "atexit.register(lambda: print('loaded', *sys.modules))\n"
        f"sys.argv = ['fewpass', *{list(map(str, arguments))!r}]\n"
        "service.cli.app()"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEWPASS_")}
    environment |= {"FEWPASS_WORKSPACE": str(workspace)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    table = pa.table({"size": rng.normal(y, 1.0), "class": np.array(["no", "yes"])[y]})
    pq.write_table(table, folder / "table.parquet")
    known = loaded(folder / "workspace", "train", folder / "table.parquet", "-n", "m", "-t", "class", "-l", "kdb")
    assert not known & (LEARNING | LOGGING)
    return folder


def test_the_default_loads_xgboost_without_what_only_its_estimators_need(workspace):
    known = loaded(workspace / "workspace", "train", workspace / "table.parquet", "-n", "trees", "-t", "class")
    assert "xgboost" in known
    assert not known & {"sklearn", "pandas", "scipy.stats", "yaml", "unittest", "scipy.spatial.transform"}
    wings = ("learners.circuits", "learners.orders", "learners.registry.networks", "service.http", "service.console")
    assert not sorted(name for name in known if name.startswith(wings))


def test_help_loads_no_command():
    ours = {name for name in loaded("unused", "--help") if name.split(".")[0] in ("learners", "storage", "service")}
    assert ours == {"service", "service.cli", "service.startup", "service.version"}


@pytest.mark.parametrize("command", [["models"], ["models", "show", "m"]])
def test_lists_load_neither_arrays_nor_kernels(command, workspace):
    assert not loaded(workspace / "workspace", *command) & LISTING


@pytest.mark.parametrize("command", ["evaluate m", "schema"])
def test_no_command_loads_what_it_does_not_use(command, workspace):
    unused = LEARNING - ({"dbos"} if command == "evaluate m" else set())
    assert not loaded(workspace / "workspace", *command.split(), workspace / "table.parquet") & unused


def test_forgetting_loads_no_queue_unless_a_proof_is_queued(workspace):
    learned = ("train", workspace / "table.parquet", "-n", "less", "-t", "class", "-l", "kdb", "--update")
    loaded(workspace / "workspace", *learned)
    assert not loaded(workspace / "workspace", "forget", "less", "--where", "size > 2") & (LEARNING | LOGGING)


def test_kernels_found_on_disk_need_nothing_that_only_compiling_needs(workspace):
    command = ["predict", "m", workspace / "table.parquet", "-o", workspace / "scored.parquet", "--force"]
    compiled, found = (loaded(workspace / "workspace", *command) for _ in range(2))
    assert not compiled & LEARNING
    assert "numba" in found and not found & {"numba.np.linalg", "numba.np.arraymath", "structlog"}


def test_the_first_line_of_a_log_goes_to_standard_error():
    code = (
        "import sys; from service.terminal_output import send_logs_to_stderr; send_logs_to_stderr(); "
        "print('structlog' in sys.modules); import structlog; structlog.get_logger('jobs').warning('said')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert "said" in done.stderr


@pytest.mark.parametrize("is_shown", [True, False])
def test_without_a_terminal_plain_lines_say_how_far_it_is(is_shown, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(terminal_output, "err", Console(file=stream))
    monkeypatch.setattr(terminal_output, "PLAIN_LINE_S", 0.01)
    with terminal_output.terminal_progress_bar(is_shown) as report:
        report({"step": "learn", "stage": "counting pairs", "pass_number": 2, "n_passes": 3})
        wait_for(lambda: not is_shown or "counting pairs" in stream.getvalue())
    shown = stream.getvalue()
    line = "after 0 s: learn, pass 2 of 3 (counting pairs)\n"
    assert line in shown if is_shown else not shown


def test_garbage_is_looked_for_as_usual_once_a_command_works(monkeypatch):
    monkeypatch.setattr(terminal_output.CommandProcess, "is_own", False)
    monkeypatch.setattr(terminal_output, "skip_pandas_import", lambda: None)  # this process may be given frames
    monkeypatch.setattr(terminal_output, "skip_scipy_linalg_import", lambda: None)
    try:
        terminal_output.CommandProcess.begin()
        assert gc.get_threshold()[0] == startup.LOADED_OBJECTS
        with terminal_output.terminal_progress_bar(False) as report:
            report({"step": "predict"})
            assert gc.get_threshold() == startup.USUAL_THRESHOLDS
    finally:
        gc.set_threshold(*startup.USUAL_THRESHOLDS)
