"""A pool as look-up tables: one entry for every attribute of every member, its weights and the temperature multiplied in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.compile import compile_tables
from learners.classifiers.structure import Structure
from learners.ensembles.fit import Pool
from learners.ensembles.model import Entries
from learners.kernels.arrays import Integers
from learners.schema import Schema

# Beyond the largest number of float16 there is only infinity.
MOST_SPREAD = 60_000.0


@dataclass(frozen=True)
class PooledFamilies(Structure):
    """The families of several members in a row: an attribute may come more than once. Each member's own is acyclic."""

    def __post_init__(self) -> None:
        """There is no order among members."""


class CompiledPool(NamedTuple):
    """The tables of a pool, and what each of their families belongs to."""

    tables: kernels.LookupTables
    entries: Entries


def compile_pool(schema: Schema, class_counts: Integers, pool: Pool, share: float = 1.0) -> CompiledPool:
    """The families in use and their tables.

    The geometric pool is a sum of log probabilities, so it is one network's worth of look-ups: T / M times the weighted
    terms of each of M members.

    Parameters
    ----------
    schema : Schema
        Of the views.
    class_counts : (n_classes,) int64
    pool : Pool
    share : float
        What the scores are multiplied by beside a correction.
    """
    order, parents, trees, estimates, spreads, members, weights = [], [], [], [], [], [], []
    scale = share * pool.temperature
    for number, one in enumerate(pool.members):
        for index in range(len(one.member.families)):
            family = one.family(index)
            alone = scale / len(pool.members) * float(one.a[index])
            added = scale / len(pool.members) * float(one.b[index]) if family.parents else 0.0
            if alone == 0.0 and added == 0.0:
                continue
            levels = pool.levels[one.member.families[index]].cut(len(family.parents))
            order.append(family.attribute)
            parents.append(family.parents)
            trees.append(levels.tree)
            estimates.append(levels.weighted(alone, added))
            spreads.append(levels.spreads(alone, added))
            members.append(number)
            weights.append((one.a[index], one.b[index] if family.parents else 0.0))
    families = PooledFamilies(tuple(order), tuple(parents))
    tables = compile_tables(schema, families, class_counts, trees, estimates)
    spread = compile_tables(schema, families, class_counts, trees, spreads)
    n = np.asarray(class_counts, np.float64)
    alone_of, parents_of = np.array(weights, np.float64).reshape(-1, 2).T
    entries = Entries(
        np.array(members, np.int64),
        np.ascontiguousarray(alone_of),
        np.ascontiguousarray(parents_of),
        np.minimum(spread.dense, MOST_SPREAD).astype(np.float16),
        np.minimum(spread.vectors, MOST_SPREAD).astype(np.float16),
    )
    log_prior = scale * np.log((n + 1.0 / n.size) / (n.sum() + 1.0))
    return CompiledPool(tables._replace(log_prior=log_prior), entries)
