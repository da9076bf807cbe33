"""Every kernel and the types that it is compiled for; `make kernels` compiles all and writes kernels.txt.

python -m tests.kernels.kernel_table     # after `fewpass precompile` with the same, empty NUMBA_CACHE_DIR
"""

import importlib
import pickle
import re
from pathlib import Path

from numba.core import types

import learners
from learners.kernels.jit import SUM_BYTES

TABLE = Path(__file__).parent / "kernels.txt"


def kernels():
    """Names of all kernels, and what Python finds there."""
    root = Path(learners.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if re.search(r"^@((inner|borrowing)_)?kernel$", path.read_text(), re.MULTILINE):
            yield from kernels_of(".".join(("learners", *path.relative_to(root).with_suffix("").parts)))


def kernels_of(module):
    for name, member in vars(importlib.import_module(module)).items():
        if hasattr(member, "py_func") and member.py_func.__module__ == module:
            yield f"{module}.{name}", member


def word(kind):
    """A type in a few letters: uint8[2] is an array of two axes."""
    if isinstance(kind, types.Array):
        order = "" if kind.layout == "C" else f" {kind.layout}"
        return f"{'' if kind.mutable else 'read-only '}{kind.dtype}[{kind.ndim}{order}]"
    if isinstance(kind, types.NamedTuple | types.NamedUniTuple):
        return kind.instance_class.__name__
    if isinstance(kind, types.BaseTuple):
        return f"({', '.join(map(word, kind))})"
    return str(kind)


def signatures(kernel):
    """The types that are found compiled on disk."""
    cache = kernel._cache
    for path in Path(cache.cache_path).glob(f"{cache.current}*"):
        (arguments, _), _ = pickle.loads(path.read_bytes()[SUM_BYTES:])
        yield f"({', '.join(map(word, arguments))})"


def main():
    lines, n_kernels = [], 0
    for name, kernel in kernels():
        n_kernels += 1
        lines += [f"{name}{types}" for types in sorted(signatures(kernel))] or [f"{name}: never compiled"]
    TABLE.write_text("\n".join(lines) + "\n")
    print(TABLE.read_text(), end="")
    print(f"{n_kernels} kernels, {sum(not line.endswith('never compiled') for line in lines)} signatures")


if __name__ == "__main__":
    main()
