"""Settings of the whole test suite."""

import functools
import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.processes import HAS_POSTGRES, NO_POSTGRES, postgres_cluster

# Before anything imports them: their assertions show what they compare, too.
pytest.register_assert_rewrite("tests.support")

# What is slow by nature: browsers, clusters, histories, calibration, kills, clocks, damaged input, whole walks. `make test` does not even
# collect these files; `make test-slow` runs them and the single tests of slow.txt; pytest without `--tier` takes all.
SLOW = [
    "benchmarks",
    "circuits/bayesian/test_calibration.py",
    "circuits/bayesian/test_geweke.py",
    "faults",
    "fuzz",
    "passes/test_dask_cluster.py",
    "passes/test_lake_histories.py",
    "service/console/browser",
    "service/http/test_connections.py",
    "service/http/test_many_classes.py",
    "service/http/test_schemathesis.py",
    "service/jobs/test_clock_faults.py",
    "service/jobs/test_crew_machine.py",
    "service/jobs/test_hostile_files.py",
    "service/jobs/test_jobs_machine.py",
    "service/jobs/test_limit_faults.py",
    "service/jobs/test_schedule_faults.py",
    "service/jobs/test_worker_leases.py",
    "service/operations/test_demo.py",
    "service/operations/test_load.py",
    "service/operations/test_precompile.py",
    "service/processes",
    "service/product/test_pruning_faults.py",
    "service/product/test_s3.py",
    "service/test_cli_page.py",
    "service/test_full_disk.py",
    "service/test_how_to.py",
    "service/test_readme.py",
    "storage/test_registry_machine.py",
    "test_docs_code.py",
]

# A loaded machine reads what a request names in its own time; tests of the limit set their own.
os.environ.setdefault("FEWPASS_REQUEST_TIMEOUT_S", "600")

# Each of many processes would compile all modules, and each run the assertions of all tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Before numpy is loaded, here and in what the tests start. Threads of OpenBLAS spin while they wait for each other: beside other
# processes, on two cores, that was a third of the processor time of the tests of circuits.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# numba's first compilation of a kernel takes seconds: far more than hypothesis' default deadline. The same examples every
# time, so that a run tells of the change and not of chance; HYPOTHESIS_PROFILE=explore looks for new ones.
EXAMPLES = {"deadline": None, "max_examples": 25, "suppress_health_check": list(HealthCheck)}
settings.register_profile("fewpass", derandomize=True, **EXAMPLES)
settings.register_profile("explore", derandomize=False, **EXAMPLES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fewpass"))

# Of the objects that all tests have in common, none is garbage: to look at them again and again took a fifteenth of the time
# of the tests, and a quarter of that of their collection.
YOUNG_OBJECTS = 20_000
gc.disable()


def pytest_addoption(parser):
    parser.addoption("--tier", choices=("fast", "slow"), help="only tests that are quick, or only those that are not")


@functools.cache
def slow_tests():
    """The single tests of slow.txt, by their files."""
    lines = (Path(__file__).parent / "slow.txt").read_text().splitlines()
    tests = {}
    for line in lines:
        if not line.startswith("#"):
            tests.setdefault(line.partition("::")[0], []).append(line)
    return tests


@functools.cache
def _is_slow(path):
    """Whether a file is slow as a whole."""
    return any(path.is_relative_to(Path(__file__).parent / place) for place in SLOW)


def pytest_ignore_collect(collection_path, config):
    tier = config.getoption("--tier")
    if tier is None or not collection_path.name.startswith("test_") or not collection_path.is_file():
        return None
    if tier == "fast":
        return True if _is_slow(collection_path) else None
    has_some = str(collection_path.relative_to(Path(__file__).parent)) in slow_tests()
    return None if has_some or _is_slow(collection_path) else True


def pytest_collection_modifyitems(config, items):
    tier = config.getoption("--tier")
    if tier is None:
        return
    tests = {test for of_file in slow_tests().values() for test in of_file}
    sides = {"fast": [], "slow": []}
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        is_slow = name in tests or name.partition("[")[0] in tests or _is_slow(item.path)
        sides["slow" if is_slow else "fast"].append(item)
    items[:] = sides.pop(tier)
    config.hook.pytest_deselected(items=next(iter(sides.values())))


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()


PUBLIC_SETS = Path(__file__).parent.parent.parent / "shared" / "data" / "classification"
needs_public_sets = pytest.mark.skipif(
    not PUBLIC_SETS.is_dir(), reason="the public data sets are not at ../shared/data/classification"
)


def public_sets():
    """The Parquet files of the public classification sets."""
    return sorted(PUBLIC_SETS.glob("*.parquet"))


@pytest.fixture(scope="session")
def postgres():
    """The URL of a PostgreSQL server that lives as long as the tests do."""
    if not HAS_POSTGRES:
        pytest.skip(NO_POSTGRES)
    with postgres_cluster("-c fsync=off") as cluster:
        yield cluster.socket_url
