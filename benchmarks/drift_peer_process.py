"""The default rules of Evidently or NannyML on windows that benchmarks.monitoring has written; run in an environment that has one of them.

python drift_peer_process.py evidently|nannyml FOLDER OUT.jsonl

FOLDER holds reference.parquet and one file a window. Each line of OUT names a window, the columns that are said to have drifted,
the one with the largest distance first, and the seconds that it took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def by_evidently(reference):
    """Column drift of DataDriftPreset as it is; the test of each column is chosen by its type and the number of rows."""
    from evidently import Report
    from evidently.presets import DataDriftPreset

    def look(window):
        result = Report([DataDriftPreset()]).run(window, reference).dict()
        drifted = []
        for metric in result["metrics"]:
            config, value = metric.get("config", {}), metric.get("value")
            if "column" in config and isinstance(value, float | int):
                threshold, method = config["threshold"], config["method"]
                is_p = "p_value" in method
                if value < threshold if is_p else value >= threshold:
                    drifted.append((value if is_p else -value, config["column"]))
        return [column for _, column in sorted(drifted)]

    return look


def by_nannyml(reference):
    """Univariate drift with its default methods, thresholds and ten chunks; a column drifts if most of its chunks alert."""
    import nannyml

    columns = list(reference.columns)
    calculator = nannyml.UnivariateDriftCalculator(column_names=columns)
    calculator.fit(reference)

    def look(window):
        found = calculator.calculate(window).filter(period="analysis").to_df()
        drifted = []
        for column in columns:
            methods = {name[1] for name in found.columns if name[0] == column}
            for method in methods:
                alerting, values = found[(column, method, "alert")].mean(), found[(column, method, "value")].mean()
                if alerting > 0.5:
                    drifted.append((-float(alerting), -float(values), column))
        return [column for *_, column in sorted(drifted)]

    return look


def main() -> None:
    """Ask about each window."""
    import pandas as pd

    which, folder, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    look = {"evidently": by_evidently, "nannyml": by_nannyml}[which](pd.read_parquet(folder / "reference.parquet"))
    known = {json.loads(line)["window"] for line in out.read_text().splitlines()} if out.exists() else set()
    for path in sorted(folder.glob("window-*.parquet")):
        if path.stem not in known:
            window = pd.read_parquet(path)
            started = time.process_time()
            told = {"window": path.stem, "drifted": look(window), "cpu_s": time.process_time() - started}
            with out.open("a") as file:
                file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
