"""Graphs from files: .npz, folders of .npy, tables of nodes and edges, or PyTorch Geometric's `Data`."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from jaxtyping import Int

from jumok.data.arrays import open_npy, open_npz
from jumok.errors import DataError
from jumok.files import bare_suffix, quoted, read_lines
from jumok.graphs.graph import LARGEST, NOT_FINITE, SPLITS, GraphConfig, RawGraph, SparseTable

SYMBOLS, COLOURS = 6, 4
NAMES = ("red", "green", "blue", "white")
FEWEST, MOST = 4, 8
"""Neighbours of a node."""


class Planted(NamedTuple):
    """The graph, and for every node the neighbour that determines its label."""

    graph: RawGraph
    answer: Int[np.ndarray, " node"]


def planted_graph(nodes: int, *, seed: int = 1) -> Planted:
    """Edges point from the neighbour to the node that looks; train on them with graph.undirected = false."""
    draws = np.random.default_rng([seed, nodes])
    holds = draws.permutation(np.arange(nodes) % SYMBOLS)  # every symbol is held by someone
    seeks, colour = draws.integers(SYMBOLS, size=nodes), draws.integers(COLOURS, size=nodes)
    answer = np.empty(nodes, np.int64)
    edges = []
    for node in range(nodes):
        right = np.flatnonzero(holds == seeks[node])
        wrong = np.flatnonzero(holds != seeks[node])
        answer[node] = draws.choice(right[right != node])
        others = draws.choice(wrong[wrong != node], draws.integers(FEWEST, MOST + 1) - 1, replace=False)
        around = draws.permutation([answer[node], *others])
        edges.append(np.stack([around, np.full(len(around), node)]))
    features = np.concatenate([np.eye(SYMBOLS)[holds], np.eye(SYMBOLS)[seeks], np.eye(COLOURS)[colour]], axis=1).astype(
        np.float32
    )
    graph = RawGraph(
        edges=np.concatenate(edges, axis=1),
        features=features,
        labels=colour[answer],
        class_names=NAMES,
        origin="the planted graph",
    )
    return Planted(graph, answer)


ALIASES = {
    "edges": ("edges", "edge_index"),
    "features": ("features", "x", "feat"),
    "labels": ("labels", "y", "label"),
    "edge_features": ("edge_features", "edge_attr"),
    "graph": ("graph", "batch"),
    "train": ("train_mask",),
    "valid": ("val_mask", "valid_mask"),
    "test": ("test_mask",),
}
"""Names of arrays, our own first."""
SPARSE = ("feat_data", "feat_indices", "feat_indptr", "feat_shape")


def read_graph(config: GraphConfig) -> RawGraph:
    """The graph a recipe names."""
    if config.built_in:
        return planted_graph(config.size, seed=config.seed).graph
    if config.nodes:
        return read_node_tables(config.nodes, config.edges)
    path = Path(config.path)
    if path.is_dir():
        return from_arrays({file.stem: open_npy(file) for file in sorted(path.glob("*.npy"))}, str(path))
    if path.suffix == ".pt":
        return from_arrays(_torch_file(path), str(path))
    with open_npz(path) as arrays:
        return from_arrays(arrays, str(path))


def files_of(config: GraphConfig) -> dict[str, str]:
    """Every file of a graph by the setting that names it."""
    paths = {name: Path(path) for name in ("path", "nodes", "edges") if (path := getattr(config, name))}
    files: dict[str, str] = {}
    for name, path in paths.items():
        arrays = {f"{name}/{file.name}": str(file) for file in sorted(path.glob("*.npy"))}
        files |= arrays if path.is_dir() else {name: str(path)}
    return files


def from_arrays(arrays: Mapping[str, Any], origin: str) -> RawGraph:
    """A graph from arrays by their names."""
    parts: dict[str, Any] = {
        name: next((arrays[alias] for alias in aliases if alias in arrays), None) for name, aliases in ALIASES.items()
    }
    if SPARSE[0] in arrays:
        parts["features"] = _sparse(arrays, origin)
    for name in ("features", "labels", "edges"):
        if parts[name] is None:
            wanted = " or ".join(ALIASES[name])
            raise DataError(f"{origin} has no {wanted}; it has {', '.join(sorted(arrays))[:200] or 'nothing'}")
    labels = parts["labels"]
    return RawGraph(
        edges=_two_rows(parts["edges"]),
        features=parts["features"],
        labels=labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels,
        masks={name: parts[name] for name in SPLITS if parts[name] is not None},
        edge_features=parts["edge_features"],
        graph=parts["graph"],
        class_names=_texts(arrays, "class_names", origin),
        names=_texts(arrays, "names", origin),
        origin=origin,
    )


def read_node_tables(nodes: str, edges: str) -> RawGraph:
    """A graph from a table of nodes (`label`, perhaps `id` and `split`, all else features) and one of edges."""
    rows = list(_rows(nodes))
    if len(rows) < 2:
        raise DataError(f"{nodes} is empty: it needs a header and a row for every node")
    head, rows = rows[0], rows[1:]
    if "label" not in head:
        raise DataError(f"{nodes} has no column `label`; its columns are {', '.join(head)[:200]}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(head):
            raise DataError(f"{nodes}, line {number}: {len(row)} columns, but the header has {len(head)}")
    column = {name: [row[number] for row in rows] for number, name in enumerate(head)}
    names = column.get("id", [])
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{nodes}: two nodes have the id {quoted(twice[0])}")
    labels, class_names = _classes(column["label"])
    return RawGraph(
        features=_numbers(nodes, [name for name in head if name not in ("id", "label", "split")], column),
        labels=labels,
        masks=_masks(nodes, column["split"]) if "split" in column else {},
        edges=_edges(edges, {name: node for node, name in enumerate(names)}, len(rows)),
        names=names,
        class_names=class_names,
        origin=nodes,
    )


def _rows(path: str) -> Iterator[list[str]]:
    """The rows of a table, in composed form: names of nodes and edges that look the same are the same."""
    lines = (normalize("NFC", line) for line in read_lines(path) if line.strip())
    rows = csv.reader(lines, delimiter="\t" if bare_suffix(path) == ".tsv" else ",", skipinitialspace=True)
    try:
        yield from rows
    except csv.Error as error:  # a lone carriage return, a cell of more than 131,072 letters
        raise DataError(f"{path}, line {rows.line_num} is not a row of a table: {error}") from None


def _classes(column: list[str]) -> tuple[np.ndarray, list[str]]:
    """Numbers for the names of classes, in their order; an empty cell is a node without label."""
    known = sorted({name for name in column if name}, key=lambda name: (not name.isdigit(), name.zfill(12), name))
    number = {name: label for label, name in enumerate(known)} | {"": -1}
    return np.array([number[name] for name in column], np.int64), known


def _masks(path: str, column: list[str]) -> dict[str, np.ndarray]:
    column = [{"val": "valid", "validation": "valid"}.get(name, name) for name in column]
    for number, name in enumerate(column, start=2):
        if name not in (*SPLITS, ""):
            raise DataError(f"{path}, line {number}: split is {quoted(name)}; expected train, valid, test or nothing")
    return {split: np.array([name == split for name in column]) for split in SPLITS}


def _numbers(path: str, names: list[str], column: dict[str, list[str]]) -> np.ndarray:
    if not names:
        raise DataError(f"{path} has no features: no column beside id, label and split")
    table = np.empty((len(column[names[0]]), len(names)), np.float32)
    for feature, name in enumerate(names):
        for row, text in enumerate(column[name]):
            try:
                value = float(text)
            except ValueError:
                raise DataError(f"{path}, line {row + 2}: {name[:60]} is {quoted(text)}, not a number") from None
            if not abs(value) <= LARGEST:  # NaN is not, either
                raise DataError(f"{path}, line {row + 2}: {name[:60]} is {text[:60]}, {NOT_FINITE}")
            table[row, feature] = value
    return table


def _edges(path: str, names: dict[str, int], nodes: int) -> np.ndarray:
    edges: list[tuple[int, int]] = []
    for number, row in enumerate(_rows(path), start=1):
        if len(row) < 2:
            raise DataError(f"{path}, line {number}: expected two columns, source and target")
        if number == 1 and not any(cell in names if names else cell.lstrip("-").isdigit() for cell in row[:2]):
            continue  # a header
        ends = [names.get(cell) if names else _node_number(cell, nodes) for cell in row[:2]]
        source, target = ends
        if source is None or target is None:
            known = f"ids such as {quoted(next(iter(names)))}" if names else f"numbers from 0 to {nodes - 1}"
            unknown = quoted(row[ends.index(None)])
            raise DataError(
                f"{path}, line {number}: the edge names {unknown}, but there is no such node; nodes have {known}"
            )
        edges.append((source, target))
    if not edges:
        raise DataError(f"{path} has no edges: it needs a row for every edge, its source and its target")
    return np.array(edges, np.int64).reshape(-1, 2).T


def _node_number(cell: str, nodes: int) -> int | None:
    return int(cell) if cell.isascii() and cell.isdigit() and int(cell) < nodes else None


def _torch_file(path: Path) -> dict[str, Any]:
    """The tensors of a file that torch.save wrote; loading it runs no code."""
    import torch

    try:
        with torch.serialization.safe_globals(_pyg_classes()):
            content = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except Exception:  # whatever a damaged or unsafe pickle raises
        raise DataError(
            f"{path} is damaged, or holds more than tensors; save it by torch.save(data.to_dict(), path)"
        ) from None
    content = content if isinstance(content, dict) else content.to_dict() if hasattr(content, "to_dict") else {}
    return {name: _numpy(value) for name, value in content.items() if hasattr(value, "numpy")}


def _pyg_classes() -> list[Any]:
    try:
        from torch_geometric.data import Data
        from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage
    except ImportError:
        return []
    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def _numpy(value: Any) -> np.ndarray:
    dense = value.to_dense() if value.layout is not _strided() else value
    array: np.ndarray = dense.detach().cpu().numpy()
    return array


def _texts(arrays: Mapping[str, Any], name: str, origin: str) -> list[str]:
    try:
        texts = [str(text) for text in _listed(arrays, name, origin)] if name in arrays else []
        "".join(texts).encode()
    except (SystemError, UnicodeError):  # numbers that are no letters, half a surrogate pair
        raise DataError(f"{origin}: {name} must hold text") from None
    return texts


def _strided() -> Any:
    import torch

    return torch.strided


def _sparse(arrays: Mapping[str, Any], origin: str) -> SparseTable:
    missing = [name for name in SPARSE if name not in arrays]
    if missing:
        raise DataError(
            f"{origin} has {SPARSE[0]} but no {missing[0]}; sparse features need all of {', '.join(SPARSE)}"
        )
    values, columns, starts, shape = (_listed(arrays, name, origin) for name in SPARSE)
    integers = all(array.dtype.kind in "iu" for array in (columns, starts, shape))
    if not integers or len(shape) != 2 or len(starts) != int(shape[0]) + 1 or len(columns) != len(values):
        raise DataError(
            f"{origin}: feat_shape must be nodes and features, feat_indptr one integer more than there are nodes, and "
            f"feat_indices an integer for each of feat_data, but they are {starts.dtype} {len(starts)}, "
            f"{columns.dtype} {len(columns)} and {len(values)} for feat_shape {shape[:3].tolist()}"
        )
    if int(starts[-1]) != len(values):
        raise DataError(f"{origin}: feat_indptr ends at {int(starts[-1])}, but feat_data has {len(values)} entries")
    return SparseTable(starts=starts, columns=columns, values=values, width=int(shape[1]))


def _listed(arrays: Mapping[str, Any], name: str, origin: str) -> np.ndarray:
    """An array that must have one axis."""
    array: np.ndarray = arrays[name]
    if array.ndim != 1:
        raise DataError(f"{origin}: {name} is {list(array.shape)}; expected one axis")
    return array


def _two_rows(edges: np.ndarray) -> np.ndarray:
    """Edges given as [edge, 2] as [2, edge]."""
    if edges.size == 0:
        return np.zeros((2, 0), np.int64)
    return edges.T if edges.ndim == 2 and edges.shape[0] != 2 and edges.shape[1] == 2 else edges
