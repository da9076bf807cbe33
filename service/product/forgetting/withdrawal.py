"""Rules of forgotten rows taken back."""

from typing import Literal

from service.product.datasets.dataset_statistics import DATA, RULES
from service.product.datasets.rules import keep_rules, rule_files
from service.product.versions.registry import find_version
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.datasets import datasets
from storage.datasets.forgotten import Forgotten, known_rules
from storage.errors import CorruptFile


def withdraw_rule(
    workspace: Workspace,
    name: str,
    where: str,
    *,
    by: str,
    reason: str,
    kind: Literal["dataset", "model"] | None = None,
) -> JSONObject:
    """Take the rule of a condition back: later trainings read those rows again. Models stay as they are.

    `name` is of a data set, one that was deleted included, or of a model that was trained on files; without a `kind` it is
    whichever has the rule. Who does it and why are kept with the rule. Returns `name`, `where`, `withdrawn_at`, `by`,
    `reason`, and under which other names the rule stands (`still_under`). Raises InvalidRequest if no such rule stands;
    NotFound, CorruptFile or Unwritable.
    """
    if not reason.strip():
        raise InvalidRequest("Say why: the reason is kept with the rule.", field="reason")
    layout, known = workspace.layout, known_rules(workspace.control)
    places = {"dataset": layout.dataset_directory(name) / RULES, "model": layout.model_directory(name) / DATA / RULES}
    condition, done = where.strip(), None
    standing: set[str] = set()
    for path in (path for of, path in places.items() if kind in {of, None}):
        forgotten = Forgotten(path)
        # Of a rule that the file has lost nobody knows whether it stood.
        rules = {rule.where for rule in forgotten.rules()} | (known.get(path, frozenset()) - forgotten.conditions())
        standing |= rules
        if condition in rules:
            withdrawal = forgotten.withdraw(condition, by, reason)
            keep_rules(workspace, forgotten)
            done = {"name": name, "where": condition, "withdrawn_at": withdrawal["at"], "by": by, "reason": reason}
    if done is None:
        _check_exists(workspace, name, kind, has_rules=bool(standing))
        words = "; ".join(sorted(standing)) or "none"
        raise InvalidRequest(f"No such rule stands under the name {name!r}. Its rules: {words}.", field="where")
    return {**done, "still_under": _names_with(workspace, condition)}


def _check_exists(workspace: Workspace, name: str, kind: str | None, *, has_rules: bool) -> None:
    if has_rules or (kind is None and datasets.is_registered(workspace.control, name)):
        return
    if kind == "dataset":
        datasets.get_dataset(workspace.control, name)
    else:
        find_version(workspace, f"{name}@latest")


def _names_with(workspace: Workspace, where: str) -> list[str]:
    """The names under which a rule stands; files that cannot be read are for the doctor."""
    found = []
    for path in rule_files(workspace):
        try:
            stands = any(rule.where == where for rule in Forgotten(path).rules())
        except CorruptFile:
            continue
        if stands:
            found.append(path.relative_to(workspace.layout.root).parts[1])
    return found
