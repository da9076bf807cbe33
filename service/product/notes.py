"""The small notes of a workspace, which are JSON with a sum: what is known of data files."""

from service.product.datasets.dataset_statistics import COLUMNS, CONTENTS, DATA, SCHEMAS, SNAPSHOT, STATISTICS
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.files.checksums import checked_document

OF_DATA = (COLUMNS, CONTENTS, SNAPSHOT, f"{SCHEMAS}/*.json", f"{STATISTICS}/*.json")


def damaged_notes(workspace: Workspace) -> list[CorruptFile]:
    """The notes that are not what was written; each is read whole. Rules of forgotten rows have a check of their own."""
    root, found = workspace.layout.root, []
    folders = (f"models/*/{DATA}", "datasets/*")
    patterns = [f"{folder}/{name}" for folder in folders for name in OF_DATA]
    for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
        try:
            checked_document(path, path.read_bytes())
        except FileNotFoundError:  # removed meanwhile
            continue
        except CorruptFile as error:
            found.append(error)
        except (OSError, ValueError, TypeError) as error:
            found.append(CorruptFile(path, f"it cannot be read ({error})."))
    return found
