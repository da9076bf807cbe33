"""`fewpass` whose server starts what was killed again at once: by itself it waits up to half a minute if one dies again and again.

`python -m tests.faults.hasty serve …`
"""

from service.cli import app
from service.processes import supervisor

if __name__ == "__main__":
    supervisor.RESTART_S = supervisor.MAX_RESTART_S = 0.1
    app()
