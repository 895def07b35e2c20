"""Make the data that the wheel carries from the raw files, byte for byte the same each time.

    python tools/pack_datasets.py [--raw ../shared/data] [--out src/steadygrad/paper/datasets]

Writes cora.npz, pubmed.npz and mnist.npz and prints their SHA-256, which belong into src/steadygrad/paper/datasets/embedded.py.
The raw Pubmed files are pickles, and pickles run code: only the four names that they rightly hold are looked up.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import pickle
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
Arrays = dict[str, np.ndarray]


def cora(raw: Path) -> Arrays:
    """Rows in the order of cora.content; links as (cited, citing) row numbers in the order of cora.cites."""
    with gzip.open(raw / "cora" / "cora.content.gz", "rt", encoding="ascii") as file:
        rows = [line.split() for line in file]
    index = {row[0]: i for i, row in enumerate(rows)}
    cites = [line.split() for line in (raw / "cora" / "cora.cites").read_text(encoding="ascii").splitlines()]
    words = np.array([row[1:-1] for row in rows]) == "1"
    names = sorted({row[-1] for row in rows})
    expect("Cora nodes", len(index), 2708)
    expect("Cora links", len(cites), 5429)
    expect("Cora classes", len(names), 7)
    expect("Cora features", words.shape[1], 1433)
    return {
        "columns": np.nonzero(words)[1].astype("<u2"),
        "starts": np.concatenate([[0], words.sum(1).cumsum()]).astype("<i4"),
        "width": np.array(words.shape[1], "<i4"),
        "labels": np.array([names.index(row[-1]) for row in rows], "u1"),
        "class_names": np.array([name.replace("_", " ") for name in names]),
        "links": np.array([[index[a], index[b]] for a, b in cites], "<u2").T,
    }


def pubmed(raw: Path) -> Arrays:
    """Planetoid's rows with the test rows put where test.index says; each link once, the smaller row number first."""
    allx, tx, ally, ty, neighbours = (unpickle(raw / "pubmed" / f"ind.pubmed.{n}") for n in ("allx", "tx", "ally", "ty", "graph"))
    test = np.loadtxt(raw / "pubmed" / "ind.pubmed.test.index", dtype=np.int64)
    order = np.argsort(np.concatenate([np.arange(len(ally)), test]))
    lengths = np.concatenate([np.diff(allx.indptr), np.diff(tx.indptr)])
    columns, values = np.concatenate([allx.indices, tx.indices]), np.concatenate([allx.data, tx.data])
    bounds = np.concatenate([[0], lengths.cumsum()])
    take = np.concatenate([np.arange(bounds[row], bounds[row + 1]) for row in order])
    entries = np.array([(i, j) for i in sorted(neighbours) for j in sorted(neighbours[i])])
    selves = entries[entries[:, 0] == entries[:, 1]]
    expect("Pubmed nodes", len(order), 19717)
    expect("Pubmed directed entries", len(entries), 88676)
    expect("Pubmed self links", len(selves), 6)
    expect("Pubmed non-zeros", len(values), 988031)
    # A link stands in the dict at both of its ends, a self link therefore twice at its only end.
    links = np.concatenate([entries[entries[:, 0] < entries[:, 1]], selves[::2]])
    expect("Pubmed links", len(links), 44338)
    return {
        "columns": columns[take].astype("<u2"),
        "values": values[take].astype("<f4"),
        "starts": np.concatenate([[0], lengths[order].cumsum()]).astype("<i4"),
        "width": np.array(allx._shape[1], "<i4"),
        "labels": np.concatenate([ally, ty])[order].argmax(1).astype("u1"),
        "class_names": np.array(["Diabetes Mellitus, Experimental", "Diabetes Mellitus Type 1", "Diabetes Mellitus Type 2"]),
        "links": links[np.lexsort(links.T[::-1])].astype("<u2").T,
    }


def mnist(raw: Path, count: int = 10_000) -> Arrays:
    """The first `count` training images and labels."""
    images = idx(raw / "mnist" / "train-images-idx3-ubyte.gz")[:count]
    labels = idx(raw / "mnist" / "train-labels-idx1-ubyte.gz")[:count]
    expect("MNIST images", images.shape, (count, 28, 28))
    expect("MNIST first labels", labels[:5].tolist(), [5, 0, 4, 1, 9])
    return {"images": images, "labels": labels}


def idx(path: Path) -> np.ndarray:
    """A gzipped IDX file of bytes: 0, 0, 8, number of dimensions, the big-endian sizes, the data."""
    raw = gzip.decompress(path.read_bytes())
    expect(f"{path.name}: type of elements", raw[:3], b"\0\0\x08")
    sizes = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, "u1", offset=4 + 4 * raw[3]).reshape(sizes)


class Matrix:
    """What a pickled scipy.sparse.csr_matrix holds: data, indices, indptr, _shape; so that scipy is not needed."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    _shape: tuple[int, int]


class Unpickler(pickle.Unpickler):
    """Looks up the names that the Planetoid files need and no other."""

    KNOWN = {  # noqa: RUF012
        ("scipy.sparse.csr", "csr_matrix"): Matrix,
        ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.KNOWN:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, which a Planetoid file has no use for")
        return self.KNOWN[module, name]


def unpickle(path: Path) -> Any:
    with path.open("rb") as file:
        return Unpickler(file, encoding="latin1").load()  # written by Python 2


def expect(what: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise SystemExit(f"{what}: got {got!r}, expected {wanted!r}; the raw files are not those of ../shared/data/README.md")


def pack(arrays: Arrays) -> bytes:
    """An npz file that depends on its content alone: fixed order, fixed dates, fixed system."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, member.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return whole.getvalue()


PACKERS = {"cora": cora, "pubmed": pubmed, "mnist": mnist}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the raw files")
    parser.add_argument("--out", type=Path, default=ROOT / "src" / "steadygrad" / "paper" / "datasets", help="folder to write to")
    options = parser.parse_args()
    for name, packer in PACKERS.items():
        content = pack(packer(options.raw))
        (options.out / f"{name}.npz").write_bytes(content)
        print(f'"{name}": "{hashlib.sha256(content).hexdigest()}",  # {len(content):,} bytes')


if __name__ == "__main__":
    main()
