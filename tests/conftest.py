"""Settings of the whole test suite."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.processes import HAS_POSTGRES, NO_POSTGRES, postgres_cluster

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
    """The URL of a PostgreSQL server that lives as long as the tests do."""
    if not HAS_POSTGRES:
        pytest.skip(NO_POSTGRES)
    with postgres_cluster("-c fsync=off") as cluster:
        yield cluster.socket_url
