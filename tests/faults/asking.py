"""The face of `tests.faults.forker`, which runs small pieces of the product in forked processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "failing_calls.c"


class Forker:
    """The process that forks runs; see `tests.faults.forker`."""

    def __init__(self, folder):
        self.folder, self.run = folder, folder / "run"
        library = folder / "failing_calls.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        command = [sys.executable, "-m", "tests.faults.forker", str(library), str(folder)]
        one = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.log = (folder / "forker.log").open("w")
        self.process = subprocess.Popen(
            command,
            env=os.environ | one | {"LD_PRELOAD": str(library), "FEWPASS_LOG_LEVEL": "error"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self._answer()["ready"]

    def _answer(self):
        line = self.process.stdout.readline()
        assert line, (self.folder / "forker.log").read_text()[-3000:]
        return json.loads(line)

    def ask(self, do, at=0, kind="none", error=0, log="/dev/null", keep=""):
        """Run one operation in a forked process, whose system call number `at` fails with `error`, or kills it.

        Calls are written to `log`, and what a call syncs is kept in the folder `keep`.
        """
        command = {"do": do, "folder": str(self.run), "at": at, "kind": kind, "errno": error, "log": str(log)}
        command["keep"] = str(keep)
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def reset(self):
        """The workspace as it was at first."""
        shutil.rmtree(self.run)
        shutil.copytree(self.folder / "base", self.run)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.log.close()
