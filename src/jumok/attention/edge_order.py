"""The edges of a graph in the two orders that fused graph attention reads them: by target, and by source."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.errors import ArgumentError


class Adjacency(NamedTuple):
    """The edges at every node, node after node (compressed rows)."""

    starts: Int[Tensor, " node_and_one"]
    """Those of node n are starts[n] to starts[n + 1]."""
    others: Int[Tensor, " edge"]
    """The nodes at their other ends."""
    edges: Int[Tensor, " edge"]
    """Which edges they are, counted in the order they were given."""


class SortedEdges(NamedTuple):
    """A graph's edges, sorted once for any number of layers and steps."""

    edge_index: Int[Tensor, "2 edge"]
    into: Adjacency
    """By target."""
    out_of: Adjacency
    """By source."""

    @classmethod
    def of(cls, edge_index: Int[Tensor, "2 edge"], nodes: int) -> "SortedEdges":
        """Sort the edges of a graph with so many nodes; those into one node stay in the order they were given."""
        check_range(edge_index, nodes)
        return sort_edges(edge_index, nodes)

    @property
    def nodes(self) -> int:
        """Nodes of the graph."""
        return len(self.into.starts) - 1

    def to(self, device: torch.device | str) -> "SortedEdges":
        """The same on another device."""
        into, out_of = (Adjacency(*(part.to(device) for part in order)) for order in (self.into, self.out_of))
        return SortedEdges(self.edge_index.to(device), into, out_of)


def sort_edges(edge_index: Int[Tensor, "2 edge"], nodes: int) -> SortedEdges:
    """The same as `SortedEdges.of` for edges whose numbers are known to be those of nodes."""
    if edge_index.shape[1] + nodes >= 2**31:
        raise ArgumentError(f"edge_index has {edge_index.shape[1]} edges; the kernels count up to 2,147,483,647")
    source, target = edge_index
    return SortedEdges(edge_index, _adjacency(target, source, nodes), _adjacency(source, target, nodes))


def _adjacency(at: Tensor, others: Tensor, nodes: int) -> Adjacency:
    sorted_at, order = torch.sort(at.int(), stable=True)
    numbers = torch.arange(nodes + 1, device=at.device, dtype=torch.int32)
    return Adjacency(torch.searchsorted(sorted_at, numbers, out_int32=True), others[order].int(), order.int())


def check_range(edge_index: Int[Tensor, "2 edge"], nodes: int) -> None:
    """Raise an ArgumentError that names the first edge whose end is no node."""
    # Looking costs a wait for the GPU, which neither a compiler nor a graph capture allows; elsewhere it is far
    # cheaper than the device-side assertion that would end the process.
    capturing = edge_index.is_cuda and torch.cuda.is_current_stream_capturing()
    if edge_index.numel() == 0 or torch.compiler.is_compiling() or capturing or edge_index.is_meta:
        return
    lowest, highest = (bound.item() for bound in edge_index.aminmax())
    if lowest < 0 or highest >= nodes:
        row, column = ((edge_index < 0) | (edge_index >= nodes)).nonzero()[0].tolist()
        there_are = f"x has {nodes} nodes, 0 to {nodes - 1}" if nodes else "x has no nodes"
        raise ArgumentError(f"edge_index[{row}, {column}] = {edge_index[row, column]}, but {there_are}")
