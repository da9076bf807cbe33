"""Make pages of the papers' tables and figures again, in docs/results/papers.

python -m benchmarks.papers                 # all of them
python -m benchmarks.papers S1 --quick      # one paper, on few data sets and seeds
python -m benchmarks.papers s1-table-2      # one table
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from pathlib import Path

import benchmarks.papers as package
from benchmarks.papers.page import PAGES, PAPERS, Page, cpu_seconds, table

STAYS = "README"
TOCTREE = ("```{toctree}", ":hidden:", ":glob:", "", "*", "```")


def all_pages() -> list[Page]:
    """The page of every module of the papers' folders, in the order of their names."""
    modules = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = sorted(each.name for each in modules if not each.ispkg and not each.name.endswith("__main__"))
    pages = [getattr(importlib.import_module(name), "PAGE", None) for name in names]
    return [page for page in pages if page is not None]


def chosen_pages(names: list[str]) -> list[Page]:
    """Pages by name or paper, all without a name; ends with a message where there is no such page."""
    pages = all_pages()
    wanted = {name.lower() for name in names}
    unknown = wanted - {page.name for page in pages} - {paper.lower() for paper in PAPERS}
    if unknown:
        known = ", ".join([*PAPERS, *(page.name for page in pages)])
        raise SystemExit(f"There is no page {', '.join(sorted(unknown))}; there are {known}.")
    return [page for page in pages if not wanted or wanted & {page.name, page.paper.lower()}]


def write_index(folder: Path = PAGES) -> None:
    """A table of all pages: which were made, by which command, and which cannot be."""
    rows = []
    for page in all_pages():
        path = folder / f"{page.name}.md"
        text = path.read_text() if path.exists() else ""
        made = re.search(r"commit (\w+)([^;]*); (\d+) CPU seconds", text)
        state = f"commit {made[1]}{made[2]}, {made[3]} CPU s" if made else page.reason or "not run yet"
        title = f"[{page.title}]({page.name}.md)" if text else page.title
        rows.append([page.paper, title, f"`{page.command('--quick' in text)}`", state])
    papers = [f"- {key}: {text}" for key, text in PAPERS.items()]
    head = [
        "# Tables and figures of the papers",
        "",
        '`make papers` makes these pages again; `make papers PAPERS="S1 s5-ablation" QUICK=1` only some, on few sets and seeds.',
        "",
    ]
    lines = [*head, *papers, "", *table(["paper", "table or figure", "command", "made at"], rows), *TOCTREE]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{STAYS}.md").write_text("\n".join(lines).rstrip() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of papers (S1 to S5) or pages; all without")
    parser.add_argument("--quick", action="store_true", help="few data sets and seeds: ten minutes for all")
    parser.add_argument("--out", type=Path, default=PAGES, help="folder of the pages")
    args = parser.parse_args()
    failed = []
    for page in chosen_pages(args.names):
        before = cpu_seconds()
        if page.measure is None:
            print(f"{page.name}: not run. {page.reason}", flush=True)
            continue
        try:
            path = page.write(page.measure, args.quick, args.out)
        except Exception as error:  # the other pages are made, and the command fails at its end
            failed.append(page.name)
            print(f"{page.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{path}: {cpu_seconds() - before:.0f} CPU seconds", flush=True)
    write_index(args.out)
    if failed:
        sys.exit(f"Not made: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
