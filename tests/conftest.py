"""Settings of the whole test suite."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# numba's first compilation of a kernel takes seconds: far more than hypothesis' default deadline.
settings.register_profile("fewpass", deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fewpass"))
