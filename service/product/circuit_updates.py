"""Updates of circuits: learning continues from the posterior of the newest version, with the files that it has not
seen.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from learners.models.model import Model
from learners.passes.learner import Account, Learner, Part
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source
from learners.registry.kind import Resumption
from learners.registry.model_kinds import kind_of, load_model
from learners.registry.recipes import current_recipe, learner_recipe
from service.product.datasets.dataset_statistics import source_file_record
from service.product.datasets.training_rows import TrainingRows
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping
from service.requests.requests import TrainRequest
from service.workspace import Workspace
from storage.errors import NotFound
from storage.models.compiled import map_compiled

ORDER = "order"


@dataclass(frozen=True, eq=False)
class Continuation:
    """Remaining learning on top of a version."""

    name: str  # of the learner
    model: Model
    resumption: Resumption
    parts: Sequence[Part]  # the new files, behind the others if all rows are sampled; none if there is nothing new
    account: Account  # what need not be read
    order: Sequence[str] = ()  # digests of the files in the order in which their rows are sampled

    def learner(self) -> Learner:
        """Learner that continues with the new rows, in their order."""
        return Learner(self.name, self.resumption.recipe(), 1)


def update_continuation(
    workspace: Workspace, request: TrainRequest, rows: TrainingRows, how: str
) -> Continuation | Account | None:
    """Return how an update continues from the newest version: an Account with the reason if it must start over; None
    without a version to continue.

    It can continue if the version was learned by ADF, BMM or sampling with the same parameters, target, columns and
    choice of rows, and if every file that it learned and its initial circuit still exist: a posterior over rows in
    their order cannot forget. `how` is the result of `training_selection_sha256`.
    """
    if not request.update or not learner_recipe(request.learner).goes_on or request.window is not None:
        return None
    try:
        version = find_version(workspace, f"{request.model}@latest")
    except NotFound:
        return None
    model = load_model(*map_compiled(version.arrow_path))
    resume = kind_of(model).resume
    resumption = None if resume is None else resume(model)
    if resumption is None:
        return None
    if isinstance(resumption, str):
        return _anew(resumption)
    if current_recipe(version.learner, version.parameters) != (request.learner, dict(request.parameters)):
        return _anew("the parameters have changed")
    file = request.parameters.get("circuit")
    if file:
        from learners.circuits.structures.from_file import circuit_fingerprint, read_circuit

        if circuit_fingerprint(read_circuit(file)[0]) != model.facts.get("circuit_sha256"):
            return _anew("the circuit of its file has changed")
    if model.facts.get("chosen") != how:
        return _anew("the target, the columns or the choice of rows have changed")
    raw = rows.learned.raw
    seen = {_identity(file) for file in version.files}
    now = {index: _identity(source_file_record(raw.files[index])) for index in rows.learned.wanted}
    if not seen <= set(now.values()):
        return _anew("a file of the last training was removed or changed")
    new = [index for index, identity in now.items() if identity not in seen]
    n_new = sum(raw.files[index].n_rows for index in new)
    n_old = sum(raw.files[index].n_rows for index in now) - n_new
    if not new:
        return Continuation(
            request.learner, model, resumption, (), Account("learning row by row", 0, n_old, 0, len(now))
        )
    added = Part(_only(rows, new))
    if not resumption.reads_all_rows:
        account = Account("learning row by row", n_new, n_old, len(new), len(now) - len(new))
        return Continuation(request.learner, model, resumption, [added], account)
    # Rows come as they are in the states that were kept: those of a file that was added later behind all before it.
    order: Any = model.facts.get(ORDER) or [_digest(_identity(file)) for file in version.files]
    old = sorted((index for index in now if index not in new), key=lambda index: order.index(_digest(now[index])))
    account = Account("sampling", n_new + n_old, 0, len(now), 0)
    parts = [*(Part(_only(rows, [index])) for index in old), added]
    return Continuation(
        request.learner, model, resumption, parts, account, [_digest(now[index]) for index in [*old, *sorted(new)]]
    )


def _only(rows: TrainingRows, indices: Sequence[int]) -> Source:
    return Selection(rows.learned.raw, {index: rows.learned.wanted[index] for index in indices}).source


def _anew(reason: str) -> Account:
    return Account(f"starting from scratch, because {reason}", 0, 0, 0, 0)


def training_selection_sha256(rows: TrainingRows, target: str | None, overrides: JSONMapping) -> str:
    """Return the SHA-256 of the training selection (rows, target, overrides), stored in the model so that an update
    continues with the same.

    It is a hash, because the conditions of forgotten rows may name a person, and models leave the workspace.
    """
    texts = sorted({condition.text for own in rows.learned.wanted.values() for condition in own})
    text = json.dumps([texts, target, overrides], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(identity: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()


def _identity(file: Any) -> tuple[Any, ...]:
    return tuple(file.get(name) for name in ("path", "size", "footer_sha256", "content_sha256"))
