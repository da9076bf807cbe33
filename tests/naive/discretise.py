"""Fayyad and Irani (1993) on sorted (value, class) pairs, recursively."""

from collections import Counter
from math import log2


def entropy(labels):
    """Class entropy in bits."""
    n = len(labels)
    return -sum(count / n * log2(count / n) for count in Counter(labels).values()) if n else 0.0


def mdl_cuts(values, labels):
    """Cut points, ascending: each lies half-way between two neighbouring values."""
    pairs = sorted(zip(values, labels, strict=True), key=lambda pair: pair[0])
    return _cuts([value for value, _ in pairs], [label for _, label in pairs])


def _cuts(values, labels):
    n = len(values)
    if n < 2:
        return []
    whole = entropy(labels)
    best, best_bits = None, None
    for split in range(1, n):
        if values[split] == values[split - 1]:
            continue
        bits = (split * entropy(labels[:split]) + (n - split) * entropy(labels[split:])) / n
        if best is None or bits < best_bits - 1e-12:
            best, best_bits = split, bits
    if best is None:
        return []
    low, high = labels[:best], labels[best:]
    k, k_low, k_high = len(set(labels)), len(set(low)), len(set(high))
    delta = log2(3**k - 2) - (k * whole - k_low * entropy(low) - k_high * entropy(high))
    if whole - best_bits <= (log2(n - 1) + delta) / n:
        return []
    cut = (values[best - 1] + values[best]) / 2
    return [*_cuts(values[:best], low), cut, *_cuts(values[best:], high)]
