"""Most probable values of the given variables with the others summed out: max-product elimination, best first."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learners.circuits.errors import ImpossibleEvidence
from learners.kernels.arrays import Floats, Integers
from learners.registry.networks.elimination.rows import Elimination


class Assigned(NamedTuple):
    """An assignment with the log of its joint probability with the evidence."""

    codes: dict[int, int]
    log_probability: float


class _Part(NamedTuple):
    """Best assignment within a subset of all assignments, and the variable value in which the next best differs from
    it.
    """

    best: Assigned
    log_next: float
    differs: tuple[int, int]  # variable, value
    weights: Mapping[int, Floats]  # which leave only this part


def most_probable(
    elimination: Elimination,
    observed: Mapping[int, int],
    variables: Sequence[int],
    weights: Mapping[int, Floats],
    n: int = 1,
    time_limit_s: float = np.inf,
) -> Iterator[Assigned]:
    """Yield at most n most probable assignments of variables given others, best first.

    After the time limit the search stops. Raises ImpossibleEvidence, TablesTooLargeToSum.

    References
    ----------
    Koller, Friedman (2009), Probabilistic Graphical Models, section 13.2: variables that are summed out come before those that are
    maximised. Yanover, Weiss (2004), Finding the M most probable configurations: the second best from max-marginals, the next ones
    from the two parts that its value makes.
    """
    started, ties = time.monotonic(), itertools.count()
    first = _best_part(elimination, observed, variables, weights, is_next_wanted=n > 1)
    if first.best.log_probability == -np.inf:
        raise ImpossibleEvidence
    yield first.best
    parts = [(-first.log_next, next(ties), first)]
    for _ in range(n - 1):
        if parts[0][0] == np.inf or time.monotonic() - started > time_limit_s:
            return
        *_, part = heapq.heappop(parts)
        v, code = part.differs
        is_code = np.arange(elimination.sizes[v]) == code
        before = part.weights.get(v, np.zeros(is_code.size))
        for is_left in (is_code, ~is_code):
            own = {**part.weights, v: np.where(is_left, before, -np.inf)}
            new = _best_part(elimination, observed, variables, own, is_next_wanted=True)
            heapq.heappush(parts, (-new.log_next, next(ties), new))
            if is_left is is_code:
                yield new.best


def _best_part(
    elimination: Elimination,
    observed: Mapping[int, int],
    variables: Sequence[int],
    weights: Mapping[int, Floats],
    *,
    is_next_wanted: bool,
) -> _Part:
    codes: dict[int, Integers] = {v: np.array([code]) for v, code in observed.items()}
    plan = elimination.plan(frozenset(codes), frozenset([*variables, *weights]), last=frozenset(variables))
    places = frozenset(plan.tree.home[v] for v in variables)
    up = elimination.collected(plan, codes, weights, places)
    log = float(up.logs[0])
    best = dict.fromkeys(variables, 0)
    if log == -np.inf:
        return _Part(Assigned(best, log), -np.inf, (variables[0], 0), weights)
    for place in sorted(places, reverse=True):
        clique = plan.tree.cliques[place]
        values = up.collected.products[place].values[0]
        own = values[(..., *(best[v] for v in clique.separator))]
        at = np.unravel_index(int(own.argmax()), own.shape)
        best.update(zip(clique.eliminated, map(int, at), strict=True))
    if not is_next_wanted:
        return _Part(Assigned(best, log), -np.inf, (variables[0], 0), weights)
    propagation, beliefs = elimination.believed(up, set(places), plan, codes, weights)
    found = (-np.inf, (variables[0], 0))
    for v in variables:
        belief = beliefs[plan.tree.home[v]]
        peaks = propagation.reduced_to(belief, (v,), True)[0]
        if not propagation.in_logs:
            with np.errstate(divide="ignore"):
                peaks = np.log(peaks)
        # The largest is the best itself, and within rounding of it.
        others = peaks - peaks[best[v]]
        others[best[v]] = -np.inf
        code = int(others.argmax())
        if others[code] > found[0]:
            found = float(others[code]), (v, code)
    return _Part(Assigned(best, log), log + found[0], found[1], weights)
