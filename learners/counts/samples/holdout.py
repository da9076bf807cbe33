"""A sample of rows, drawn during a pass, on which a learner may measure itself."""

from __future__ import annotations

from learners.counts.samples.bottom_k_sample import RESERVE, DrawnRows
from learners.schema import Chunk, Schema

MAX_ROWS = 5000
# Codes of the distinct rows drawn from: of a narrow table, where rows repeat, more rows.
ROOM = 200_000


class HoldOut(DrawnRows):
    """A tenth of the rows, drawn from those of least hash.

    `capacity`: rows to draw at most.
    `room`: codes that the distinct rows to draw from may have, where these are more than `capacity`; twice as many are
    kept.
    `n_distinct`: distinct rows to draw from.
    `limit`: every row with a hash up to this one is in the sample.
    """

    stage = "drawing rows"

    def __init__(self, schema: Schema, capacity: int = MAX_ROWS, room: int = ROOM) -> None:
        self.capacity, self.room = capacity, room
        super().__init__(schema, self._n_distinct(schema))

    def _n_distinct(self, schema: Schema) -> int:
        return max(self.capacity, self.room // (schema.n_attributes + 1))

    @property
    def spec(self) -> dict[str, object]:
        """What is collected."""
        return {"statistic": "hold-out", "capacity": self.capacity, "room": self.room, "reserve": RESERVE}

    def draw(self) -> Chunk:
        """min(n_rows / 10, capacity) rows: of the `n_distinct` first distinct rows, in hash order, every so many occurrences one.

        So each occurrence of a sampled row is as likely to be drawn as any other, and of a row that is frequent most stay
        for training.

        Returns a chunk in hash order, without rows if there are fewer than 10.

        References
        ----------
        Petitjean, Buntine, Webb, Zaidi (2018), section 6.1 (the size of the hold-out).
        """
        return self.occurrences(min(self.n_rows // 10, self.capacity))
