"""The estimators of `learners`, which can be kept: saved to a file and published to a registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from learners import estimators
from learners.errors import LearnerError
from learners.estimators.circuits import RENAMED
from learners.estimators.classifier import Classifier
from learners.estimators.constructors import COMMON
from learners.registry.bif_networks import network_text
from learners.registry.model_kinds import KINDS

if TYPE_CHECKING:
    from service.product.versions.fitted import Fitted


class Kept:
    """What a fitted estimator can do with its model besides answering."""

    def save(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the model to one file: the same as `fewpass models export` writes and `fewpass models import` takes.

        The file appears when it is whole. It holds the model and the columns, not the rows: `fewpass.load` gives an estimator
        that answers as this one, bit for bit, and has nothing to add other rows to.

        Parameters
        ----------
        path : str or Path
        replace : bool
            Whether a file of that name may be replaced.

        Raises
        ------
        InvalidRequest
            If the file exists.
        """
        from service.product.versions import fitted

        fitted.save(fitted_of(self), Path(path), replace=replace)

    def to_bif(self, path: str | Path | None = None) -> str:
        """The network of the model in the Bayesian Interchange Format, written to a file if a path is given.

        Of an ensemble it is the joint member, of a posterior over structures the most probable graph.

        Raises
        ------
        NoNetwork
            If the model is none.
        NoTables, TooManyCells
            If its tables are too large.
        """
        check_is_fitted(self, "model_")
        text = network_text(vars(self)["model_"], "fewpass")
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text


class NB(Kept, estimators.NB):
    __doc__ = estimators.NB.__doc__


class TAN(Kept, estimators.TAN):
    __doc__ = estimators.TAN.__doc__


class KDB(Kept, estimators.KDB):
    __doc__ = estimators.KDB.__doc__


class SKDB(Kept, estimators.SKDB):
    __doc__ = estimators.SKDB.__doc__


class ESKDB(Kept, estimators.ESKDB):
    __doc__ = estimators.ESKDB.__doc__


class FewPassClassifier(Kept, estimators.FewPassClassifier):
    __doc__ = estimators.FewPassClassifier.__doc__


class XGBoost(Kept, Classifier):
    """XGBoost on the same columns: the baseline that `fewpass train --learner xgboost` trains."""

    _learner = "xgboost"


class SumProductNetwork(Kept, estimators.SumProductNetwork):
    __doc__ = estimators.SumProductNetwork.__doc__


class StructurePosterior(Kept, estimators.StructurePosterior):
    __doc__ = estimators.StructurePosterior.__doc__


ESTIMATORS: dict[str, type[Any]] = {
    "auto": FewPassClassifier,
    "eskdb": ESKDB,
    "nb": NB,
    "tan": TAN,
    "kdb": KDB,
    "skdb": SKDB,
    "xgboost": XGBoost,
    "spn": SumProductNetwork,
    "orders": StructurePosterior,
}


def fitted_of(estimator: Any) -> Fitted:
    """A fitted estimator as files and registries keep it.

    Raises
    ------
    LearnerError
        If it is none of ours.
    NotFittedError
    """
    from service.product.versions.fitted import Fitted, plain_parameters

    if isinstance(estimator, Classifier):
        learner = estimator._learner
    elif isinstance(estimator, estimators.SumProductNetwork):
        learner = "spn"
    elif isinstance(estimator, estimators.StructurePosterior):
        learner = "orders"
    else:
        raise LearnerError(f"{type(estimator).__name__} is no estimator of fewpass. Give one of {', '.join(__all__)}.")
    check_is_fitted(estimator, "model_")
    own = {theirs: ours for ours, theirs in RENAMED.items()} if learner == "spn" else {}
    given = {own.get(name, name): value for name, value in estimator.get_params(deep=False).items()}
    parameters = {name: value for name, value in given.items() if name not in COMMON and value is not None}
    known = getattr(estimator, "_columns", None)
    columns, is_named = (tuple(estimator.feature_names_in_), True) if known is None else (known.names, known.is_named)
    return Fitted(estimator.model_, learner, plain_parameters(learner, parameters), columns, is_named)


def estimator_of(fitted: Fitted) -> Any:
    """The estimator of a model that was kept; of one that no learner made, such as an imported network, that of its kind.

    Raises
    ------
    LearnerError
        If this version of fewpass has no estimator for it.
    """
    of_kind = {"circuit": "spn", "bayesian circuit": "spn", "gaussian mixture": "spn"}
    learner = fitted.learner if fitted.learner in ESTIMATORS else of_kind.get(fitted.model.kind)
    if learner is None or fitted.model.kind not in KINDS:
        raise LearnerError(f"Models of learner {fitted.learner!r} need another version of fewpass.")
    return ESTIMATORS[learner].of_model(fitted.model, fitted.parameters, fitted.columns, is_named=fitted.is_named)


__all__ = [made.__name__ for made in ESTIMATORS.values()]
