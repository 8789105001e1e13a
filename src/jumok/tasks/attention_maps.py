"""Attention maps of a translation, a caption or a node, ready to be printed and saved."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jumok.analysis.maps.attention_map import AttentionMap, resolve_index
from jumok.graphs.map import find_node
from jumok.graphs.network import GraphAttentionNetwork
from jumok.tasks.captioning import Captioner, Picture
from jumok.tasks.node_classification import NodeClassifier
from jumok.tasks.translator import Translator

LONGEST_TITLE = 90


@dataclass(frozen=True)
class MappedOutput:
    """An output of a model and its attention maps: one, or one for each part of a text that was split."""

    facts: dict[str, Any]
    """The input, the output as "text", and the score if the model chose the output."""
    maps: list[AttentionMap]
    warnings: tuple[str, ...] = ()

    def select(self, layers: Sequence[int] | None, heads: Sequence[int] | None) -> "MappedOutput":
        """The same with these layers and heads of the maps; None or an empty list keeps all."""
        layer, head = list(layers or ()) or None, list(heads or ()) or None
        return replace(self, maps=[shown.select(layer=layer, head=head) for shown in self.maps])

    def as_plain(self) -> dict[str, Any]:
        """The values for JSON: `attention` is the map, or `parts` are the maps of several parts."""
        maps = [shown.as_plain() for shown in self.maps]
        return self.facts | ({"attention": maps[0]} if len(maps) == 1 else {"parts": maps})


def map_translation(
    translator: Translator,
    text: str,
    target: str | None = None,
    *,
    beam: int | None = None,
    max_source: int | None = None,
    words: bool = True,
) -> MappedOutput:
    """The model's own translation, or `target`, and its maps."""
    if target is not None:
        shown = translator.attention(text, target, words=words, max_source=max_source)
        return MappedOutput({"source": text, "text": target}, [_titled(shown, text, target)])
    (translation,) = translator.translate([text], beam=beam, max_source=max_source)
    facts = {"source": text, "text": translation.text, "score": round(translation.score, 4)}
    decode = translator.trained.tokenizers.target.decode
    maps = [
        _titled(shown, source.strip(), decode(ids))
        for shown, (source, ids) in zip(translation.attention_maps(words=words), translation.pieces, strict=True)
    ]
    return MappedOutput(facts, maps, tuple(translation.warnings().values()))


def _titled(shown: AttentionMap, source: str, target: str) -> AttentionMap:
    title = f"{source} → {target}"
    return replace(shown, title=title if len(title) <= LONGEST_TITLE else "")


def map_caption(
    captioner: Captioner, image: Picture, target: str | None = None, *, beam: int | None = None, words: bool = True
) -> MappedOutput:
    """The model's own caption, or `target`, and its map."""
    name = "" if not isinstance(image, str | Path) else str(image)
    if target is not None:
        return MappedOutput({"image": name, "text": target}, [captioner.attention(image, target, words=words)])
    (caption,) = captioner.caption([image], beam=beam)
    facts = {"image": name, "text": caption.text, "score": round(caption.score, 4)}
    return MappedOutput(facts, [caption.attention(words=words)])


def map_node(
    folder: str | Path, node: str, *, layers: Sequence[int] = (), heads: Sequence[int] = (), device: str = "auto"
) -> MappedOutput:
    """The attention around a node of a graph model's graph, in all layers and heads or in the given ones."""
    classifier = NodeClassifier.load(folder, device=device)
    number = find_node(classifier.graph, node)
    own_heads = _own_heads(classifier.trained.model, layers, heads)
    shown = classifier.attention(node).select(layer=list(layers) or None, head=own_heads or None)
    return MappedOutput({"node": number, "text": shown.title}, [shown])


def _own_heads(model: GraphAttentionNetwork, layers: Sequence[int], heads: Sequence[int]) -> list[int]:
    """The heads counted from 0; an error if one of the layers lacks them, as the map has an average in their place."""
    counts = [int(layer.heads) for layer in model.layers]  # type: ignore[arg-type]
    chosen = [resolve_index(layer, len(counts), "layer") for layer in layers] or [len(counts) - 1]
    fewest = min(counts[layer] for layer in chosen)
    return [resolve_index(head, fewest, f"layer {chosen[-1]}, head") for head in heads]
