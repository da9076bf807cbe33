"""Quality reports of models as HTML pages, shown in notebooks and saved to files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from learners.evaluation.model_report import ModelReport
from service.requests.problems import InvalidRequest
from storage.files.atomic_files import write_file_atomically


@dataclass(frozen=True, eq=False)
class Page:
    """Quality report of a model on some rows, as one self-contained HTML page.

    Parameters
    ----------
    numbers : ModelReport
        What the page shows: `metrics`, `verdict`, `confusion`, `calibration`, …
    html : str
    """

    numbers: ModelReport
    html: str

    def __repr__(self) -> str:
        return self.numbers.verdict

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the page to a file.

        Raises
        ------
        InvalidRequest
            If the file exists and is not to be replaced.
        """
        path = Path(path)
        if path.exists() and not replace:
            raise InvalidRequest(f"{path} already exists. Choose another name, or replace it with replace=True.")
        with write_file_atomically(path, replace=replace) as draft:
            draft.write_text(self.html, encoding="utf-8")
