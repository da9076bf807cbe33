"""A process that does nothing but tick the schedules of a workspace. Run, and killed, by test_schedule_faults.py."""

import sys
from pathlib import Path

from service import product
from service.product.submission.scheduler import Scheduler
from service.settings import Settings
from service.workspace import Workspace

if __name__ == "__main__":
    workspace = Workspace(Settings(workspace=Path(sys.argv[1])))
    assert product.job_queue(workspace) is not None
    scheduler = Scheduler(workspace)
    print("ready", flush=True)
    while True:
        scheduler.tick()
