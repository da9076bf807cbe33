"""Names that other libraries give to parameters, with the names of the same parameters here."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_TREES = ("effort",)
# A name elsewhere, and the names that a learner may have for it: the first that it has is named.
SYNONYMS = {
    **dict.fromkeys(("random_state", "random_seed"), ("seed",)),
    **dict.fromkeys(
        ("n_jobs", "nthread", "nthreads", "num_threads", "thread_count", "n_threads", "num_workers"), ("threads",)
    ),
    **dict.fromkeys(
        ("n_estimators", "num_boost_round", "num_iterations", "iterations", "max_iter", "num_trees", "n_trees"),
        ("rounds", "trees", *_TREES),
    ),
    **dict.fromkeys(("max_depth", "max_leaf_nodes", "num_leaves", "max_leaves", "depth"), ("depth", *_TREES)),
    **dict.fromkeys(("learning_rate", "eta", "shrinkage_rate"), ("learning_rate", *_TREES)),
    **dict.fromkeys(("max_bins", "max_bin", "n_bins", "border_count"), ("max_bin", "n_bins")),
    **dict.fromkeys(("alpha", "pseudo_count", "laplace", "smoothing"), ("m",)),
    **dict.fromkeys(("verbosity", "verbose_eval", "logging_level", "silent"), ("verbose",)),
    **dict.fromkeys(("label", "class_column", "label_column", "target_column", "y"), ("target",)),
    **dict.fromkeys(("n_parents", "max_parents", "max_indegree"), ("k", "max_parents")),
}
_TEXTS = {
    "effort": "effort ('low', 'normal' or 'high'), which sets how much the trees learn",
    "m": "m, with estimator='m'",
}
_WEIGHTS = "weight the rows instead: fit(X, y, sample_weight=…)"
_NOMINAL = "declare categories by columns={'name': 'nominal'}; texts and truth values need no declaration"
# Names elsewhere of what is no parameter here, and what to do instead.
ELSEWHERE = {
    **dict.fromkeys(("class_weight", "scale_pos_weight", "class_weights", "is_unbalance"), _WEIGHTS),
    **dict.fromkeys(("categorical_features", "categorical_feature", "cat_features", "enable_categorical"), _NOMINAL),
    **dict.fromkeys(
        ("eval_set", "eval_metric", "early_stopping_rounds", "early_stopping", "validation_fraction"),
        "training keeps rows back by itself where it needs them: leave it out",
    ),
    **dict.fromkeys(("device", "task_type", "tree_method", "gpu_id"), "fewpass needs no GPU: leave it out"),
    "learner": "each learner is a class of its own: KDB, NB, TAN, XGBoost, …",
    "objective": "fewpass always predicts class probabilities: leave it out",
}


def parameter_hint(name: str, known: Collection[str]) -> str:
    """Return what to use instead of a parameter that does not exist; empty if there is nothing to say.

    `known`: the parameters that exist.
    """
    same = next((own for own in SYNONYMS.get(name, ()) if own in known and own != name), None)
    if same is not None:
        return f"use {_TEXTS.get(same, same)}"
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    near = get_close_matches(name, known)
    return f"similar: {', '.join(near)}" if near else ""
