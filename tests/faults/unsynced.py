"""A disk that forgets what was not synced: which files are there, and with what, if the power fails after a given call.

It is a model of what POSIX promises and no more. The bytes of a file are safe once the file was synced, a name once its folder was.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class File:
    """A file with the bytes that it had when it was last synced."""

    synced: bytes = b""


@dataclass(eq=False)
class Folder:
    """A folder with its names as processes see them, and as they were when it was last synced."""

    names: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node = File | Folder
State = dict[str, bytes | None]  # by path in the order of making; None for folders


def of_path(path):
    """All that lies below a path, safe on the disk."""
    if not path.is_dir():
        return File(path.read_bytes())
    names = {child.name: of_path(child) for child in sorted(path.iterdir())}
    return Folder(names, dict(names))


class Disk:
    """What becomes of a folder by the calls that the preloaded library has written down.

    Parameters
    ----------
    root : the folder as it was before the first call
    kept : where the library has kept what was synced, under the number of the call
    """

    def __init__(self, root, kept):
        node = of_path(root)
        assert isinstance(node, Folder)
        self.root, self.kept = node, kept
        self.renamed = ""

    def _parent(self, path):
        *above, name = path.strip("/").split("/")
        folder = self.root
        for each in above:
            node = folder.names[each]
            assert isinstance(node, Folder), path
            folder = node
        return folder.names, name

    def follow(self, line):
        """Do what one line of the log says."""
        number, call, path = line.rstrip("\n").split(" ", 2)
        if call == "fsync":
            self._sync(path, self.kept / number)
            return
        try:
            names, name = self._parent(path)
        except KeyError:
            if call == "mkdir":  # it failed: `Path.mkdir(parents=True)` tries the last folder first
                return
            raise
        if call == "from":
            self.renamed = path
        elif call == "rename":
            before, old = self._parent(self.renamed)
            names[name] = before.pop(old)
        elif call == "unlink":
            names.pop(name, None)
        elif call == "mkdir":
            names.setdefault(name, Folder())
        elif call == "open":
            names.setdefault(name, File())

    def _sync(self, path, kept):
        names, name = self._parent(path) if path else ({"": self.root}, "")
        node = names[name]
        if isinstance(node, Folder):
            node.synced = dict(node.names)
        else:
            node.synced = kept.read_bytes()

    def left(self, *, keeps_names):
        """What is left if the power fails now; `keeps_names` on file systems that happen to write names down first."""
        return dict(_left(self.root, "", keeps_names=keeps_names))


def write(state, folder):
    """Make a state in a folder that does not exist, closed to others as a workspace is."""
    for path, content in state.items():
        if content is None:
            (folder / path).mkdir(mode=0o700)
        else:
            (folder / path).touch(mode=0o600)
            (folder / path).write_bytes(content)


def names_of(node):
    """The names below, as processes see them."""
    return {name: names_of(child) for name, child in sorted(node.names.items())} if isinstance(node, Folder) else None


def _left(node, path, *, keeps_names):
    yield path, node.synced if isinstance(node, File) else None
    if isinstance(node, Folder):
        for name, child in (node.names if keeps_names else node.synced).items():
            yield from _left(child, f"{path}/{name}".lstrip("/"), keeps_names=keeps_names)
