"""What a page about a table or figure of a paper holds, and how it is written."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT.parent / "shared" / "data"
PAGES = ROOT / "docs" / "results" / "papers"
WORK = ROOT / "build" / "papers"
PAPERS = {
    "S1": "Petitjean, Buntine, Webb, Zaidi (2018), Accurate parameter estimation for Bayesian network classifiers using hierarchical Dirichlet processes",
    "S2": "Zhao, Gordon (2017), Linear time computation of moments in sum-product networks",
    "S3": "Mei, Jiang, Tu (2018), Maximum a posteriori inference in sum-product networks",
    "S4": "Yokoi, Sato (2024), Top-down Bayesian posterior sampling for sum-product networks",
    "S5": "Wang, Wicker, Kwiatkowska (2022), Tractable uncertainty for structure learning",
}


@dataclass(frozen=True)
class Measured:
    """What a run has measured.

    Parameters
    ----------
    tables : list of str
        Lines of Markdown: the paper's numbers beside ours.
    data, seeds, spread : str
        Sentences for the head of the page.
    differs : list of str
        What is not as in the paper, and why.
    """

    tables: Sequence[str]
    data: str
    seeds: str
    spread: str
    differs: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Page:
    """A table or figure of a paper.

    Parameters
    ----------
    paper : str
        A key of `PAPERS`.
    name : str
        The name of the file in docs/results/papers, without its ending.
    title : str
    measure : callable or None
        Called with whether the run is quick. None if the table cannot be made here; it has no page then.
    reason : str
        Why it cannot be made here; the index says it.
    """

    paper: str
    name: str
    title: str
    measure: Callable[[bool], Measured] | None
    reason: str = ""

    def command(self, is_quick: bool) -> str:
        """The command that makes the page."""
        return f"python -m benchmarks.papers {self.name}{' --quick' if is_quick else ''}"

    def write(self, measure: Callable[[bool], Measured], is_quick: bool, folder: Path = PAGES) -> Path:
        """Run what the page needs, and write it."""
        before = cpu_seconds()
        measured = measure(is_quick)
        length = "quick form" if is_quick else "full form"
        facts = [
            f"- Command: `{self.command(is_quick)}`, {length}; commit {commit()}; {cpu_seconds() - before:.0f} CPU seconds.",
            f"- Data: {measured.data}",
            f"- Seeds: {measured.seeds}",
            f"- Spread: {measured.spread}",
            *(f"- Unlike the paper: {text}" for text in measured.differs),
        ]
        head = [f"# {self.paper}, {self.title}", "", f"{PAPERS[self.paper]}.", ""]
        lines = [*head, *facts, "", *measured.tables]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.md"
        path.write_text("\n".join(lines).rstrip() + "\n")
        return path


def cpu_seconds() -> float:
    """Processor time of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def commit() -> str:
    """The commit of the working tree, and whether files that are not documentation differ from it."""
    git = ["git", "-C", str(ROOT)]
    done = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode:
        return "unknown"
    paths = ["learners", "benchmarks"]
    changes = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no", *paths], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() + (" with changes" if changes.stdout.strip() else "")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in Markdown, and an empty line."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines] + [""]


def mean_and_error(values: Sequence[float], digits: int = 3) -> str:
    """The mean, and the standard error where there are several."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.{digits}f} ± {error:.{digits}f}"


def threads() -> int:
    """One for a run that shares the machine; FEWPASS_PAPERS_THREADS sets more."""
    return int(os.environ.get("FEWPASS_PAPERS_THREADS", "1"))
