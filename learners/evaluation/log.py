"""The outcomes of trials as JSON lines: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO

from learners.errors import SourceError
from learners.evaluation.trial import Key, Outcome


class OutcomeLog:
    """A file with one outcome a line, the newest last.

    A last line that was only half written is dropped and its trial done again.

    `path`: need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Outcome]:
        if not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):  # what follows the last line end is half a line, or nothing
            try:
                yield Outcome(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise SourceError(
                    f"{self.path}, line {number}", f"is not an outcome ({error}). Remove the line."
                ) from error

    def finished(self) -> dict[Key, Outcome]:
        """The outcomes of the trials that did not fail, by their key."""
        return {outcome.key: outcome for outcome in self if outcome.error is None}

    def append(self, outcome: Outcome) -> None:
        """Add an outcome; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fields = {name: value for name, value in asdict(outcome).items() if value is not None}
        with self.path.open("ab+") as file:
            file.truncate(_end_of_last_line(file))
            file.write(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _end_of_last_line(file: IO[bytes]) -> int:
    end = file.seek(0, os.SEEK_END)
    if not end:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return int(end)
    file.seek(0)
    return int(file.read().rfind(b"\n")) + 1
