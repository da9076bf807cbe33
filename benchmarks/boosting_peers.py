"""Boosting of other libraries and settings on raw columns, as further peers of `cross_validate` in the process that imports this.

LightGBM, CatBoost and EBM are extras: `pip install fewpass[evaluation]`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.scoreboard.peers import fit
from learners.errors import InvalidParameter
from learners.evaluation.datasets import stratified_folds
from learners.evaluation.peers import PEERS, Peer, Predict, RawColumns
from learners.kernels.arrays import Codes, Floats
from learners.models.parameters import Parameters

if TYPE_CHECKING:
    from optuna import Trial

N_FOLDS = 5
PATIENCE = 20
# Since version 3.1 XGBoost starts from the class shares, from which boosting diverges where classes are rare.
EQUAL_START = 0.5


@dataclass(frozen=True)
class SlowXGBoostParameters(Parameters):
    """XGBoost with small steps; as many rounds as cross-validation finds, at most `rounds`."""

    rounds: int = 300
    depth: int = 4
    learning_rate: float = 0.1
    subsample: float = 0.8


@dataclass(frozen=True)
class TunedXGBoostParameters(Parameters):
    """XGBoost whose settings Optuna searches by cross-validated log loss; each trial chooses its rounds, at most `rounds`."""

    trials: int = 30
    rounds: int = 300


@dataclass(frozen=True)
class CatBoostParameters(Parameters):
    """CatBoost's own defaults but for the number of its trees, which is 1,000."""

    rounds: int = 300


@dataclass(frozen=True)
class DefaultParameters(Parameters):
    """The library's own defaults."""


def fit_slow_xgboost(table: pa.Table, y: Codes, parameters: SlowXGBoostParameters, seed: int, threads: int) -> Predict:
    """XGBoost of depth 4, learning rate 0.1 and subsample 0.8, with as many rounds as 5-fold cross-validation finds."""
    data = _XGBoostData(table, y, seed, threads)
    settings = {name: value for name, value in asdict(parameters).items() if name != "rounds"}  # in XGBoost's names
    n_rounds, _ = data.cross_validated(settings, parameters.rounds)
    return data.trained(settings, n_rounds)


def fit_tuned_xgboost(
    table: pa.Table, y: Codes, parameters: TunedXGBoostParameters, seed: int, threads: int
) -> Predict:
    """XGBoost with the best of so many settings that Optuna's TPE sampler proposes."""
    optuna = _extra("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    data = _XGBoostData(table, y, seed, threads)

    def objective(trial: Trial) -> float:
        settings = {
            "max_depth": trial.suggest_int("max_depth", 2, 10),
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.4, log=True),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.4, 1.0),
            "min_child_weight": trial.suggest_float("min_child_weight", 0.1, 20.0, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 0.01, 20.0, log=True),
        }
        n_rounds, loss = data.cross_validated(settings, parameters.rounds)
        trial.set_user_attr("n_rounds", n_rounds)
        return loss

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=parameters.trials)
    return data.trained(study.best_params, study.best_trial.user_attrs["n_rounds"])


class _XGBoostData:
    """Training rows as XGBoost wants them, numbers as they are and nominal values as categories."""

    def __init__(self, table: pa.Table, y: Codes, seed: int, threads: int) -> None:
        import xgboost

        self.raw = RawColumns(table)
        self.n_classes = int(np.max(y)) + 1
        kinds = ["c" if name in self.raw.values else "q" for name in self.raw.names]
        self.matrix = xgboost.DMatrix(
            self.raw.numbers_of(table), y, feature_types=kinds, enable_categorical=True, nthread=threads
        )
        self.settings: dict[str, object] = {"tree_method": "hist", "seed": seed, "nthread": threads}
        if self.n_classes > 2:
            self.settings |= {"objective": "multi:softprob", "num_class": self.n_classes, "base_score": EQUAL_START}
        else:
            self.settings["objective"] = "binary:logistic"
        self.metric = "mlogloss" if self.n_classes > 2 else "logloss"
        self.folds = stratified_folds(np.asarray(y, np.int64), min(N_FOLDS, len(y)), seed)

    def cross_validated(self, settings: Mapping[str, object], most: int) -> tuple[int, float]:
        """The best number of rounds, and its mean log loss."""
        import xgboost

        history = xgboost.cv(
            self.settings | dict(settings),
            self.matrix,
            num_boost_round=most,
            folds=self.folds,
            metrics=self.metric,
            early_stopping_rounds=PATIENCE,
            as_pandas=False,
        )
        losses = history[f"test-{self.metric}-mean"]
        best = int(np.argmin(losses))
        return best + 1, float(losses[best])

    def trained(self, settings: Mapping[str, object], n_rounds: int) -> Predict:
        """A function from rows to probabilities."""
        import xgboost

        booster = xgboost.train(self.settings | dict(settings), self.matrix, num_boost_round=n_rounds)

        def predict(rows: pa.Table) -> Floats:
            of_class = np.asarray(booster.inplace_predict(self.raw.numbers_of(rows)), np.float64)
            return np.stack([1 - of_class, of_class], axis=1) if self.n_classes == 2 else of_class

        return predict


def fit_lightgbm(table: pa.Table, y: Codes, parameters: DefaultParameters, seed: int, threads: int) -> Predict:
    """LightGBM with default settings, nominal columns as categories."""
    del parameters
    _extra("lightgbm")
    return fit("lightgbm", table, y, seed=seed, threads=threads)


def fit_catboost(table: pa.Table, y: Codes, parameters: CatBoostParameters, seed: int, threads: int) -> Predict:
    """CatBoost, nominal columns as categories."""
    _extra("catboost")
    return fit("catboost", table, y, seed=seed, threads=threads, rounds=parameters.rounds)


def fit_ebm(table: pa.Table, y: Codes, parameters: DefaultParameters, seed: int, threads: int) -> Predict:
    """InterpretML's explainable boosting machine with default settings."""
    del parameters
    glassbox = _extra("interpret.glassbox", package="interpret-core")
    raw = RawColumns(table)
    kinds = ["nominal" if name in raw.values else "continuous" for name in raw.names]
    model = glassbox.ExplainableBoostingClassifier(feature_types=kinds, random_state=seed, n_jobs=threads)
    model.fit(raw.numbers_of(table), y)
    return lambda rows: np.asarray(model.predict_proba(raw.numbers_of(rows)), np.float64)


def _extra(module: str, package: str | None = None) -> ModuleType:
    """A library of the extra `evaluation`.

    Raises
    ------
    InvalidParameter
        If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module
        raise InvalidParameter(
            "learner", name, f"{name} is not installed; pip install 'fewpass[evaluation]'"
        ) from error


BOOSTING: dict[str, Peer] = {
    "xgboost-slow": Peer("XGBoost, small steps, rounds by cross-validation", SlowXGBoostParameters, fit_slow_xgboost),
    "xgboost-tuned": Peer("XGBoost tuned by Optuna", TunedXGBoostParameters, fit_tuned_xgboost),
    "lightgbm": Peer("LightGBM", DefaultParameters, fit_lightgbm),
    "catboost": Peer("CatBoost, 300 rounds", CatBoostParameters, fit_catboost),
    "ebm": Peer("explainable boosting machine", DefaultParameters, fit_ebm),
}
PEERS.update(BOOSTING)
