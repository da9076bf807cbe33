"""What a schema does not keep of a table, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from learners.schema.inference.column_summary import NEARLY_CONSTANT, NO_CUT
from learners.schema.overrides import DROPPED, SCREENED, WEIGHT
from learners.schema.schema import Attribute, Schema

# Such columns tell nothing of the class, or were left out on purpose: nothing is lost with them.
HARMLESS = (NO_CUT, NEARLY_CONSTANT, "constant", DROPPED, SCREENED, WEIGHT)


class FoldingCost(NamedTuple):
    """What folding the rare values of a column can have cost."""

    share: float  # of the rows, those with a folded value
    most_nats: float  # of information about the class that is lost, at most


NO_COSTS: Mapping[str, FoldingCost] = {}


def losses(schema: Schema, costs: Mapping[str, FoldingCost] = NO_COSTS) -> list[str]:
    """What is worth knowing of columns that are not used, or not with all their values; a sentence each.

    `schema`: as it was inferred from a table.
    `costs`: of folding, by the name of the column, as far as they are known.
    """
    lost = [
        f"Column {entry.name!r} is left out: {entry.reason}."
        for entry in schema.left_out
        if not entry.reason.startswith(HARMLESS)
    ]
    return lost + [_of_folding(own, costs.get(own.name)) for own in schema.attributes if own.n_folded]


def _of_folding(attribute: Attribute, cost: FoldingCost | None) -> str:
    text = f"Column {attribute.name!r} keeps {len(attribute.values):,} values; {attribute.n_folded:,} rarer ones share one code"
    if cost is not None:
        text += f", in {cost.share:.1%} of the rows: told apart, they could lower the log loss by at most {cost.most_nats:.3g}"
    return f"{text}. Raise max_values to keep more."
