"""Circuits that go on learning: from the newest version's posterior, with the files that it has not seen."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from learners.circuits.model import CircuitModel
from learners.circuits.recipes import continued
from learners.circuits.structures.given import fingerprint, read_circuit
from learners.kinds import load_model
from learners.passes.learner import Account, Learner, Part
from learners.passes.selection import Selection
from learners.passes.source import SourceFile
from service.requests import TrainRequest
from service.rows import TrainingRows
from storage.compiled import map_compiled
from storage.errors import NotFound

if TYPE_CHECKING:
    from service.workspace import Workspace


class Continuation:
    """What is left to learn on top of a version.

    Parameters
    ----------
    model : CircuitModel
        With a posterior.
    part : Part or None
        The new files; None if there are none.
    account : Account
        What need not be read.
    """

    def __init__(self, model: CircuitModel, part: Part | None, account: Account) -> None:
        self.model, self.part, self.account = model, part, account

    def learner(self) -> Learner:
        """Learns the new rows, in their order."""
        assert self.model.posterior is not None
        return Learner("spn", continued(self.model.schema, self.model.posterior, self.model.facts), 1)


def continuation(
    workspace: "Workspace", request: TrainRequest, rows: TrainingRows, how: str
) -> Continuation | Account | None:
    """How an update goes on from the newest version.

    It can go on if the version was learned by ADF or BMM with the same parameters, target, columns and choice of rows, and
    every file that it has learned from is still there, and the circuit that it began with: a posterior over rows in their order cannot forget.

    Parameters
    ----------
    workspace : Workspace
    request : TrainRequest
    rows : TrainingRows
    how : str
        As `chosen` says.

    Returns
    -------
    Continuation
    Account
        Which says why it must start anew.
    None
        If there is nothing to go on from.
    """
    if not request.update or request.learner != "spn" or request.window is not None:
        return None
    try:
        version = workspace.model(f"{request.model}@latest")
    except NotFound:
        return None
    model = load_model(*map_compiled(version.arrow_path))
    if not isinstance(model, CircuitModel) or model.posterior is None:
        return None
    if dict(version.parameters) != dict(request.parameters):
        return _anew("the parameters have changed")
    file = request.parameters.get("circuit")
    if file and fingerprint(read_circuit(file)) != model.facts.get("circuit_sha256"):
        return _anew("the circuit of its file has changed")
    if model.facts.get("chosen") != how:
        return _anew("the target, the columns or the choice of rows have changed")
    raw = rows.learned.raw
    seen = {_identity(file) for file in version.files}
    now = {index: _identity(_told(raw.files[index])) for index in rows.learned.wanted}
    if not seen <= set(now.values()):
        return _anew("a file that was learned from is gone or has changed")
    new = [index for index, identity in now.items() if identity not in seen]
    n_new = sum(raw.files[index].n_rows for index in new)
    n_old = sum(raw.files[index].n_rows for index in now) - n_new
    account = Account("learning row by row", n_new, n_old, len(new), len(now) - len(new))
    if not new:
        return Continuation(model, None, account)
    selection = Selection(raw, {index: rows.learned.wanted[index] for index in new})
    return Continuation(model, Part(selection.source), account)


def _anew(reason: str) -> Account:
    return Account(f"starting anew, as {reason}", 0, 0, 0, 0)


def chosen(rows: TrainingRows, target: str | None, overrides: Mapping[str, Any]) -> str:
    """What is learned of which rows, as a SHA-256: kept in the model, so that an update goes on with the same.

    Not in words, as those of forgotten rows may name somebody, and models are carried elsewhere.
    """
    texts = sorted({condition.text for own in rows.learned.wanted.values() for condition in own})
    told = json.dumps([texts, target, overrides], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()


def _told(file: SourceFile) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "footer_sha256": file.footer_sha256}


def _identity(file: Any) -> tuple[Any, ...]:
    return tuple(file[name] for name in ("path", "size", "footer_sha256"))
