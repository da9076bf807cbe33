"""Whether a version's files, which are there, make a model: if not, they are damaged, or an older release wrote them."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

from learners.errors import LearnerError
from storage.errors import CorruptFile, OutdatedModel
from storage.models.model_file import verify
from storage.models.model_versions import ModelVersion


@contextlib.contextmanager
def usable(version: ModelVersion) -> Iterator[None]:
    """Say what a model fails with: CorruptFile if its files are not what was written, else OutdatedModel."""
    try:
        yield
    except (LearnerError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        verify(version.duckdb_path)  # raises CorruptFile, with the file and what is wrong with it
        reason = f"{type(error).__name__}: {error}"
        raise OutdatedModel(f"{version.name}@{version.version}", reason, training_command(version)) from error


def training_command(version: ModelVersion) -> str:
    """What trains a version like this one, as far as the registry knows and may be told to whoever asks for predictions."""
    parameters = [f"--set {shlex.quote(f'{name}={value}')}" for name, value in version.parameters.items()]
    return " ".join(["fewpass train FILES", f"--name {version.name} --learner {version.learner}", *parameters])


class Unusable:
    """Versions that could not be used, and when, so that each request and poll does not look at every byte again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[str, int, str], tuple[tuple[int, int], CorruptFile]] = {}

    def check(self, version: ModelVersion) -> None:
        """Raise what was found last time (CorruptFile), as long as the file is the same one."""
        mark, error = self._known.get(_key(version), (None, None))
        if error is not None and mark == _mark(version):
            raise error

    def add(self, version: ModelVersion, error: CorruptFile) -> None:
        """Remember what was found."""
        self._known.pop(_key(version), None)
        while len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[_key(version)] = _mark(version), error


def _key(version: ModelVersion) -> tuple[str, int, str]:
    return version.name, version.version, version.sha256


def _mark(version: ModelVersion) -> tuple[int, int]:
    """What changes when the compiled form is made anew."""
    with contextlib.suppress(OSError):
        found = version.arrow_path.stat()
        return found.st_mtime_ns, found.st_ino
    return 0, 0
