"""Fine-tuning of a translation model: what it takes from the model it starts from, and what may change."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from jumok.data import TokenizerPair
from jumok.data.filters import FilterConfig
from jumok.data.sentencepiece_model import read_tokenizer
from jumok.data.tokenizer import TokenizerConfig
from jumok.decoding.config import DecodingConfig
from jumok.errors import ConfigError
from jumok.model_folder import TOKENIZERS, WEIGHTS, read_folder
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.weights import check_fit, weights_of, with_new_rows
from jumok.settings import inherit, with_defaults
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.task import freeze, frozen_elsewhere, parts_with_weights

STARTED_FROM = ("tokenizer", "encoder", "decoder")
"""Sections of a recipe that a model trained further takes from the model it starts from."""
FIXED = ("width", "hidden", "layers", "embedding")
"""Sizes of the encoder and the decoder."""
KEEP_SHAPE = "leave out the settings of [encoder] and [decoder] that change the shape of the model, such as width"


def with_start(tables: Mapping[str, Any], tables_of: Callable[[str], dict[str, Any]]) -> Mapping[str, Any]:
    """With training.start_from, the tables of a recipe with the architecture and the tokenizer of that model.

    `tables_of` reads the recipe of a model folder.
    """
    folder = tables.get("training", {}).get("start_from")
    if not folder or not isinstance(folder, str):
        return tables
    folder = os.path.expanduser(os.path.expandvars(folder))
    start = tables_of(folder)
    for name in STARTED_FROM:
        kind, given = start[name]["kind"], tables.get(name, {}).get("kind")
        if given not in (None, kind):
            raise ConfigError(
                f'{name}.kind = "{given}", but the model in {folder}, which training starts from, has "{kind}"; '
                f"leave out [{name}]"
            )
        for size in FIXED:
            kept, given = start[name].get(size), tables.get(name, {}).get(size)
            if None not in (kept, given) and given != kept:
                fixed = f"{name}.{size} is fixed by training.start_from"
                raise ConfigError(f"{fixed}: it is {kept!r} in {folder}, not {given!r}; leave it out")
    own = {name: tables.get(name, {}) for name in STARTED_FROM}
    start["tokenizer"].pop("model", None)  # the tokenizer is in the folder, whatever became of that file
    if own["tokenizer"].get("model"):
        start["tokenizer"] = {}
    else:
        _check_kept(own["tokenizer"], start["tokenizer"], folder)
    further = {name: {**start[name], **own[name]} for name in STARTED_FROM}
    search = {name: value for name, value in start.get("decoding", {}).items() if name != "max_source"}
    decoding = tables.get("decoding", {})
    return {
        **tables,
        **further,
        "filter": _within_positions(tables.get("filter", {}), further),
        "decoding": inherit(DecodingConfig, decoding, search) if isinstance(decoding, Mapping) else decoding,
    }


def _check_kept(given: Mapping[str, Any], start: Mapping[str, Any], folder: str) -> None:
    """Refuse settings of a tokenizer that is reused; how texts are sampled in training may change."""
    for field in fields(TokenizerConfig):
        kept = start.get(field.name, field.default)
        if field.name in ("model", "sampling") or given.get(field.name, kept) in (kept, _as_list(kept)):
            continue
        raise ConfigError(
            f"tokenizer.{field.name} = {given[field.name]!r} has no effect, because training.start_from keeps the "
            f"tokenizer of {folder}, where it is {kept!r}; leave out one of them"
        )


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _within_positions(given: Any, further: Mapping[str, Any]) -> Any:
    """A section [filter] whose max_length defaults to the positions of the model to start from, less the end."""
    limits = [
        further[name]["longest"] - 1
        for name in ("encoder", "decoder")
        if further[name].get("positions") == "learned" and type(further[name].get("longest")) is int
    ]
    most = min([*limits, FilterConfig.max_length])
    return with_defaults(given, {"max_length": most} if most < FilterConfig.max_length else {})


def tokenizers_in(folder: str | Path) -> TokenizerPair:
    """Those of a model folder, whose weights are not read."""
    return read_folder(folder, lambda opened: TokenizerPair.of_files(opened.files(TOKENIZERS), opened.path))


def given_tokenizers(recipe: TranslationRecipe, start: TokenizerPair | None) -> TokenizerPair | None:
    """The recipe's own tokenizer for both sides, or those of the model to start from; None if there is neither."""
    folder, path = recipe.training.start_from, recipe.tokenizer.model
    if not path:
        return None if start is None else start.with_symbols(recipe.data.symbols())
    tokenizer = read_tokenizer(path, lowercase=recipe.tokenizer.lowercase)
    if start is not None:
        tokenizer = tokenizer.with_symbols(start.source.symbols)
        for side in start:
            if side.size != tokenizer.size:
                raise ConfigError(
                    f"the model in {folder} has {side.size:,} tokens, but tokenizer.model = {path} has "
                    f"{tokenizer.size:,}; leave out tokenizer.model, or train without training.start_from"
                )
    tokenizer = tokenizer.with_symbols(recipe.data.symbols())
    return TokenizerPair(tokenizer, tokenizer)


def check_start(
    recipe: TranslationRecipe,
    known: TokenizerPair,
    given: TokenizerPair,
    build: Callable[[TranslationRecipe, TokenizerPair], EncoderDecoder],
) -> None:
    """Refuse settings with which the weights of the model to start from, which has `known`, do not fit."""
    folder = recipe.training.start_from
    shapes = read_folder(folder, lambda opened: opened.header().shapes)
    with torch.device("meta"):  # shapes without contents
        model = build(recipe, given)
        start = {name: torch.empty(shape) for name, shape in shapes.items()}
    grown = with_new_rows(start, model, new_sizes(known, given))
    check_fit(weights_of(model), grown, Path(folder) / WEIGHTS, hint=KEEP_SHAPE)


def new_sizes(old: TokenizerPair, new: TokenizerPair) -> dict[int, int]:
    """The new sizes of vocabularies by the old ones."""
    return {side.size: mine.size for side, mine in zip(old, new, strict=True)}


def check_frozen(
    recipe: TranslationRecipe,
    model: EncoderDecoder,
    start: TokenizerPair | None,
    given: TokenizerPair | None,
    say: Callable[[str], None],
) -> None:
    """Refuse frozen parts that the model does not have, or that must learn a new symbol; tell of shared weights.

    Of the model, only the names of its parts matter.
    """
    freeze(model, recipe.training.freeze)
    if shared := frozen_elsewhere(model, recipe.training.freeze):
        named = json.dumps(recipe.training.freeze)
        say(f"training.freeze = {named} also freezes {' and '.join(shared)}: the weights are shared")
    if start is not None and given is not None and not model.encoder.embedding.table.requires_grad:
        _check_new_symbols(recipe, start, given, model)


def _check_new_symbols(
    recipe: TranslationRecipe, known: TokenizerPair, given: TokenizerPair, model: EncoderDecoder
) -> None:
    """Refuse to freeze the embedding of the source where a symbol is new, whose vector would stay random."""
    table, new = model.encoder.embedding.table, given.source.pieces[len(known.source.pieces) :]
    if not new:
        return
    names = [name for name, weight in model.named_parameters(remove_duplicate=False) if weight is table]
    sides = dict.fromkeys(name.split(".")[0] for name in names if name.startswith(recipe.training.freeze))
    others = [
        f"{side}.{name}"
        for side in sides
        for name in parts_with_weights(model.get_submodule(side))
        if all(weight is not table for weight in model.get_submodule(f"{side}.{name}").parameters())
    ]
    raise ConfigError(
        f"{new[0]} is new to the vocabulary of {recipe.training.start_from} and must be learned, but training.freeze = "
        f"{list(recipe.training.freeze)} freezes the embedding of the source; freeze {' and '.join(others)} instead"
    )
