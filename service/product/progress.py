"""How a running job tells of itself: every call may also raise, which is how the job is stopped."""

from collections.abc import Callable

from learners.passes.engine import ROWS, Progress
from service.requests.json_values import JSONObject

Report = Callable[[JSONObject], None]


def silent(_message: object) -> None:
    """The report, or the warning, of a caller that wants none."""


def reporting(report: Report) -> Callable[[Progress], None]:
    """The learners' progress as the job's: plain values that JSON can say. What `report` raises goes through."""

    def on_progress(progress: Progress) -> None:
        report(
            {
                "stage": progress.stage,
                "pass_number": progress.pass_number,
                "n_passes": progress.n_passes,
                "rows_done": progress.rows_done,
                "rows_total": progress.rows_total,
                "unit": progress.unit,
                "rows_per_s": round(progress.rows_per_s) if progress.unit == ROWS else None,
                "eta_s": None if progress.eta_s is None else round(progress.eta_s, 1),
                "seconds": round(progress.seconds, 3),
            }
            | ({"note": progress.note} if progress.note else {})
        )

    return on_progress
