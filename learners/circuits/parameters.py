"""Parameters for constructing and learning circuits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from learners.errors import InvalidParameter
from learners.models.parameters import Parameters
from learners.schema.schema import DISTRIBUTIONS, Distribution

AUTO: Literal["auto"] = "auto"
BY_COLUMN, PAPER = "by-column", "paper"
GAUSSIANS = "gaussian-mixture"
NOT_OF_A_FILE = frozenset(("children", "whole_moves", "subtree_moves", "share", "trials", "trial_sweeps"))
# Learning whose numeric leaves have conjugate priors, and what it can learn.
ROW_BY_ROW = ("adf", "bmm", "gibbs")
CONJUGATE = ("gaussian", "poisson", "exponential")


def _check_circuit_file(structure: str, circuit: str) -> None:
    if bool(circuit) != (structure == "file"):
        raise InvalidParameter("circuit", circuit, because="it names a file and belongs to structure='file'")


@dataclass(frozen=True, kw_only=True)
class GibbsParameters(Parameters):
    """Parameters of a Bayesian circuit and its sampler. Raises InvalidParameter.

    Parameters
    ----------
    children : int
        Children of each sum, C_s; a circuit over m columns has about (2 children)^log2(m) sums.
    whole_moves, subtree_moves : float
        Proposals of a row's whole induced tree, and of parts of it, in each sweep.
    iterations : int or "auto"
        Sweeps of each chain, the first half of which is not used. "auto" doubles them until R-hat is at most 1.1 and the effective
        sample size of the log joint at least `effective`, or `most_iterations` are done.
    effective : int
        Minimum effective sample size of the log joint, if iterations is "auto".
    most_iterations : int
        Maximum number of sweeps of each chain, if iterations is "auto".
    chains : int
        Independent chains; two or more show whether they agree.
    draws : int
        How many samples of weights and leaf parameters are kept, of all chains together.
    alpha : float, optional
        Pseudo-count of each child of a sum; by default 1, or tuned.
    share : float, optional
        Share of the rows that the prior of a leaf is fitted to, r_d of each column; by default 0.1, or tuned.
    prior_variance, prior_mean : float, optional
        Half the number of rows that the prior variance of a Gaussian leaf is worth, and the number for its prior mean.
    prior_values : float, optional
        Pseudo-count of each value of a categorical leaf.
    trials : int
        How many settings of the prior are tried on rows kept back; 0 for none. Optuna's TPE proposes those of the five that
        are not given.
    trial_sweeps : int
        Sweeps of each trial.
    structure : "auto" or "file"
        A complete binary circuit, or the circuit of a file, of which weights and leaves are sampled.
    circuit : str
        Path or URI of the circuit's file, for the structure "file": text or JSON. Variable i is attribute i, the class last.
    leaves : "by-column", "paper", "intervals" or a distribution
        Default model of numeric columns: by the families that each column asks for, those of
        Yokoi and Sato's paper, intervals, or one distribution.
    n_bins : int
        Most intervals of a numeric column.
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.
    seed : int
        Start of the random numbers; the same seed gives the same model.

    References
    ----------
    Yokoi, Sato (2024); Vergari et al. (2019); Zhao, Adel, Gordon, Amos (2016).
    """

    learning: ClassVar[Literal["gibbs"]] = "gibbs"
    children: int = 2
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
    structure: Literal["auto", "file"] = "auto"
    circuit: str = ""
    leaves: Literal["by-column", "paper", "intervals"] | Distribution = "by-column"
    n_bins: int = 8
    max_values: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole_numbers(
            children=(2, 256),
            effective=(4, 1_000_000),
            most_iterations=(8, 10_000_000),
            chains=(1, 64),
            draws=(1, 100_000),
            trials=(0, 100_000),
            trial_sweeps=(1, 100_000),
            n_bins=(2, 256),
            max_values=(2, 65_000),
            seed=(0, 2**32 - 1),
        )
        _check_circuit_file(self.structure, self.circuit)
        if self.iterations != AUTO:
            self.check_whole_numbers(iterations=(2, 10_000_000))
        if self.iterations == AUTO and self.chains < 2:
            raise InvalidParameter(
                "chains", self.chains, "two or more, because iterations='auto' compares chains; or set iterations"
            )
        for name in ("whole_moves", "subtree_moves"):
            if not 0 <= getattr(self, name) <= 10_000:
                raise InvalidParameter(name, getattr(self, name), "from 0 to 10,000")
        if not self.whole_moves + self.subtree_moves > 0:
            raise InvalidParameter("whole_moves", self.whole_moves, "above zero if subtree_moves is zero")
        for name in ("alpha", "prior_variance", "prior_mean", "prior_values"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise InvalidParameter(name, value, "a positive number")
        if self.share is not None and not 0 < self.share <= 1:
            raise InvalidParameter("share", self.share, "above 0 and at most 1")
        if self.leaves in DISTRIBUTIONS and self.leaves not in CONJUGATE:
            raise InvalidParameter("leaves", self.leaves, because=f"gibbs learns only {', '.join(CONJUGATE)}")
        for own in fields(self):
            value = getattr(self, own.name)
            if self.structure == "file" and own.name in NOT_OF_A_FILE and value != own.default:
                reason = "sampling the structure of a file does not use it: leave it out"
                raise InvalidParameter(own.name, value, because=reason)


# Until 0.2.0 sampling was a way of learning of spn, which had these parameters.
OF_SAMPLING = tuple(
    own.name
    for own in fields(GibbsParameters)
    if own.name not in ("structure", "circuit", "leaves", "n_bins", "max_values", "seed")
)


@dataclass(frozen=True)
class CircuitParameters(Parameters):
    """Parameters for constructing and learning a circuit. Raises InvalidParameter.

    Parameters
    ----------
    structure : "auto", "hclt", "chow-liu", "random", "learnspn", "gaussian-mixture" or "file"
        What the circuit looks like; "auto" takes what explains drawn rows best. That is one of trees, hidden trees, mixtures of them (`search.choose_circuit_structure`) and, where
        numeric columns have densities, mixtures of Gaussians. The others are a hidden Chow-Liu tree, Chow-Liu tree, random region graph,
        LearnSPN on a sample, a mixture of Gaussians with full covariances, or the circuit of a file. "auto" is for EM: with
        another learning, or where `states` are given, it means "hclt".
    minutes : float
        Work budget of "auto", in minutes of two threads of a typical server. Counted, not timed: the circuit does not
        depend on the machine.
    circuit : str
        Path or URI of the circuit's file, for the structure "file": text or JSON. Variable i is attribute i, the class last.
    learning : "em", "adf", "bmm" or "none"
        How weights are learned: "em" in passes, "adf" and "bmm" row by row, "none" not at all. These are batch EM; one pass of
        assumed density filtering or of Bayesian moment matching; or the structure's own weights.
    passes : int
        Most passes of EM over all rows; after "auto", which has made passes over drawn rows, 2 where these were all.
    tolerance : float
        EM ends when a pass gains less log likelihood per row than this.
    laplace : float
        Rows that EM adds to each count; "auto" adds one row to each distribution of hidden trees.
    strength : float
        Number of rows that the structure's own weights are worth, in ADF and BMM.
    stream_passes : int
        Passes of ADF and BMM over the rows. After the first, each starts from the means of the last, which are again
        worth `strength` rows, so that no row counts twice.
    shards : int, optional
        Parts of the rows that ADF and BMM learn side by side. They do so on threads, or by the workers of a cluster, once the
        first 20,000 rows are learned; by default one, and on a cluster one for each worker. The circuit depends on their number.
    states : int, optional
        States of each latent variable of "hclt", by default 8; components of "gaussian-mixture", by default chosen.
    depth, sums, replicas : int
        Size of the structure "random": how deep it is, sums of each region, and copies.
    sample : int
        Most distinct rows that "learnspn" sees.
    n_bins : int
        Most intervals of a numeric column, or densities that it is a mixture of.
    leaves : "intervals", "auto" or a distribution, optional
        Default model of numeric columns; by default "intervals", of "gaussian-mixture" "gaussian". "auto" chooses a
        distribution for each column by the likelihood of drawn rows (`structures.column_models.chosen_leaves`); ADF
        and BMM, which learn "gaussian", "poisson" and "exponential" only, then take "gaussian".
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.
    seed : int
        Start of the random numbers; the same seed gives the same model.
    """

    moved: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            OF_SAMPLING, "sampling is the learner gibbs (CircuitPosterior in Python), which has this parameter"
        ),
        "learning=gibbs": "sampling is a learner of its own: train with learner gibbs (CircuitPosterior in Python), without learning",
    }
    structure: Literal["auto", "hclt", "chow-liu", "random", "learnspn", "gaussian-mixture", "file"] = "auto"
    minutes: float = 10.0
    circuit: str = ""
    learning: Literal["em", "adf", "bmm", "none"] = "em"
    passes: int = 10
    tolerance: float = 1e-3
    laplace: float = 0.1
    strength: float = 10.0
    stream_passes: int = 1
    shards: int | None = None
    states: int | None = None
    depth: int = 3
    sums: int = 4
    replicas: int = 4
    sample: int = 20_000
    n_bins: int = 8
    leaves: Literal["intervals", "auto"] | Distribution | None = None
    max_values: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole_numbers(
            passes=(1, 10_000),
            stream_passes=(1, 10_000),
            shards=(1, 1024),
            states=(1, 1024),
            depth=(1, 20),
            sums=(1, 1024),
            replicas=(1, 1024),
            sample=(100, 1_000_000),
            n_bins=(2, 256),
            max_values=(2, 65_000),
            seed=(0, 2**32 - 1),
        )
        _check_circuit_file(self.structure, self.circuit)
        for name in ("tolerance", "laplace"):
            if not 0 <= getattr(self, name) < 1e9:
                raise InvalidParameter(name, getattr(self, name), "zero or more")
        if not 0 < self.minutes <= 100_000:
            raise InvalidParameter("minutes", self.minutes, "above zero")
        if not 0 < self.strength < 1e9:
            raise InvalidParameter("strength", self.strength, "above zero")
        if self.structure == GAUSSIANS and self.learning != "em":
            raise InvalidParameter("learning", self.learning, because=f"structure {GAUSSIANS} is learned by em only")
        if self.learning in ROW_BY_ROW and self.leaves in DISTRIBUTIONS and self.leaves not in CONJUGATE:
            raise InvalidParameter("leaves", self.leaves, because=f"{self.learning} learns only {', '.join(CONJUGATE)}")

    @property
    def actual_structure(self) -> str:
        """The structure to construct, with "auto" resolved."""
        if self.structure != "auto":
            return self.structure
        return "auto" if self.learning == "em" and self.states is None else "hclt"
