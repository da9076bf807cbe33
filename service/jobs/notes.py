"""What a worker leaves about its running jobs for the worker that comes after it: a few words in a file per job."""

import contextlib
from pathlib import Path

from learners.memory import machine_bytes
from service.jobs.limits import bytes_text
from service.json_values import JSONObject
from service.problems import OutOfMemory
from storage.errors import CorruptFile
from storage.sums import checked_document, with_sum

NOTES = "jobs"  # the folder, beside the locks of the workers
# A killed worker's job is tried again: the memory may have been another's. Twice is no accident.
MAX_KILLS = 2
NEARLY_ALL = 0.9


class Notes:
    """The notes of the workers of a workspace.

    Parameters
    ----------
    directory : Path
        One file for each job that runs, removed when it ends.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def begin(self, job_id: str) -> JSONObject | None:
        """Note that a job starts.

        Returns
        -------
        dict or None
            The problem document with which a worker has ended the job before it ended itself, if it was so.

        Raises
        ------
        OutOfMemory
            If the kernel has killed its worker for want of memory too often.
        """
        last = self._read(job_id)
        if last is not None and "problem" in last:
            problem: JSONObject = last["problem"]
            return problem
        kills = 0 if last is None else last["kills"] + _was_killed(last)
        if last is not None and kills >= MAX_KILLS:
            raise OutOfMemory(
                f"The kernel killed the worker of this job because memory ran out, {kills} times; it held "
                f"{bytes_text(last['used'])} when last seen. Set memory_limit, so that counts go to files in time, give the "
                "job less to hold (max_values, k), or give the machine more memory.",
                memory_used=last["used"],
            )
        self._write(job_id, {"kills": kills, "killed_before": killed_by_kernel(), "used": 0})
        return None

    def saw(self, job_id: str, used: int) -> None:
        """Note how much memory the worker of a job holds."""
        last = self._read(job_id)
        if last is not None:
            self._write(job_id, last | {"used": used})

    def fail(self, job_id: str, problem: JSONObject) -> None:
        """Note why a job ends, before its worker does."""
        self._write(job_id, {"problem": problem})

    def end(self, job_id: str) -> None:
        """The job has ended, and whoever asks can be told why."""
        self._path(job_id).unlink(missing_ok=True)

    def jobs(self) -> list[str]:
        """The jobs that have begun and, as far as is known here, not ended."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def _path(self, job_id: str) -> Path:
        return self.directory / f"{job_id}.json"

    def _read(self, job_id: str) -> JSONObject | None:
        """None of a note that is damaged, too: the job is tried once more."""
        path = self._path(job_id)
        try:
            return checked_document(path, path.read_bytes())
        except (OSError, ValueError, TypeError, CorruptFile):
            return None

    def _write(self, job_id: str, note: JSONObject) -> None:
        draft = self._path(job_id).with_suffix(".partial")
        with contextlib.suppress(OSError):  # a full disk loses the note and not the job
            draft.write_text(with_sum(note))
            draft.replace(self._path(job_id))


def _was_killed(last: JSONObject) -> bool:
    """Whether it was for want of memory that the last worker did not come to an end of this job."""
    before, now = last["killed_before"], killed_by_kernel()
    return now > before or bool(last["used"] > NEARLY_ALL * machine_bytes())


def killed_by_kernel() -> int:
    """How many processes the kernel has killed for want of memory: in this container, or else on this machine."""
    for path in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0
