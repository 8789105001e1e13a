"""A graph as arrays: the edges into every node one after another, features, labels and which nodes to learn from.

The arrays may be far larger than memory: they are then files, of which only what is asked for is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge
from jaxtyping import Bool, Float, Int, Integer, Shaped

from jumok.errors import ConfigError, DataError
from jumok.settings import NonNegativeFloat, NonNegativeInt, Settings

SPLITS = ("train", "valid", "test")
UNLABELLED = -1
LARGEST = float(np.finfo(np.float32).max)
TOO_LARGE = f"which is too large for single precision, at most {LARGEST:.1e}; divide the features by a number"
CHUNK = 2**22
"""Edges or feature values looked at in one go."""


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Settings):
    """Where the graph comes from: a file, a folder of arrays, two tables, or a built-in one."""

    section: ClassVar[str] = "graph"

    path: str = ""
    """A .npz file, a .pt file of PyTorch Geometric, or a folder of .npy files, which may be larger than memory."""
    nodes: str = ""
    """Table of nodes instead, .csv or .tsv: a column `label`, optionally `id` and `split`; all others are features."""
    edges: str = ""
    """Table of edges for `nodes`: two columns, source and target, by `id` or, without ids, by row number from 0."""
    built_in: Literal["", "planted"] = ""
    """Built-in graph instead: in "planted", the label of a node is the colour of one marked neighbour."""
    size: Annotated[int, Ge(20)] = 2000
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
        """What is learnt from, in words."""
        return self.path or self.nodes or f"the built-in graph {self.built_in}"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("path", "nodes", "built_in") if getattr(self, name)]
        if len(given) != 1:
            found = " and ".join(f"graph.{name}" for name in given) or "none of them"
            raise ConfigError(f"set one of graph.path, graph.nodes and graph.built_in; there is {found}")
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
        """Some rows, only their entries being read."""
        starts = np.asarray(self.starts[numbers])
        counts = np.asarray(self.starts[numbers + 1]) - starts
        ends = counts.cumsum()
        at = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)
        starts = np.concatenate([[0], ends])
        return SparseTable(starts=starts, columns=self.columns[at], values=self.values[at], width=self.width)


Table = Shaped[np.ndarray, "row column"] | SparseTable


@dataclass(frozen=True, kw_only=True, eq=False)
class RawGraph:
    """A graph as it was found, before it is checked and put in order."""

    edges: Integer[np.ndarray, "2 edge"]
    """Sources, then targets."""
    features: Table
    labels: Integer[np.ndarray, " item"]
    """The class of every node, or of every graph where nodes belong to several; -1 where it is not known."""
    masks: dict[str, Bool[np.ndarray, " item"]] = field(default_factory=dict)
    """For "train", "valid" and "test", which items are in it; empty where the data does not say."""
    edge_features: Shaped[np.ndarray, "edge width"] | None = None
    graph: Integer[np.ndarray, " node"] | None = None
    """The number of the graph each node belongs to, where whole graphs are classified."""
    names: Sequence[str] = ()
    """What nodes are called; by their numbers where this is empty."""
    class_names: Sequence[str] = ()
    origin: str = "the graph"
    """What messages call it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """A graph in order: the sources of the edges into node n are sources[starts[n] : starts[n + 1]]."""

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
        """How many nodes there are."""
        return len(self.starts) - 1

    @property
    def width(self) -> int:
        """Features of a node."""
        return self.features.width if isinstance(self.features, SparseTable) else int(self.features.shape[1])

    @property
    def edge_width(self) -> int | None:
        """Features of an edge; None without any."""
        return None if self.edge_features is None else int(self.edge_features.shape[1])

    def rows(self, nodes: Int[np.ndarray, " chosen"]) -> Table:
        """The features of some nodes, only theirs being read."""
        return self.features.rows(nodes) if isinstance(self.features, SparseTable) else np.asarray(self.features[nodes])

    @property
    def classified(self) -> str:
        """What the labels are of: "nodes", or whole "graphs"."""
        return "nodes" if self.graph is None else "graphs"

    def name(self, node: int) -> str:
        """What a node is called."""
        return self.names[node] if self.names else str(node)

    def class_name(self, label: int) -> str:
        """What a class is called; "?" where it is not known."""
        return "?" if label < 0 else self.class_names[label] if self.class_names else str(label)

    def __str__(self) -> str:
        split = ", ".join(f"{len(getattr(self, name)):,} to {verb}" for name, verb in zip(SPLITS, VERBS, strict=True))
        graphs = "" if self.graph is None else f" in {len(self.labels):,} graphs"
        return (
            f"{self.nodes:,} nodes{graphs}, {len(self.sources):,} edges, {self.width:,} features, "
            f"{self.classes} classes; {split}"
        )


VERBS = ("train", "validate", "test")


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """Stretches of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def check_split(raw: RawGraph) -> None:
    """Every mask as long as the labels, of booleans, without unlabelled items, and none in two of them."""
    items, unit = len(raw.labels), "node" if raw.graph is None else "graph"
    seen = np.zeros(items, np.int8)
    for number, (name, mask) in enumerate(raw.masks.items(), start=1):
        if mask.shape != (items,):
            raise DataError(
                f"{raw.origin}: the {name} mask is {list(mask.shape)}, but there are {items} {unit}s; wanted [{items}]"
            )
        if mask.dtype != bool:
            raise DataError(f"{raw.origin}: the {name} mask holds {mask.dtype}; wanted booleans, one for each {unit}")
        if (twice := np.flatnonzero(mask & (seen > 0))).size:
            other = list(raw.masks)[seen[twice[0]] - 1]
            raise DataError(f"{raw.origin}: {unit} {twice[0]} is both in the {other} mask and in the {name} mask")
        if (unknown := np.flatnonzero(mask & (np.asarray(raw.labels) < 0))).size:
            raise DataError(
                f"{raw.origin}: {unit} {unknown[0]} is in the {name} mask but has no label (-1); take it out of it"
            )
        seen[mask] = number


def check_labels(raw: RawGraph, classes: int) -> int:
    """How many classes there are."""
    labels = np.asarray(raw.labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"{raw.origin}: labels are {labels.dtype} {list(labels.shape)}; wanted one whole number an item"
        )
    items = len(labels)
    if not items:
        raise DataError(f"{raw.origin} is empty: it has no nodes")
    if (below := np.flatnonzero(labels < UNLABELLED)).size:
        raise DataError(
            f"{raw.origin}: label {labels[below[0]]} of item {below[0]}; wanted 0 or more, or -1 for unknown"
        )
    highest = int(labels.max())
    if highest < 0:
        raise DataError(f"{raw.origin}: no node has a label, so there is nothing to learn")
    if highest == int(labels[labels >= 0].min()):
        which = raw.class_names[highest] if highest < len(raw.class_names) else highest
        raise DataError(
            f"{raw.origin}: every label is {which}, so there is nothing to learn; wanted two classes or more"
        )
    limit = classes or len(raw.class_names) or max(items, 2)
    if highest >= limit:
        known = f"there are {limit} classes" if limit != max(items, 2) else f"there are only {items} items"
        at = int(labels.argmax())
        raise DataError(f"{raw.origin}: label {highest} of item {at} is out of range: {known}, counted from 0")
    return classes or len(raw.class_names) or highest + 1


def check_features(raw: RawGraph) -> int:
    """How many nodes there are; an error where a feature is not a finite number."""
    table = raw.features
    values = table.values if isinstance(table, SparseTable) else table
    if values.dtype.kind not in "fiub":
        raise DataError(f"{raw.origin}: features are {values.dtype}; wanted numbers")
    if not isinstance(table, SparseTable) and table.ndim != 2:
        raise DataError(f"{raw.origin}: features are {list(table.shape)}; wanted [node, feature]")
    if isinstance(table, SparseTable):
        _check_sparse(raw.origin, table)
    for part in chunks(len(values), max(CHUNK // max(1, int(np.prod(values.shape[1:]))), 1)):
        broken = np.argwhere(~(np.abs(values[part]) <= LARGEST))  # so is NaN
        if len(broken):
            first = int(broken[0][0]) + part.start
            node = int(np.searchsorted(table.starts, first, "right")) - 1 if isinstance(table, SparseTable) else first
            value = values[(first, *broken[0][1:])]
            why = f", {TOO_LARGE}" if np.isfinite(value) else "; wanted finite numbers"
            raise DataError(f"{raw.origin}: a feature of node {node} is {value}{why}")
    return len(table)


def _check_sparse(origin: str, table: SparseTable) -> None:
    """Rows that begin where the one before ends, and entries in columns that are there."""
    starts = np.asarray(table.starts)
    if starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise DataError(f"{origin}: the starts of sparse rows (feat_indptr) must begin with 0 and never fall")
    for part in chunks(len(table.columns)):
        columns = table.columns[part]
        if len(outside := np.flatnonzero((columns < 0) | (columns >= table.width))):
            raise DataError(
                f"{origin}: a feature is in column {columns[outside[0]]}, but there are {table.width} columns, "
                "counted from 0"
            )


def check_edges(raw: RawGraph, nodes: int) -> None:
    """Every edge between nodes that are there, and both of one graph where there are several."""
    edges = raw.edges
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise DataError(f"{raw.origin}: edges are {list(edges.shape)}; wanted [2, edge]: sources, then targets")
    if edges.dtype.kind not in "iu":
        raise DataError(f"{raw.origin}: edges hold {edges.dtype}; wanted whole numbers")
    for part in chunks(edges.shape[1]):
        wrong = np.argwhere((edges[:, part] < 0) | (edges[:, part] >= nodes))
        if len(wrong):
            at = int(wrong[:, 1].min()) + part.start
            raise DataError(
                f"{raw.origin}: edge {at} goes from {edges[0, at]} to {edges[1, at]}, but nodes are 0 to {nodes - 1}"
            )
        if raw.graph is not None:
            _check_within(raw, raw.graph, part)
    if raw.edge_features is not None:
        _check_edge_features(raw, raw.edge_features)


def _check_edge_features(raw: RawGraph, features: Shaped[np.ndarray, "..."]) -> None:
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise DataError(
            f"{raw.origin}: edge features are {features.dtype} {list(features.shape)}; wanted numbers [edge, feature]"
        )
    if len(features) != raw.edges.shape[1]:
        raise DataError(f"{raw.origin}: there are {raw.edges.shape[1]} edges but edge features of {len(features)}")
    for part in chunks(len(features), max(CHUNK // max(1, features.shape[1]), 1)):
        if len(broken := np.argwhere(~(np.abs(features[part]) <= LARGEST))):
            at = int(broken[0][0]) + part.start
            value = features[at, broken[0][1]]
            why = f", {TOO_LARGE}" if np.isfinite(value) else "; wanted finite numbers"
            raise DataError(f"{raw.origin}: a feature of edge {at} is {value}{why}")


def _check_within(raw: RawGraph, graph: Integer[np.ndarray, " node"], part: slice) -> None:
    """No edge joins two graphs: what is pooled of one would depend on the other."""
    across = np.flatnonzero(graph[raw.edges[0, part]] != graph[raw.edges[1, part]])
    if len(across):
        at = int(across[0]) + part.start
        source, target = (int(node) for node in raw.edges[:, at])
        raise DataError(
            f"{raw.origin}: edge {at} joins two graphs: node {source} is of graph {graph[source]}, node {target} of "
            f"graph {graph[target]}; take it out, or correct `graph`, the number of every node's graph"
        )
