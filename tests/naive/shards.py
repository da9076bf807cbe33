"""Merged posteriors of shards, from the definition: natural parameters add."""

import numpy as np

from learners.circuits.streaming.online import StreamingPosterior


def merged_counts(start, x, cuts, projection):
    """Pseudo-counts of edges when the rows between cuts are learned side by side, each on top of the rows before the first.

    What shards have added to the start's pseudo-counts adds up; where a sum would fall below half of the shards' mean the start
    counts less, by the same share for all edges of a node, here one after the other.
    """
    begun = StreamingPosterior(start.structure, start.prior, projection)
    begun.update(x[:, : cuts[0]])
    own = begun.pseudo_counts().edge
    parts = []
    for first, end in zip(cuts[:-1], cuts[1:], strict=True):
        shard = StreamingPosterior(start.structure, start.prior, projection)
        shard.update(x[:, : cuts[0]])
        shard.update(x[:, first:end])
        parts.append(shard.pseudo_counts().edge)
    together = np.array(own, copy=True)
    n = len(parts)
    starts = start.structure.child_starts
    for node in range(start.structure.n_nodes):
        share = 1.0
        for e in range(starts[node], starts[node + 1]):
            if n > 1 and own[e] > 0:
                share = min(share, (1 - 0.5 / n) * sum(part[e] for part in parts) / ((n - 1) * own[e]))
        for e in range(starts[node], starts[node + 1]):
            together[e] = sum(part[e] for part in parts) - share * (n - 1) * own[e]
    return together
