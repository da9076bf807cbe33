"""Information from its definition: expectations of log ratios of relative frequencies."""

from collections import Counter
from math import fsum, log

import numpy as np


def mutual_information(x, y):
    """I(X; Y) in nats of two code vectors."""
    x, y = x.tolist(), y.tolist()
    n = len(y)
    both, of_x, of_y = Counter(zip(x, y, strict=True)), Counter(x), Counter(y)
    return fsum(count / n * log(count * n / (of_x[a] * of_y[k])) for (a, k), count in both.items())


def conditional_mutual_information(x, z, y):
    """I(X; Z | Y) in nats of three code vectors."""
    x, z, y = x.tolist(), z.tolist(), y.tolist()
    n = len(y)
    all_three = Counter(zip(x, z, y, strict=True))
    of_x, of_z, of_y = Counter(zip(x, y, strict=True)), Counter(zip(z, y, strict=True)), Counter(y)
    return fsum(count / n * log(count * of_y[k] / (of_x[a, k] * of_z[b, k])) for (a, b, k), count in all_three.items())


def freedom(x, z, y):
    """Degrees of freedom of two code vectors that are independent given a third."""
    return sum((len(set(x[y == k])) - 1) * (len(set(z[y == k])) - 1) for k in set(y))


def matrices(x, y, width_cost=0.0):
    """I(X_i; Y) of every attribute, and I(X_i; X_j | Y) of every pair, as nested lists, less the cost of widths."""
    n, unit = x.shape[0], width_cost / (2 * y.size)
    alone = np.zeros_like(y)
    with_class = [mutual_information(x[i], y) - unit * freedom(x[i], y, alone) for i in range(n)]
    between = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            told = conditional_mutual_information(x[i], x[j], y) - unit * freedom(x[i], x[j], y)
            between[i][j] = between[j][i] = told
    return with_class, between
