"""Words for the codes of an attribute."""

from __future__ import annotations

from learners.schema.schema import Attribute


def labels_of(attribute: Attribute) -> list[str]:
    """What the codes of an attribute stand for, each in other words: a value may be called "(missing)" or "(other)", too."""
    labels = attribute.labels()
    if attribute.kind == "nominal":
        special = [0] * attribute.has_missing + [len(labels) - 1] * (attribute.n_folded > 0)
        for place in special:
            while labels.count(labels[place]) > 1:
                labels[place] = f"({labels[place]})"
    return labels
