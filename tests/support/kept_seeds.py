"""Seeds with which a random test has failed before: `tests/seeds.json` has them, and they run first.

A test that fails with a seed stores it there, by the name of what it runs. The file is part of the repository: commit it with the repair.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

KEPT = Path(__file__).parents[1] / "seeds.json"
Seed = dict[str, int]


def kept_seeds(name: str, file: Path = KEPT) -> list[Seed]:
    """What has failed before under this name, oldest first."""
    return json.loads(file.read_text()).get(name, [])


@contextlib.contextmanager
def storing(name: str, file: Path = KEPT, **seed: int) -> Iterator[None]:
    """Store the seed if what is inside fails."""
    try:
        yield
    except Exception:
        with file.open("r+") as stored:
            fcntl.flock(stored, fcntl.LOCK_EX)
            seeds = json.load(stored)
            if seed not in seeds.setdefault(name, []):
                seeds[name].append(seed)
            stored.seek(0)
            stored.write(json.dumps(seeds, indent=1, sort_keys=True) + "\n")
            stored.truncate()
        raise
