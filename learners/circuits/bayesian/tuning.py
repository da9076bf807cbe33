"""Tuning of prior strengths by Optuna's TPE on the likelihood of held-out rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from learners.circuits.bayesian.circuit_draws import log_mean_exp
from learners.circuits.bayesian.circuit_layout import build_circuit_layout, draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler, Moves
from learners.circuits.bayesian.column_families import Coding
from learners.circuits.bayesian.priors import Prior, Shape, Strengths, empirical_prior
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.parameters import GibbsParameters
from learners.kernels.arrays import Float32s, Floats
from learners.passes.engine import Advance, ignore_progress

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SHARE = 0.1
# Share of the tuning sample that is kept back.
KEPT_BACK = 0.1
# A trial's likelihood is that of so many draws, from its last sweeps.
DRAWS = 5
RANGES = {
    "alpha": (0.01, 30.0),
    "prior_variance": (0.05, 30.0),
    "prior_mean": (0.001, 1.0),
    "prior_values": (0.01, 3.0),
}
FIELDS = {"alpha": "alpha", "prior_variance": "gaussian", "prior_mean": "rho", "prior_values": "categorical"}
LEAST_SHARE = 0.002


@dataclass(frozen=True)
class Chosen:
    """Strengths and shares of a prior."""

    strengths: Strengths
    shares: tuple[float, ...]  # r_d of each column
    # Tuple of (float, dict): what was tried: log-likelihood per row kept back, and by which values.
    trials: tuple[tuple[float, dict[str, float]], ...] = ()

    def prior(self, shape: Shape, coding: Coding, sample: Floats, seed: int) -> Prior:
        """Fit the prior to a sample (n_rows, n_columns)."""
        return empirical_prior(shape, coding.columns, self.strengths, sample, np.array(self.shares), seed)


def untuned_prior_settings(parameters: GibbsParameters, n_columns: int) -> Chosen:
    """Return the given settings, with defaults for the rest."""
    values = {name: getattr(parameters, name) for name in FIELDS if getattr(parameters, name) is not None}
    strengths = replace(Strengths(), **{FIELDS[name]: value for name, value in values.items()})
    return Chosen(strengths, (SHARE if parameters.share is None else parameters.share,) * n_columns)


def tune_prior_settings(
    parameters: GibbsParameters,
    shape: Shape,
    coding: Coding,
    sample: Float32s,
    seed: int,
    path: Path | None = None,
    advance: Advance = ignore_progress,
) -> Chosen:
    """Return the best of `trials` settings; given settings are kept, the others are proposed by TPE.

    Rows to learn from, with the held-out ones at the end, are (n_rows, n_columns) float32. Each trial is proposed
    by a sampler with its own seed from the trials before it, which are saved as JSON Lines, so an interrupted run
    resumes with the same result.

    References: Yokoi, Sato (2024), section 3.4; Bergstra, Bardenet, Bengio, Kégl (2011).
    """
    start = untuned_prior_settings(parameters, shape.n_columns)
    if not parameters.trials:
        return start
    # Here, as only who tunes shall wait for it.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = _space(parameters, coding)
    if not space:
        return start
    done = _read(path)[: parameters.trials]
    for number in range(len(done), parameters.trials):
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + number, multivariate=True)
        )
        for value, values in done:
            study.add_trial(optuna.trial.create_trial(params=values, distributions=space, value=value))
        values = _first(space, start) if number == 0 else study.ask(space).params
        value = _likelihood(_chosen(start, values), shape, coding, sample, parameters, seed)
        done.append((value, values))
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps([value, values]) + "\n")
        best = max(value for value, _ in done)
        advance(number + 1, parameters.trials, f"best {best:.3f} a row")
    _, values = max(done, key=lambda trial: trial[0])
    return replace(_chosen(start, values), trials=tuple(done))


def _space(parameters: GibbsParameters, coding: Coding) -> dict[str, BaseDistribution]:
    from optuna.distributions import FloatDistribution

    free = [name for name in RANGES if getattr(parameters, name) is None]
    space: dict[str, BaseDistribution] = {name: FloatDistribution(*RANGES[name], log=True) for name in free}
    if parameters.share is None:
        for d, column in enumerate(coding.columns):
            if not column.n_values:
                space[f"share.{d}"] = FloatDistribution(LEAST_SHARE, 1.0, log=True)
    return space


def _first(space: Mapping[str, BaseDistribution], start: Chosen) -> dict[str, float]:
    """Return the defaults, which are tried first."""
    own = {name: getattr(start.strengths, field) for name, field in FIELDS.items()}
    return {name: own[name] if name in own else start.shares[int(name.removeprefix("share."))] for name in space}


def _chosen(start: Chosen, values: dict[str, float]) -> Chosen:
    strengths = replace(start.strengths, **{FIELDS[name]: value for name, value in values.items() if name in FIELDS})
    shares = list(start.shares)
    for name, value in values.items():
        if name not in FIELDS:
            shares[int(name.removeprefix("share."))] = value
    return Chosen(strengths, tuple(shares))


def _likelihood(
    chosen: Chosen, shape: Shape, coding: Coding, sample: Float32s, parameters: GibbsParameters, seed: int
) -> float:
    """Return the mean log-likelihood of the held-out rows under the last draws of one chain."""
    n_back = max(1, round(KEPT_BACK * len(sample)))
    rows, back = InMemory(sample[:-n_back]), uncentre_sampler_rows(coding, sample[-n_back:])
    prior = chosen.prior(shape, coding, sample[:-n_back].astype(np.float64), seed)
    layout, random = build_circuit_layout(prior), np.random.default_rng([seed, 7])
    sampler = LazySampler(prior, rows, Moves(parameters.whole_moves, parameters.subtree_moves))
    state, logs = sampler.init(random), []
    n_sweeps = parameters.trial_sweeps
    for sweep in range(n_sweeps):
        state, _ = sampler.step(random, state)
        if n_sweeps - sweep <= DRAWS:
            logs.append(log_values(layout.circuit(draw_posterior_parameters(random, prior, state.tallies)), back))
    return float(log_mean_exp(np.stack(logs, axis=1)).mean())


def uncentre_sampler_rows(coding: Coding, rows: Float32s) -> Floats:
    """Convert a sampler's rows to the columns' own units, (n_columns, n_rows) float64."""
    centre = np.array([column.centre for column in coding.columns])
    return np.ascontiguousarray(rows.T.astype(np.float64) + centre[:, np.newaxis])


def _read(path: Path | None) -> list[tuple[float, dict[str, float]]]:
    if path is None or not path.exists():
        return []
    trials = []
    for line in path.read_text().splitlines():
        try:
            value, values = json.loads(line)
        except ValueError:  # a line that a kill cut off
            break
        trials.append((value, values))
    path.write_text("".join(json.dumps(trial) + "\n" for trial in trials))
    return trials
