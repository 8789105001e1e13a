"""A graph as arrays: the edges into every node one after another, features, labels and splits.

The arrays may be memory-mapped files far larger than memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal
from unicodedata import normalize

import numpy as np
from annotated_types import Ge
from jaxtyping import Bool, Float, Int, Integer, Shaped

from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.files import quoted
from jumok.settings import FilePath, NonNegativeFloat, NonNegativeInt, OnlyWith, Settings

SPLITS = ("train", "valid", "test")
UNLABELLED = -1
LARGEST = float(np.finfo(np.float32).max)
NOT_FINITE = f"but must be a finite number of at most {LARGEST:.1e}, the largest of single precision"
CHUNK = 2**22
"""Edges or feature values checked at a time."""


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Settings):
    """Where the graph comes from: a file, a folder of arrays, two tables, or a built-in one."""

    section: ClassVar[str] = "graph"

    path: FilePath = ""
    """A .npz file, a .pt file of PyTorch Geometric, or a folder of .npy files, which may be larger than memory."""
    nodes: FilePath = ""
    """Table of nodes instead, .csv or .tsv: a column `label`, optionally `id` and `split`; all others are features."""
    edges: FilePath = ""
    """Table of edges for `nodes`: two columns, source and target, by `id` or, without ids, by row number from 0."""
    built_in: Literal["", "planted"] = ""
    """Built-in graph instead: in "planted", the label of a node is the colour of one marked neighbour."""
    size: Annotated[int, Ge(20), OnlyWith("built_in")] = 2000
    """Number of nodes of the built-in graph."""
    undirected: bool = True
    """Attend along edges in both directions; false lets only the target attend to the source."""
    normalise: bool = False
    """Divide the features of every node by their sum."""
    shares: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat] = (0.6, 0.2, 0.2)
    """Shares of labelled nodes for training, validation and test, if the data has no split."""
    classes: NonNegativeInt = 0
    """Number of classes; 0 takes it from the labels."""
    seed: NonNegativeInt = 1
    """Random seed of the built-in graph, and of the split if the data has none."""

    @property
    def origin(self) -> str:
        """The source of the graph, in words."""
        return self.path or self.nodes or f"the built-in graph {self.built_in}"

    def __post_init__(self) -> None:
        super().__post_init__()
        sources = [name for name in ("path", "nodes", "built_in") if getattr(self, name)]
        if len(sources) != 1:
            listing = " and ".join(f"graph.{name}" for name in sources) or "none of them"
            raise ConfigError(f"set one of graph.path, graph.nodes and graph.built_in; there is {listing}")
        if bool(self.nodes) != bool(self.edges):
            raise ConfigError("graph.nodes and graph.edges go together; set both")
        if sum(self.shares) > 1.0001 or not self.shares[0]:
            raise ConfigError(f"{self.shown('shares')} must sum to at most 1, and the first must be above 0")


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseTable:
    """A matrix as its entries, row after row: those of row n are starts[n] to starts[n + 1]."""

    starts: Integer[np.ndarray, " row_and_one"]
    columns: Integer[np.ndarray, " entry"]
    values: Shaped[np.ndarray, " entry"]
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self, numbers: Int[np.ndarray, " chosen"]) -> "SparseTable":
        """Some rows; no other entries are read."""
        starts = np.asarray(self.starts[numbers])
        counts = np.asarray(self.starts[numbers + 1]) - starts
        ends = counts.cumsum()
        entries = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)
        starts = np.concatenate([[0], ends])
        return SparseTable(starts=starts, columns=self.columns[entries], values=self.values[entries], width=self.width)


Table = Shaped[np.ndarray, "row column"] | SparseTable


@dataclass(frozen=True, kw_only=True, eq=False)
class RawGraph:
    """A graph as given, before it is checked and sorted."""

    edges: Integer[np.ndarray, "2 edge"]
    """Sources, then targets."""
    features: Table
    labels: Integer[np.ndarray, " item"]
    """The class of every node, or of every graph if nodes belong to several; -1 if unknown."""
    masks: dict[str, Bool[np.ndarray, " item"]] = field(default_factory=dict)
    """Which items are in "train", "valid" and "test"; empty if the data has no split."""
    edge_features: Shaped[np.ndarray, "edge width"] | None = None
    graph: Integer[np.ndarray, " node"] | None = None
    """The number of each node's graph, if whole graphs are classified."""
    names: Sequence[str] = ()
    """Names of nodes; empty if nodes have only numbers."""
    class_names: Sequence[str] = ()
    origin: str = "the graph"
    """Its name in messages."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """A graph sorted by target: the sources of the edges into node n are sources[starts[n] : starts[n + 1]]."""

    starts: Int[np.ndarray, " node_and_one"]
    sources: Int[np.ndarray, " edge"]
    features: Table
    labels: Int[np.ndarray, " item"]
    train: Int[np.ndarray, " training"]
    valid: Int[np.ndarray, " validation"]
    test: Int[np.ndarray, " testing"]
    classes: int
    edge_features: Float[np.ndarray, "edge edge_width"] | None = None
    graph: Int[np.ndarray, " node"] | None = None
    names: Sequence[str] = ()
    class_names: Sequence[str] = ()
    fingerprint: str = ""

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.starts) - 1

    @property
    def width(self) -> int:
        """The number of features of a node."""
        return self.features.width if isinstance(self.features, SparseTable) else int(self.features.shape[1])

    @property
    def edge_width(self) -> int | None:
        """The number of features of an edge; None if edges have none."""
        return None if self.edge_features is None else int(self.edge_features.shape[1])

    def rows(self, nodes: Int[np.ndarray, " chosen"]) -> Table:
        """The features of some nodes; no others are read."""
        return self.features.rows(nodes) if isinstance(self.features, SparseTable) else np.asarray(self.features[nodes])

    @property
    def classified(self) -> str:
        """What has labels: "nodes", or whole "graphs"."""
        return "nodes" if self.graph is None else "graphs"

    def name(self, node: int) -> str:
        """The name of a node."""
        return self.names[node] if self.names else str(node)

    def class_name(self, label: int) -> str:
        """The name of a class; "?" if it is unknown."""
        return "?" if label < 0 else self.class_names[label] if self.class_names else str(label)

    def __str__(self) -> str:
        split = ", ".join(f"{len(getattr(self, name)):,} to {verb}" for name, verb in zip(SPLITS, VERBS, strict=True))
        graphs = "" if self.graph is None else f" in {len(self.labels):,} graphs"
        return (
            f"{self.nodes:,} nodes{graphs}, {len(self.sources):,} edges, {self.width:,} features, "
            f"{self.classes} classes; {split}"
        )


VERBS = ("train", "validate", "test")


def find_node(graph: Graph, name: str) -> int:
    """The number of a node by its name, or by its number where nodes have no names.

    Names that look the same are the same: "나" as a syllable and, as macOS spells it, in two letters.
    """
    if graph.names:
        if name in graph.names:
            return list(graph.names).index(name)
        composed = [normalize("NFC", known) for known in graph.names]
        if (same := normalize("NFC", name)) in composed:
            return composed.index(same)
        known_ones = ", ".join(map(quoted, graph.names[:3]))
        raise ArgumentError(f"there is no node {quoted(name)}; nodes are called {known_ones} …")
    if not name.isdecimal() or len(name) > 18 or int(name) >= graph.nodes:
        raise ArgumentError(f"there is no node {name[:40]}; nodes are 0 to {graph.nodes - 1}")
    return int(name)


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def check_graph(raw: RawGraph, classes: int) -> tuple[int, int]:
    """The number of nodes and of classes; a DataError if the arrays do not describe a graph to learn from.

    `classes` is the number of classes that the recipe gives, 0 if it gives none.
    """
    _check_array(raw, "labels", raw.labels, "iu", 1)
    values = raw.features.values if isinstance(raw.features, SparseTable) else raw.features
    _check_array(raw, "features", values, "fiub", 1 if isinstance(raw.features, SparseTable) else 2)
    _check_array(raw, "edges", raw.edges, "iu", 2)
    nodes = len(raw.features)
    if raw.graph is not None:
        _check_array(raw, "graph", raw.graph, "iu", 1)
    of_nodes = {"labels" if raw.graph is None else "graph": raw.labels if raw.graph is None else raw.graph}
    for name, array in of_nodes.items():
        if not nodes or len(array) != nodes:
            raise DataError(f"{raw.origin}: there are features of {nodes} nodes but {name} of {len(array)}")
    if raw.graph is not None and not 0 <= int(np.min(raw.graph)) <= int(np.max(raw.graph)) < len(raw.labels):
        raise DataError(
            f"{raw.origin}: nodes belong to graphs {np.min(raw.graph)} to {np.max(raw.graph)}, but there are labels of "
            f"{len(raw.labels)}"
        )
    classes = _check_labels(raw, classes)
    _check_features(raw, values)
    _check_edges(raw, nodes)
    return nodes, classes


def check_split(raw: RawGraph) -> None:
    """Raise a DataError unless the masks are disjoint booleans over labelled items, and some are for training."""
    items, unit = len(raw.labels), "node" if raw.graph is None else "graph"
    member_of = np.zeros(items, np.int8)
    for number, (name, mask) in enumerate(raw.masks.items(), start=1):
        if mask.shape != (items,) or mask.dtype != bool:
            raise DataError(
                f"{raw.origin}: the {name} mask is {mask.dtype} {list(mask.shape)}; expected a boolean for each of "
                f"{items} {unit}s"
            )
        if (twice := np.flatnonzero(mask & (member_of > 0))).size:
            other = list(raw.masks)[member_of[twice[0]] - 1]
            raise DataError(f"{raw.origin}: {unit} {twice[0]} is both in the {other} mask and in the {name} mask")
        if (unknown := np.flatnonzero(mask & (np.asarray(raw.labels) < 0))).size:
            raise DataError(f"{raw.origin}: {unit} {unknown[0]} is in the {name} mask but has no label (-1)")
        member_of[mask] = number
    if not any(raw.masks.get("train", ())):
        raise DataError(f"{raw.origin}: there is nothing to train on; the train mask is empty")


def _check_array(raw: RawGraph, name: str, array: Shaped[np.ndarray, "..."], kinds: str, axes: int) -> None:
    """Refuse an array of another type or number of axes."""
    if array.dtype.kind not in kinds or array.ndim != axes or (name == "edges" and len(array) != 2):
        wanted = {"edges": "[2, edge]: sources, then targets"}.get(name, "one axis" if axes == 1 else "two axes")
        number = "integers" if kinds == "iu" else "numbers"
        raise DataError(
            f"{raw.origin}: the array {name} is {array.dtype} {list(array.shape)}; expected {number} with {wanted}"
        )


def _check_labels(raw: RawGraph, classes: int) -> int:
    """The number of classes."""
    labels = np.asarray(raw.labels)
    limit = classes or len(raw.class_names) or max(len(labels), 2)
    if (outside := np.flatnonzero((labels < UNLABELLED) | (labels >= limit))).size:
        raise DataError(
            f"{raw.origin}: label {labels[outside[0]]} of item {outside[0]} is out of range; expected 0 to "
            f"{limit - 1}, or -1 for unknown"
        )
    known = np.unique(labels[labels >= 0])
    if len(known) < 2:
        listing = [str(raw.class_names[label]) if raw.class_names else str(label) for label in known]
        raise DataError(
            f"{raw.origin}: training needs labels of at least two classes; seen: {', '.join(listing) or 'none'}"
        )
    return classes or len(raw.class_names) or int(known[-1]) + 1


def _check_features(raw: RawGraph, values: Shaped[np.ndarray, "..."]) -> None:
    table = raw.features
    if isinstance(table, SparseTable):
        starts = np.asarray(table.starts)
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any():
            raise DataError(f"{raw.origin}: the starts of sparse rows (feat_indptr) must begin with 0 and never fall")
        for part in chunks(len(table.columns)):
            columns = table.columns[part]
            if len(outside := np.flatnonzero((columns < 0) | (columns >= table.width))):
                raise DataError(
                    f"{raw.origin}: a feature is in column {columns[outside[0]]}, but there are {table.width} columns, "
                    "counted from 0"
                )
    if (entry := _first_not_finite(values)) is not None:
        node = int(np.searchsorted(table.starts, entry[0], "right")) - 1 if isinstance(table, SparseTable) else entry[0]
        raise DataError(f"{raw.origin}: a feature of node {node} is {values[entry]}, {NOT_FINITE}")


def _check_edges(raw: RawGraph, nodes: int) -> None:
    """Refuse edges between nodes that do not exist, or of different graphs: pooling would mix them."""
    edges = raw.edges
    for part in chunks(edges.shape[1]):
        wrong = np.argwhere((edges[:, part] < 0) | (edges[:, part] >= nodes))
        if len(wrong):
            edge = int(wrong[:, 1].min()) + part.start
            raise DataError(
                f"{raw.origin}: edge {edge} goes from {edges[0, edge]} to {edges[1, edge]}, but nodes are 0 to "
                f"{nodes - 1}"
            )
        if raw.graph is not None and len(across := np.flatnonzero(np.diff(raw.graph[edges[:, part]], axis=0)[0])):
            edge = int(across[0]) + part.start
            source, target = (int(node) for node in edges[:, edge])
            raise DataError(
                f"{raw.origin}: edge {edge} joins two graphs: node {source} of graph {raw.graph[source]} and node "
                f"{target} of graph {raw.graph[target]}; remove it, or correct the array `graph`"
            )
    if (features := raw.edge_features) is not None:
        _check_array(raw, "edge_features", features, "fiub", 2)
        if len(features) != edges.shape[1]:
            raise DataError(f"{raw.origin}: there are {edges.shape[1]} edges but edge features of {len(features)}")
        if (entry := _first_not_finite(features)) is not None:
            raise DataError(f"{raw.origin}: a feature of edge {entry[0]} is {features[entry]}, {NOT_FINITE}")


def _first_not_finite(values: Shaped[np.ndarray, "..."]) -> tuple[int, ...] | None:
    """Where the first number is that single precision cannot hold; None if there is none."""
    for part in chunks(len(values), max(CHUNK // max(1, int(np.prod(values.shape[1:]))), 1)):
        broken = np.argwhere(~(np.abs(values[part]) <= LARGEST))  # NaN is not, either
        if len(broken):
            return int(broken[0][0]) + part.start, *map(int, broken[0][1:])
    return None
