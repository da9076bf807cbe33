"""Parameters of learning by sampling."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Literal

from learners.errors import InvalidParameter
from learners.models.parameters import Parameters

AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class GibbsParameters(Parameters):
    """Of a Bayesian circuit and its sampler, for `learning="gibbs"`. Raises InvalidParameter.

    Parameters
    ----------
    children : int
        Children of each sum, C_s; a circuit over m columns has about (2 children)^log2(m) sums.
    sampler : "lazy"
        The collapsed sampler, whose state has only the sums that a row reaches.
    whole_moves, subtree_moves : float
        Proposals of a row's whole induced tree, and of parts of it, in each sweep.
    iterations : int or "auto"
        Sweeps of each chain, the first half of which is not used. "auto" doubles them until R-hat is at most 1.1 and the effective
        sample size of the log joint at least `effective`, or `most_iterations` are done.
    effective : int
        Least effective sample size of the log joint, where iterations is "auto".
    most_iterations : int
        Most sweeps of each chain, where iterations is "auto".
    chains : int
        Independent chains; two or more show whether they agree.
    draws : int
        How many samples of weights and leaf parameters are kept, of all chains together.
    alpha : float, optional
        Pseudo-count of each child of a sum; by default 1, or tuned.
    share : float, optional
        Share of the rows that the prior of a leaf is fitted to, r_d of each column; by default 0.1, or tuned.
    prior_variance, prior_mean : float, optional
        Half the rows that the variance, and the rows that the mean, of a Gaussian leaf's prior stand for.
    prior_values : float, optional
        Pseudo-count of each value of a categorical leaf.
    trials : int
        How many settings of the prior are tried on rows kept back; 0 for none. Optuna's TPE proposes those of the five that
        are not given.
    trial_sweeps : int
        Sweeps of each trial.

    References
    ----------
    Yokoi, Sato (2024); Vergari et al. (2019); Zhao, Adel, Gordon, Amos (2016).
    """

    children: int = 2
    sampler: Literal["lazy"] = "lazy"
    whole_moves: float = 1.0
    subtree_moves: float = 4.0
    iterations: int | Literal["auto"] = AUTO
    effective: int = 100
    most_iterations: int = 3200
    chains: int = 2
    draws: int = 100
    alpha: float | None = None
    share: float | None = None
    prior_variance: float | None = None
    prior_mean: float | None = None
    prior_values: float | None = None
    trials: int = 0
    trial_sweeps: int = 40

    def refuse(self, names: Collection[str], why: str) -> None:
        """Refuse parameters that would be ignored, where they differ from their defaults. Raises InvalidParameter."""
        for own in fields(self):
            value = getattr(self, own.name)
            if own.name in names and value != own.default:
                raise InvalidParameter(own.name, value, why)

    def check_sampling(self) -> None:
        """Refuse what is out of range. Raises InvalidParameter."""
        self.check_whole_numbers(
            children=(2, 256),
            effective=(4, 1_000_000),
            most_iterations=(8, 10_000_000),
            chains=(1, 64),
            draws=(1, 100_000),
            trials=(0, 100_000),
            trial_sweeps=(1, 100_000),
        )
        if self.iterations != AUTO:
            self.check_whole_numbers(iterations=(2, 10_000_000))
        if self.iterations == AUTO and self.chains < 2:
            raise InvalidParameter(
                "chains", self.chains, "two or more, as iterations='auto' compares them; or say how many iterations"
            )
        for name in ("whole_moves", "subtree_moves"):
            if not 0 <= getattr(self, name) <= 10_000:
                raise InvalidParameter(name, getattr(self, name), "from 0 to 10,000")
        if not self.whole_moves + self.subtree_moves > 0:
            raise InvalidParameter("whole_moves", self.whole_moves, "above zero, or subtree_moves is")
        for name in ("alpha", "prior_variance", "prior_mean", "prior_values"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise InvalidParameter(name, value, "a positive number")
        if self.share is not None and not 0 < self.share <= 1:
            raise InvalidParameter("share", self.share, "above 0 and at most 1")


OF_SAMPLING = frozenset(own.name for own in fields(GibbsParameters))
NOT_OF_SAMPLING = frozenset(
    (
        *("minutes", "passes", "tolerance", "laplace", "strength", "stream_passes", "shards"),
        *("states", "depth", "sums", "replicas", "sample"),
    )
)
NOT_OF_A_FILE = frozenset(("children", "whole_moves", "subtree_moves", "share", "trials", "trial_sweeps"))
