"""Graphs in a folder of arrays: sorted in bounded memory, and opened without being read."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jumok.data.arrays import open_npy
from jumok.data.fingerprint import (
    SourceFingerprint,
    compare_sources,
    file_state,
    fingerprint_of,
    mismatch_message,
    missing_files_message,
    record_sources,
)
from jumok.errors import ConfigError, DataError
from jumok.files import atomic_write, parse_json
from jumok.graphs.files import files_of, read_graph
from jumok.graphs.graph import (
    SPLITS,
    Graph,
    GraphConfig,
    RawGraph,
    SparseTable,
    Table,
    check_graph,
    check_split,
    chunks,
)

FACTS = "graph.json"
FORMAT = 1


def prepare_graph(
    folder: str | Path,
    config: GraphConfig,
    *,
    resumed: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Graph:
    """Read, check and sort the graph of a recipe into `folder`, unless it is there and up to date.

    A `resumed` run needs the graph it began with; a ConfigError says why it is another one.
    """
    folder, inputs = Path(folder), graph_fingerprint(config)
    known, graph = compare_sources(folder, inputs), open_graph(folder)
    if graph is not None and graph.fingerprint == known.fingerprint:
        if known.missing:
            say(missing_files_message(known.missing, folder))
        return graph
    if resumed and graph is not None:
        raise ConfigError(mismatch_message(folder, inputs, known, "graph"))
    say("sorting the graph")
    raw = read_graph(config)
    record_sources(folder, inputs, known.fingerprint)
    return write_graph(folder, raw, config, fingerprint=known.fingerprint)


def graph_fingerprint(config: GraphConfig) -> SourceFingerprint:
    """The fingerprint of the sources of a graph."""
    files, places = files_of(config), ("path", "nodes", "edges")
    settings = {key: value for key, value in asdict(config).items() if key not in places}
    states = [file_state(path) for path in files.values()]
    return SourceFingerprint(fingerprint_of(asdict(config), states, FORMAT), fingerprint_of(settings, FORMAT), files)


def write_graph(folder: Path, raw: RawGraph, config: GraphConfig, *, fingerprint: str = "") -> Graph:
    """Check a graph and write it into `folder`; graph.json comes last, so that a folder with it is complete."""
    nodes, classes = check_graph(raw, config.classes)
    raw = raw if raw.masks else replace(raw, masks=random_split(raw, config))
    check_split(raw)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FACTS).unlink(missing_ok=True)
    _write_edges(folder, raw, nodes, undirected=config.undirected)
    _write_features(folder, raw.features, normalise=config.normalise)
    _save(folder, "labels", np.asarray(raw.labels, np.int64))
    for name in SPLITS:
        _save(folder, name, np.flatnonzero(raw.masks.get(name, np.zeros(0, bool))).astype(np.int64))
    if raw.graph is not None:
        _save(folder, "graph", np.asarray(raw.graph, np.int64))
    facts = {
        "format": FORMAT,
        "classes": classes,
        "fingerprint": fingerprint,
        "sparse": isinstance(raw.features, SparseTable),
        "width": raw.features.width if isinstance(raw.features, SparseTable) else int(raw.features.shape[1]),
        "edge_features": raw.edge_features is not None,
        "names": list(raw.names),
        "class_names": list(raw.class_names),
    }
    with atomic_write(folder / FACTS) as file:
        file.write(json.dumps(facts, ensure_ascii=False).encode())
    written = open_graph(folder)
    assert written is not None
    return written


def open_graph(folder: str | Path) -> Graph | None:
    """The graph in a folder that `write_graph` made; None if there is none."""
    folder = Path(folder)
    try:
        facts = parse_json((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        return None
    try:
        features: Table = _sparse(folder, facts["width"]) if facts["sparse"] else _open(folder, "features")
        graph = Graph(
            **{name: _open(folder, name) for name in ("starts", "sources", "labels", *SPLITS)},
            features=features,
            classes=facts["classes"],
            edge_features=_open(folder, "edge_features") if facts["edge_features"] else None,
            graph=_open(folder, "graph") if (folder / "graph.npy").exists() else None,
            names=facts["names"],
            class_names=facts["class_names"],
            fingerprint=facts["fingerprint"],
        )
        _check_shapes(graph)
        return graph
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{folder} is damaged ({error}); delete it, and jumok writes it again") from None


def _check_shapes(graph: Graph) -> None:
    """A ValueError where the arrays of a folder cannot be of one graph."""
    table = graph.features
    plain = [graph.starts, graph.sources, graph.labels, *(getattr(graph, name) for name in SPLITS)]
    if isinstance(table, SparseTable):
        plain += [table.starts, table.columns]
    if any(array.ndim != 1 or array.dtype != np.int64 for array in plain) or len(graph.starts) < 2:
        raise ValueError("an array is not a list of whole numbers")
    if int(graph.starts[-1]) != len(graph.sources) or len(table) != graph.nodes:
        raise ValueError("its arrays are of different graphs")
    if isinstance(table, SparseTable) and not int(table.starts[-1]) == len(table.columns) == len(table.values):
        raise ValueError("its features are of different graphs")


def random_split(raw: RawGraph, config: GraphConfig) -> dict[str, Any]:
    """Masks over the labelled items in the shares of the config; the same for the same seed."""
    known = np.flatnonzero(np.asarray(raw.labels) >= 0)
    order = np.random.default_rng([config.seed, 1]).permutation(known)
    bounds = np.cumsum([0, *(round(share * len(known)) for share in config.shares)])
    bounds[1] = max(bounds[1], 1)
    masks = {}
    for name, start, end in zip(SPLITS, bounds, bounds[1:], strict=False):
        masks[name] = np.zeros(len(raw.labels), bool)
        masks[name][order[start:end]] = True
    return masks


def _write_edges(folder: Path, raw: RawGraph, nodes: int, *, undirected: bool) -> None:
    """Sort edges by target in two passes, counting and placing; then drop those that are listed twice."""
    ways = [(0, 1), (1, 0)] if undirected else [(0, 1)]
    counts = np.zeros(nodes + 1, np.int64)
    for part in chunks(raw.edges.shape[1]):
        for _, to in ways:
            counts[1:] += np.bincount(raw.edges[to, part].astype(np.int64), minlength=nodes)
    starts = counts.cumsum()
    placed = _new(folder, "sources", (int(starts[-1]),), np.int64)
    features = raw.edge_features
    carried = None if features is None else _new(folder, "edge_features", (len(placed), features.shape[1]), np.float32)
    free = starts[:-1].copy()
    for part in chunks(raw.edges.shape[1]):
        for from_, to in ways:
            target = np.asarray(raw.edges[to, part], np.int64)
            order = np.argsort(target, kind="stable")
            row = target[order]
            rank = np.arange(len(row)) - np.searchsorted(row, row)  # how many of the same target came before
            placed[free[row] + rank] = np.asarray(raw.edges[from_, part])[order]
            if carried is not None and features is not None:
                carried[free[row] + rank] = features[part][order]
            free += np.bincount(row, minlength=nodes)
    if carried is None:
        starts, placed = _without_repeats(folder, starts, placed)
    else:
        carried.flush()
    placed.flush()
    _save(folder, "starts", starts)


def _without_repeats(folder: Path, starts: np.ndarray, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every source once for each target, in order; in place, as what is kept never comes after where it was."""
    kept, counts, nodes = 0, np.zeros(len(starts), np.int64), len(starts) - 1
    bounds = np.unique([0, nodes, *np.searchsorted(starts, range(0, int(starts[-1]), 2**22), "left")])
    for first, last in pairwise(bounds.tolist()):
        rows = np.repeat(np.arange(first, last), np.diff(starts[first : last + 1]))
        keys = np.unique(rows * nodes + sources[starts[first] : starts[last]])
        counts[1:] += np.bincount(keys // nodes, minlength=nodes)
        sources[kept : kept + len(keys)] = keys % nodes
        kept += len(keys)
    if kept < len(sources):
        shorter = _new(folder, "kept", (kept,), np.int64)
        for part in chunks(kept):
            shorter[part] = sources[part]
        shorter.flush()
        (folder / "kept.npy").replace(folder / "sources.npy")
        sources = shorter
    return counts.cumsum(), sources


def _write_features(folder: Path, table: Table, *, normalise: bool) -> None:
    if isinstance(table, SparseTable):
        values = np.asarray(table.values, np.float32)
        if normalise and len(values):
            rows = np.repeat(np.arange(len(table)), np.diff(table.starts))
            sums = np.bincount(rows, weights=values, minlength=len(table))
            values = np.asarray(values / np.where(sums == 0, 1, sums)[rows], np.float32)
        _save(folder, "feature_starts", np.asarray(table.starts, np.int64))
        _save(folder, "columns", np.asarray(table.columns, np.int64))
        _save(folder, "values", values)
        return
    written = _new(folder, "features", table.shape, np.float32)
    for part in chunks(len(table), max(2**24 // max(table.shape[1], 1), 1)):
        rows = np.asarray(table[part], np.float32)
        sums = rows.sum(1, keepdims=True)
        written[part] = rows / np.where(sums == 0, 1, sums) if normalise else rows
    if isinstance(written, np.memmap):
        written.flush()


def _sparse(folder: Path, width: int) -> SparseTable:
    starts, columns, values = (_open(folder, name) for name in ("feature_starts", "columns", "values"))
    return SparseTable(starts=starts, columns=columns, values=values, width=width)


def _new(folder: Path, name: str, shape: tuple[int, ...], dtype: type) -> Any:
    if not np.prod(shape):  # an empty file cannot be mapped
        _save(folder, name, np.zeros(shape, dtype))
        return _Empty(shape, dtype)
    return np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)


class _Empty(np.ndarray):
    """An array without entries, which has nothing to flush."""

    def flush(self) -> None:
        """Nothing to do."""


def _save(folder: Path, name: str, array: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", array)


def _open(folder: Path, name: str) -> Any:
    return open_npy(folder / f"{name}.npy")
