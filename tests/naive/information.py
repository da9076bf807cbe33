"""Information from its definition: expectations of log ratios of relative frequencies."""

from collections import Counter
from math import fsum, log


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


def matrices(x, y):
    """I(X_i; Y) of every attribute, and I(X_i; X_j | Y) of every pair, as nested lists."""
    n = x.shape[0]
    with_class = [mutual_information(x[i], y) for i in range(n)]
    between = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            between[i][j] = between[j][i] = conditional_mutual_information(x[i], x[j], y)
    return with_class, between
