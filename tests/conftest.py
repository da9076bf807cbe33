"""Settings of the whole test suite."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.processes import wait_for

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
    """The URL of a PostgreSQL server that lives as long as the tests do and listens on a socket only."""
    import psycopg

    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("PostgreSQL (initdb and postgres on the PATH) is not installed")
    # PostgreSQL refuses to run as root, and the path of a socket must be short.
    as_user = {"user": "postgres"} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="fewpass-pg-"))
    if as_user:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    initdb = ["initdb", "-D", str(data), "-U", "fewpass", "-A", "trust", "--no-sync", "-E", "UTF8"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **as_user)
    command = ["postgres", "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **as_user)
    url = f"postgresql://fewpass@/postgres?host={folder}"

    def has_started():
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        wait_for(has_started)
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # at once; SIGTERM would wait for connections
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
