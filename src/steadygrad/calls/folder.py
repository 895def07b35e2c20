"""A folder of the caller, as a worker on another machine may see it or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """A folder by its path and its inode, both of which machines that share a file system agree on.

    A worker asks whether it sees the caller's folder before it keeps a checkpoint there: on a machine with a disk of its own
    the file would lie where nobody looks for it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     folder = Folder.of(Path(path))
    ...     folder.seen, Folder(folder.path, folder.inode + 1).seen
    (True, False)
    >>> folder.seen
    False
    """

    path: Path
    inode: int

    @classmethod
    def of(cls, path: Path) -> Folder:
        """The folder, made where it is missing."""
        path = path.absolute()
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, path.stat().st_ino)

    @property
    def seen(self) -> bool:
        """Whether this process sees the same folder."""
        try:
            return self.path.stat().st_ino == self.inode
        except OSError:
            return False
