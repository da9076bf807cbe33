"""How often bounds of the sampling error at 0.9 hold the true class probabilities, on rows of known networks, and what would widen them.

python -m benchmarks.interval_coverage --output docs/results/intervals.md     # writes the page

`--rare .02` gives the first class this share in cases of their own. `--settled 200000` also tells how often they hold what the same
learner answers after so many rows. `--ways` rows compare three ways to count the error of the structure as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measuring import options
from learners.kernels.arrays import Codes, Floats
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from service.operations.bench import KnownNetwork

N_ATTRIBUTES, N_VALUES, N_PARENTS, LEVEL = 7, 3, 2, 0.9
QUANTILE = NormalDist().inv_cdf(0.5 + LEVEL / 2)
N_BINS, LARGE = 4, 50_000
LEARNERS = ["nb", "tan", "kdb:k=2", "eskdb", "auto", "gibbs"]
SLOW = {"gibbs": 500}  # most rows of learners whose time grows with them
OF_SPREAD: Sequence[str] = ("nb", "tan", "kdb:k=2", "kdb:k=3", "eskdb", "auto")


def truth(network: KnownNetwork, x: Codes, known: list[int]) -> Floats:
    """(n_rows, n_classes) P(class | the known attributes): the others summed out by enumeration."""
    hidden = [a for a in range(N_ATTRIBUTES) if a not in known]
    joint = np.zeros((x.shape[1], network.prior.size))
    for values in product(range(N_VALUES), repeat=len(hidden)):
        filled = x.copy()
        filled[hidden] = np.array(values, x.dtype).reshape(-1, 1)
        own = np.tile(network.prior, (x.shape[1], 1))
        for a, (parents, table) in enumerate(zip(network.parents, network.tables, strict=True)):
            own *= table[(slice(None), *(filled[parent] for parent in parents), filled[a])].T
        joint += own
    return joint / joint.sum(axis=1, keepdims=True)


def table_of(x: Codes, attributes: list[int]) -> dict[str, pa.Array]:
    """The attributes as columns of words."""
    return {f"a{a}": pa.array(x[a].astype(str)) for a in attributes}


def known_network(seed: int, n_classes: int, rare: float) -> KnownNetwork:
    """A network, one of whose classes has a small share if `rare` is not zero."""
    network = KnownNetwork.random(N_ATTRIBUTES, N_VALUES, n_classes, N_PARENTS, seed)
    if not rare:
        return network
    others = network.prior[1:] / network.prior[1:].sum() * (1.0 - rare)
    return replace(network, prior=np.concatenate([[rare], others]))


@dataclass(frozen=True)
class Answers:
    """Probabilities of a model for rows, their standard deviations in log odds, and the truth; (n_rows, n_classes) each."""

    p: Floats
    deviation: Floats
    truth: Floats
    low: Floats
    high: Floats

    def share_held(self, factor: Floats | float = 1.0, more: Floats | float = 0.0) -> float:
        """The share of bounds that hold the truth, where deviations are multiplied by a factor, and another is added in square."""
        reach = QUANTILE * np.sqrt((factor * self.deviation) ** 2 + more**2)
        return float(np.mean(np.abs(log_odds(self.p) - log_odds(self.truth)) <= reach))


def log_odds(p: Floats) -> Floats:
    """Log odds of probabilities."""
    return np.log(p) - np.log1p(-p)


def trained(learner: str, network: KnownNetwork, x: Codes, y: Codes) -> Any:
    """A model of these rows; `kdb:k=2` is a learner with parameters."""
    rows = pa.table(table_of(x, list(range(N_ATTRIBUTES))) | {"class": pa.array(y.astype(str))})
    name, _, text = learner.partition(":")
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    parameters = {key: int(value) if value.isdigit() else value for key, _, value in pairs}
    return drive(recipes.learner(name, parameters, "class"), Source.of_table(rows), threads=1)


def answers(model: Any, network: KnownNetwork, x: Codes, known: list[int]) -> Answers:
    """Answers to rows of which some columns are known."""
    (batch,) = pa.table(table_of(x, known)).to_batches()
    chunk = encode(batch, model.schema)
    low, high = model.credible_intervals(chunk, LEVEL)
    expected = truth(network, x, known)[:, [int(name) for name in model.schema.classes]]
    edges = (log_odds(np.clip(end, 1e-12, 1 - 1e-12)) for end in (high, low))
    return Answers(model.predict_proba(chunk), np.subtract(*edges) / (2 * QUANTILE), expected, low, high)


def held(learner: str, network: KnownNetwork, seed: int, n_rows: int, n_asked: int, settled: int) -> dict[str, float]:
    """The shares of bounds that hold the truth: of whole rows, and of 1 to 6 known columns, as many rows of each.

    `settled`: the share, of whole rows, that holds what the same learner answers after so many rows; left out if 0.
    """
    random = np.random.default_rng(seed)
    model = trained(learner, network, *network.draw(n_rows, random))
    asked, _ = network.draw(n_asked, random)
    shares = []
    found: dict[str, float] = {}
    for n_known in range(1, N_ATTRIBUTES + 1):
        known = sorted(random.choice(N_ATTRIBUTES, n_known, replace=False).tolist())
        own = answers(model, network, asked, known)
        shares.append(float(np.mean((own.low <= own.truth) & (own.truth <= own.high))))
    if settled:
        after = trained(learner, network, *network.draw(settled, random))
        p = answers(after, network, asked, known).p
        p = p[:, [after.schema.classes.index(name) for name in model.schema.classes]]
        found["settled"] = float(np.mean((own.low <= p) & (p <= own.high)))
    return {"whole": shares[-1], "missing": float(np.mean(shares[:-1])), **found}


def by_width(of: Floats, at: Floats, one_factor: Any) -> Floats:
    """A factor for each of four bins of the widths `of`, looked up by the widths `at`; at least 1."""
    ends = np.quantile(of, np.linspace(0, 1, N_BINS + 1))
    factors = [max(1.0, one_factor((of >= low) & (of <= high))) for low, high in zip(ends, ends[1:], strict=False)]
    return np.array(factors)[np.clip(np.searchsorted(ends, at) - 1, 0, N_BINS - 1)]


def of_agreeing_rows(left_out: Answers, x: Codes, is_class: Floats, at: Answers) -> Floats:
    """Factors by bins of width from pairs of left-out rows that agree in every column.

    One row says nothing of (p - truth)², as its class varies by itself; the product of the errors of two rows with the same truth
    has it as its mean.
    """
    errors, rows = is_class - left_out.p, np.unique(x, axis=1, return_inverse=True)[1].ravel()
    n = np.bincount(rows)

    def sums(values: Floats) -> Floats:
        return np.stack([np.bincount(rows, own) for own in values.T], axis=1)

    products, pairs = sums(errors) ** 2 - sums(errors**2), (n * (n - 1))[:, np.newaxis]
    widths = sums((left_out.deviation * left_out.p * (1 - left_out.p)) ** 2) / n[:, np.newaxis]

    def factor(is_in: Floats) -> float:
        expected = float((pairs * widths * is_in).sum())
        return float(np.sqrt(max(0.0, (products * is_in).sum() / expected))) if expected > 0 else 1.0

    return by_width(widths, (at.deviation * at.p * (1 - at.p)) ** 2, factor)


def of_reference(left_out: Answers, expected: Floats, at: Answers) -> Floats:
    """Factors by bins of width that hold nine tenths of what is expected of left-out rows."""
    ratios = np.abs(log_odds(left_out.p) - log_odds(expected)) / left_out.deviation
    return by_width(left_out.deviation, at.deviation, lambda is_in: float(np.quantile(ratios[is_in], LEVEL)) / QUANTILE)


def ways(network: KnownNetwork, seed: int, n_rows: int, n_asked: int) -> dict[str, dict[str, float]]:
    """For each learner and number of known columns, the shares that hold the truth as they are, and by each way."""
    random = np.random.default_rng(seed)
    x, y = network.draw(n_rows, random)
    asked, (left_x, left_y) = network.draw(n_asked, random)[0], network.draw(max(n_rows // 5, 100), random)
    models = {learner: trained(learner, network, x, y) for learner in OF_SPREAD}
    whole = list(range(N_ATTRIBUTES))
    left_out = {learner: answers(model, network, left_x, whole) for learner, model in models.items()}
    found: dict[str, dict[str, float]] = {}
    for n_known in (N_ATTRIBUTES, 4, 2):
        known = sorted(random.choice(N_ATTRIBUTES, n_known, replace=False).tolist())
        of_all = {learner: answers(model, network, asked, known) for learner, model in models.items()}
        for learner, own in of_all.items():
            spread = [(log_odds(other.p) - log_odds(own.p)) ** 2 for other in of_all.values()]
            kept = left_out[learner]
            is_class = np.stack([left_y == int(name) for name in models[learner].schema.classes], axis=1).astype(float)
            # Beyond what `auto` expects there is its own error.
            reference, error = of_reference(kept, left_out["auto"].p, own), of_all["auto"].deviation
            found[f"{learner}|{n_known}"] = {
                "as it is": own.share_held(),
                "spread": own.share_held(1.0, np.sqrt(np.mean(spread, axis=0))),
                "agreeing": own.share_held(of_agreeing_rows(kept, left_x, is_class, own)),
                "reference": own.share_held(reference, 0.0 if learner == "auto" else error),
                "truth": own.share_held(of_reference(kept, kept.truth, own)),
            }
    return found


def page(
    shares: dict[tuple[str, str], list[dict[str, float]]], tried: dict[str, list[dict[str, dict[str, float]]]]
) -> str:
    """The tables of the results."""
    lines = [HEAD]
    whats = list(next(iter(shares.values()))[0])
    lines += [f"| learner | rows | networks | {' | '.join(whats)} |", "| --- | ---: | ---: |" + " ---: |" * len(whats)]
    for (learner, rows), runs in shares.items():
        cells = []
        for what in whats:
            own = [run[what] for run in runs]
            cells.append(f"{np.mean(own):.2f} ({min(own):.2f}–{max(own):.2f})")
        lines.append(f"| `{learner}` | {rows} | {len(runs)} | {' | '.join(cells)} |")
    lines += [WAYS]
    for rows, each in tried.items():
        for key in each[0]:
            learner, n_known = key.split("|")
            means = [f"{np.mean([run[key][way] for run in each]):.2f}" for way in each[0][key]]
            lines.append(f"| `{learner}` | {rows} | {n_known} | {' | '.join(means)} |")
    return "\n".join([*lines, "", END, ""])


HEAD = """# Coverage of bounds of the sampling error

`predict_interval`, `?interval=0.9` and `--interval 0.9` give bounds for the sampling error of P(class | row), which comes from chance in the training rows,
given structure, weights and trees. `python -m benchmarks.interval_coverage` measures how often they contain the true probability at level 0.9, on rows of random
networks of seven columns with three values and up to two parents each, whose true probabilities follow by enumeration. The table shows the mean over the networks (minimum and maximum).
*missing*: one to six columns known. *rare*: the first class has 2 % of the rows.
"""
WAYS = """
To contain the truth in .87 to .93 of cases, an interval would have to include the error of the structure. Three ways were tried, with 2, 4 or all 7 columns known:

- **spread**: the mean squared distance from the log odds of six learners (those of the table) is added;
- **agreeing**: factors by bins of width from pairs of left-out rows that agree in every column, because single rows cannot separate (p − truth)² from chance in their class;
- **reference**: factors by bins of width with which bounds contain nine tenths of the answers of `auto` for left-out rows, plus its deviation;
- *truth*, which is unknown in practice: the same factors from the truth of whole left-out rows.

| learner | rows | known | as it is | spread | agreeing | reference | *truth* |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""
END = """None reaches .87 to .93 throughout: each is too narrow for some rows and too wide for others. Factors that are right for whole rows, even those of the truth, are wrong
where columns are missing. Agreeing rows exist only in tables of few columns, and the other two ways train `auto` or six learners instead of one. So fewpass calls these bounds of the sampling
error, not 90 % intervals."""


def main() -> None:
    parser = options(
        __doc__ or "", learners=LEARNERS, networks=6, rows=[500, 5000, 50_000], large=500_000, asked=500, settled=0, rare=0.02, ways=[500, 5000, 50_000],
    )  # fmt: skip
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    cases: list[tuple[str, int, float]] = [(one, n, 0.0) for one, n in product(chosen.learners, chosen.rows)]
    cases += [(one, chosen.large, 0.0) for one in chosen.learners if chosen.large and one not in SLOW]
    cases += [(one, 5000, chosen.rare) for one in chosen.learners if chosen.rare and one not in SLOW]
    shares: dict[tuple[str, str], list[dict[str, float]]] = {}
    for learner, n_rows, rare in cases:
        if learner in SLOW and n_rows > SLOW[learner]:
            continue
        n_networks = 2 if n_rows >= LARGE else chosen.networks
        runs = [
            held(learner, known_network(seed, 2 + seed % 2, rare), seed, n_rows, chosen.asked, chosen.settled)
            for seed in range(n_networks)
        ]
        shares[learner, f"{n_rows:,}{', rare' if rare else ''}"] = runs
        print(
            learner,
            n_rows,
            rare,
            {what: round(float(np.mean([run[what] for run in runs])), 3) for what in runs[0]},
            flush=True,
        )
    tried: dict[str, list[dict[str, dict[str, float]]]] = {}
    for n_rows in chosen.ways:
        n_networks = 2 if n_rows >= LARGE else 4
        tried[f"{n_rows:,}"] = [
            ways(known_network(seed, 2 + seed % 2, 0.0), seed, n_rows, chosen.asked) for seed in range(n_networks)
        ]
    if chosen.output:
        chosen.output.write_text(page(shares, tried))
    else:
        print(page(shares, tried))


if __name__ == "__main__":
    main()
