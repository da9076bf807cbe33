"""Imports and cleanup of jobs, done in the process from which job processes are forked so that they share them."""

import atexit
import gc

from service.startup import relax_gc_for_startup, restore_gc_after_startup, skip_pandas_import, skip_unused_imports

relax_gc_for_startup()
skip_pandas_import()
skip_unused_imports()

import service.product.submission.job_steps  # noqa: E402
import service.telemetry  # noqa: E402

gc.freeze()
atexit.register(gc.unfreeze)  # or else what is frozen outlives the interpreter, and libraries complain
restore_gc_after_startup()

__all__ = ["service"]
