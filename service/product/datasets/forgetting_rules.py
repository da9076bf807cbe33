"""The rules of forgotten rows that are kept with data: read, saved, and carried to other names of the same files."""

from functools import partial
from pathlib import Path

from learners.passes.sources.source import Source
from service.product.datasets.dataset_statistics import DATA, RULES, unreadable_files
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten, record_forgotten_rules, rule_conditions_by_path
from storage.errors import CorruptFile

SHOWN = 5  # rules, in a message


def forgetting_rule_files(workspace: Workspace) -> list[Path]:
    """All files with rules, those of data sets that were deleted included, and those that should be there."""
    layout = workspace.layout
    paths = {*layout.datasets.glob(f"*/{RULES}"), *layout.models.glob(f"*/{DATA}/{RULES}")}
    return sorted(paths | rule_conditions_by_path(workspace.control).keys())


def read_forgetting_rules(workspace: Workspace, path: Path) -> Forgotten:
    """The rules in a file; CorruptFile if it was removed, or is older than its newest rule."""
    forgotten = Forgotten(path)
    if lost := rule_conditions_by_path(workspace.control).get(path, frozenset()) - forgotten.conditions():
        shown = "; ".join(sorted(lost)[:SHOWN]) + (f"; and {len(lost) - SHOWN} more" if len(lost) > SHOWN else "")
        raise CorruptFile(
            path,
            f"it lacks rules of forgotten rows ({shown}), and those rows would be learned again. Restore the file from a "
            "backup, forget the same rows once more, or have an administrator withdraw the rules (fewpass forget --withdraw).",
        )
    return forgotten


def forgetting_rules_of_files(workspace: Workspace, source: Source, own: Path) -> Forgotten:
    """The rules in a file, and those that were made where the same data files are known under another name."""
    forgotten = read_forgetting_rules(workspace, own)
    footers = {file.footer_sha256 for file in source.files}
    for path in forgetting_rule_files(workspace):
        if path != forgotten.path:
            other = read_forgetting_rules(workspace, path)
            for rule in other.rules():
                if any(n and footer in footers for footer, n in other.footers(rule.where).items()):
                    forgotten.add(rule.where, since=rule.forgotten_at)
    return forgotten


def save_forgetting_rules(workspace: Workspace, forgotten: Forgotten) -> None:
    """Write what has changed (Unwritable, CorruptFile), and note all rules in the control database, old ones included."""
    forgotten.save()
    record_forgotten_rules(workspace.control, forgotten.path, forgotten.conditions())


def damaged_forgetting_rules(workspace: Workspace) -> list[CorruptFile]:
    """What is wrong with the files of rules."""
    return unreadable_files(forgetting_rule_files(workspace), partial(read_forgetting_rules, workspace))
