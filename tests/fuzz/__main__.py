"""Fuzz every parser that takes bytes from outside, each for its share of the time.

python -m tests.fuzz --seconds 3600

Atheris guides the inputs by what they make our modules do, where it is installed (`pip install atheris`); else seeds are mutated
at random. Each parser runs in a process of its own. An input that it does not survive, or that raises an error that is not
ours, is kept in tests/fuzz/found/PARSER; `make test` tries all of these again.
"""

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOUND = Path(__file__).parent / "found"
SLOW_S = 30


def one_target(name, seconds, work, seed):
    """Fuzz one parser; its process ends with the first input that breaks it."""
    is_guided = importlib.util.find_spec("atheris") is not None
    if is_guided:
        import atheris

        with atheris.instrument_imports(include=["service", "learners", "storage"]):
            from tests.fuzz.targets import TARGETS
    else:
        from tests.fuzz.targets import TARGETS
    target, n_cases = TARGETS[name], 0

    def one(content):
        nonlocal n_cases
        n_cases += 1
        (work / "last").write_bytes(content)
        if n_cases % 16 == 0:
            (work / "cases").write_text(str(n_cases))
        target.parse(content)

    seeds = target.seeds()
    if is_guided:
        corpus = work / "corpus"
        corpus.mkdir(exist_ok=True)
        for n, content in enumerate(seeds):
            (corpus / f"seed-{n}").write_bytes(content)
        flags = [f"-max_total_time={int(seconds)}", f"-timeout={SLOW_S}", "-rss_limit_mb=6000", f"-seed={seed}"]
        flags += ["-max_len=65536", f"-artifact_prefix={work}/", "-print_final_stats=1", "-len_control=0"]
        atheris.Setup([sys.argv[0], *flags, str(corpus)], one)
        atheris.Fuzz()
        return
    from tests.fuzz.mutating import mutated

    rng, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        one(mutated(rng, seeds))


def share(name, seconds):
    """Fuzz one parser in processes of its own until its time is over."""
    end, n_cases, seed = time.monotonic() + seconds, 0, 1
    found: list[dict[str, object]] = []
    while (left := end - time.monotonic()) > 5:
        with tempfile.TemporaryDirectory(prefix=f"fewpass-fuzz-{name}-") as folder:
            work = Path(folder)
            command = [sys.executable, "-m", "tests.fuzz", "--target", name]
            command += ["--seconds", str(left), "--seed", str(seed)]
            with (work / "log").open("w") as log:
                ended = subprocess.run([*command, "--work", folder], stdout=log, stderr=log, check=False)
            n_cases += int((work / "cases").read_text()) if (work / "cases").exists() else 0
            if ended.returncode:
                text = (work / "log").read_text(errors="replace")
                found.append({"exit": ended.returncode, "log": text[-3000:]})
                if (work / "last").exists():
                    (FOUND / name).mkdir(parents=True, exist_ok=True)
                    (FOUND / name / f"{int(time.time())}-{seed}").write_bytes((work / "last").read_bytes())
        seed += 1
        if len(found) >= 5:
            break
    return {"target": name, "seconds": round(seconds), "cases": n_cases, "found": found}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--target", action="append", help="only this parser; again for more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, default=Path("build/load/fuzz.jsonl"))
    args = parser.parse_args()
    os.environ.setdefault("FEWPASS_LOG_LEVEL", "error")
    if args.work is not None:
        one_target(args.target[0], args.seconds, args.work, args.seed)
        return 0
    from tests.fuzz.targets import TARGETS

    names = args.target or list(TARGETS)
    args.report.parent.mkdir(parents=True, exist_ok=True)
    n_found = 0
    for name in names:
        told = share(name, args.seconds / len(names))
        n_found += len(told["found"])
        print(json.dumps(told), flush=True)
        with args.report.open("a") as file:
            file.write(json.dumps(told) + "\n")
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main())
