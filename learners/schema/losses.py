"""What a schema does not keep of a table, in words."""

from __future__ import annotations

from learners.schema.schema import Schema
from learners.schema.summaries import NEARLY_CONSTANT, NO_CUT

# Such columns tell nothing of the class, or were left out on purpose: nothing is lost with them.
HARMLESS = (NO_CUT, NEARLY_CONSTANT, "constant", "dropped by request")


def losses(schema: Schema) -> list[str]:
    """What is worth knowing of columns that are not used, or not with all their values; a sentence each.

    Parameters
    ----------
    schema : Schema
        As it was inferred from a table.
    """
    told = [
        f"Column {entry.name!r} is left out: {entry.reason}."
        for entry in schema.left_out
        if not entry.reason.startswith(HARMLESS)
    ]
    told += [
        f"Column {attribute.name!r} keeps {len(attribute.values):,} values; {attribute.n_folded:,} rarer ones share one "
        "code. Raise max_values to keep more."
        for attribute in schema.attributes
        if attribute.n_folded
    ]
    return told
