"""Read the data that the wheel carries: no download, no pickles, and only the bytes that were tested.

The files are made by tools/pack_datasets.py. MNIST: LeCun, Cortes and Burges. Cora and Pubmed: Sen et al., "Collective
classification in network data", AI Magazine 2008; Pubmed as in the Planetoid files of Yang, Cohen and Salakhutdinov 2016.
"""

from __future__ import annotations

import hashlib
import io
from importlib import resources
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadygrad.paper.datasets.types import Graph, Images, undirected

SHA256 = {
    "cora": "1b805197d4589be7f081393477505ece96865935d582dad9c5c854a4eba99b55",
    "pubmed": "33ec3a5c7a3da8f4a9a833c499fced2b847adeb42ddd900622b0af0d5b706599",
    "mnist": "85f557be15d2301bb1e00d7147c8b8c9e6fcf457243ebb26b104d351782919ad",
}
Array = np.ndarray[Any, Any]


class CorruptDataError(RuntimeError):
    """An embedded file is missing or is not the one that was tested."""


def cora() -> Graph:
    """Cora: 2,708 papers on machine learning, 1,433 words each there or not, 7 topics, 5,429 citations.

    `edge_index` has both directions of each citation once; 151 pairs cite each other, so it has 10,556 edges of 5,278 pairs.
    `citations("cora")` has the citations as the source lists them. The features take 16 MB.
    """
    return _graph("cora")


def pubmed() -> Graph:
    """Pubmed: 19,717 papers on diabetes, 500 TF-IDF features, 3 kinds of diabetes, 44,338 citations.

    `edge_index` has both directions of each citation once, without the 11 duplicates and 3 self citations: 88,648 edges.
    `citations("pubmed")` has the citations as the source lists them. The features take 39 MB.
    """
    return _graph("pubmed")


def mnist() -> Images:
    """The first 10,000 training images of MNIST, 28 × 28 from 0 to 255, and their digits."""
    arrays = _arrays("mnist")
    return Images("mnist", torch.from_numpy(arrays["images"]), _int64(arrays["labels"]))


def citations(name: str) -> Tensor:
    """The links of "cora" or "pubmed" as the source lists them: (2, links) int64, each once, duplicates and self links kept.

    In Cora row 0 is the cited paper and row 1 the citing one. Pubmed's source has no direction; row 0 is the smaller number.
    """
    if name not in ("cora", "pubmed"):
        raise ValueError(f"no citations are embedded under {name!r}; choose 'cora' or 'pubmed'.")
    return _int64(_arrays(name)["links"])


def _graph(name: str) -> Graph:
    arrays = _arrays(name)
    counts = np.diff(arrays["starts"])
    features = np.zeros((len(counts), int(arrays["width"])), np.float32)
    rows = np.repeat(np.arange(len(counts)), counts)
    features[rows, arrays["columns"]] = arrays.get("values", np.float32(1))  # Cora's words are there or not: no values
    return Graph(
        name=name,
        features=torch.from_numpy(features),
        labels=_int64(arrays["labels"]),
        edge_index=undirected(_int64(arrays["links"])),
        class_names=tuple(str(label) for label in arrays["class_names"]),
    )


def _arrays(name: str) -> dict[str, Array]:
    """The arrays of an embedded file, after its checksum was compared."""
    file = resources.files("steadygrad.paper.datasets") / f"{name}.npz"
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise CorruptDataError(f"{file} is missing; install steadygrad again.") from None
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise CorruptDataError(
            f"{file} is not the tested file: its SHA-256 is {found}, not {SHA256[name]}; install steadygrad again."
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return dict(archive)


def _int64(array: Array) -> Tensor:
    return torch.from_numpy(array.astype(np.int64))
