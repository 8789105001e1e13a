"""Attention of one decoding step over preallocated tensors, so that a CUDA graph can record it.

Keys and values of earlier steps stay where they were written. When a beam continues some hypotheses and drops others,
only the table `ancestry` changes: ancestry[n, b, s] is the hypothesis of step s that hypothesis b of sentence n
continues.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import attend
from jumok.attention.backends import why_no_triton
from jumok.layers.multi_head import share_heads


def self_attention_step(
    query: Float[Tensor, "row head dim"],
    key: Float[Tensor, "row shared dim"],
    value: Float[Tensor, "row shared dim"],
    keys: Float[Tensor, "sentence capacity beam shared dim"],
    values: Float[Tensor, "sentence capacity beam shared dim"],
    ancestry: Int[Tensor, "sentence beam capacity"],
    positions: Int[Tensor, " sentence"],
) -> Float[Tensor, "row width"]:
    """Write key and value of every hypothesis to the caches, and attend to them and to those of its ancestors.

    A row is a hypothesis of a sentence; `positions` is the number of the step of each sentence.
    """
    if why_no_triton(query.device, query.dtype) is None:
        from jumok.layers.gpu import steps

        return steps.self_attention_step(query, key, value, keys, values, ancestry, positions)
    sentences, capacity, beam = keys.shape[:3]
    sentence = torch.arange(sentences, device=query.device)
    for cache, new in ((keys, key), (values, value)):
        cache[sentence, positions.long()] = new.reshape(sentences, beam, *new.shape[1:])
    sentence = sentence[:, None, None]
    step_ = torch.arange(capacity, device=query.device)
    past = (step_ <= positions[:, None]).repeat_interleave(beam, 0)
    # Entries beyond the newest step were never written.
    ancestor = ancestry.long().masked_fill(step_ > positions[:, None, None], 0)
    own, held = (
        cache[sentence, step_, ancestor].flatten(0, 1).transpose(1, 2).masked_fill(~past[:, None, :, None], 0)
        for cache in (keys, values)
    )
    heads = query.shape[1]
    attended = attend(query[:, :, None], share_heads(own, heads), share_heads(held, heads), visible=past[:, None, None])
    return attended.values.flatten(1)


def cross_attention_step(
    query: Float[Tensor, "row head dim"],
    keys: Float[Tensor, "sentence source shared dim"],
    values: Float[Tensor, "sentence source shared dim"],
    visible: Bool[Tensor, "sentence source"],
    lengths: Int[Tensor, " sentence"],
) -> Float[Tensor, "row width"]:
    """Attend from every hypothesis to the source of its sentence, of whose first `lengths` items some are visible."""
    if why_no_triton(query.device, query.dtype) is None:
        from jumok.layers.gpu import steps

        return steps.cross_attention_step(query, keys, values, visible, lengths)
    rows, heads, dim = query.shape
    sentences = len(visible)
    queries = query.view(sentences, -1, heads, dim).transpose(1, 2)
    own, held = (share_heads(part.transpose(1, 2), heads) for part in (keys, values))
    attended = attend(queries, own, held, visible=visible[:, None, None])
    return attended.values.transpose(1, 2).reshape(rows, heads * dim)


def update_ancestry(
    ancestry: Int[Tensor, "sentence beam capacity"],
    parents: Int[Tensor, "sentence beam"],
    positions: Int[Tensor, " sentence"],
) -> None:
    """Hypothesis b of sentence n continues parents[n, b]: it has the same ancestors, and is its own at this step."""
    if why_no_triton(ancestry.device, torch.float32) is None:
        from jumok.layers.gpu import steps

        steps.update_ancestry(ancestry, parents, positions)
        return
    beam, capacity = ancestry.shape[1:]
    ancestry.copy_(ancestry.gather(1, parents[:, :, None].expand(-1, -1, capacity)))
    itself = torch.arange(beam, dtype=ancestry.dtype, device=ancestry.device)[None, :, None]
    slots = positions[:, None, None].expand(-1, beam, 1)
    ancestry.scatter_(2, slots, itself.expand(len(ancestry), -1, 1))
