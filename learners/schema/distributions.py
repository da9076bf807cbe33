"""What the numbers of a numeric column may be distributed as, beside intervals."""

from __future__ import annotations

from typing import Literal, get_args

Distribution = Literal[
    "gaussian",
    "poisson",
    "exponential",
    "student",
    "lognormal",
    "quantile",
    "rounded",
    "rounded-lognormal",
    "rounded-quantile",
]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
# Those that give a probability to every number, where others have a density.
MASSES = ("poisson", "rounded", "rounded-lognormal", "rounded-quantile")
