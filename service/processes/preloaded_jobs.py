"""Imports what jobs need and cleans up after itself: in the process from which those of jobs are forked, so that they share it."""

import atexit
import gc

from service.startup import begin_loading, end_loading, spare_pandas

begin_loading()
spare_pandas()

import service.product.submission.job_steps  # noqa: E402
import service.telemetry  # noqa: E402

gc.freeze()
atexit.register(gc.unfreeze)  # or else what is frozen outlives the interpreter, and libraries complain
end_loading()

__all__ = ["service"]
