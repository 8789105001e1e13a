"""Several trained translation models used as one."""

from collections.abc import Sequence
from pathlib import Path

import torch

from jumok.errors import ArgumentError
from jumok.models.ensemble import ensemble
from jumok.tasks.task import read_trained
from jumok.tasks.translation import TRANSLATION
from jumok.tasks.translator import TrainedTranslator


def read_ensemble(folders: Sequence[str | Path], device: torch.device | str = "cpu") -> TrainedTranslator:
    """The models of these folders as one model; settings of decoding are those of the first.

    All must have the same vocabularies, as models trained on the same text with the same [tokenizer] have. Models that
    write the same pieces, some of them as edits, vote instead of adding up what they predict next.
    """
    if not folders:
        raise ArgumentError("no model folder is named; name one or more")
    members: list[TrainedTranslator] = [
        read_trained(folder, lambda tables: TRANSLATION, device)[1] for folder in folders
    ]
    first, *others = members
    for folder, member in zip(folders[1:], others, strict=True):
        if _pieces(member) != _pieces(first):
            raise ArgumentError(
                f"{folder} has another vocabulary than {folders[0]}; an ensemble needs models with the same one: train "
                "them from the same text with the same [tokenizer], and with different training.seed"
            )
    if any(TRANSLATION.difference(first, member) for member in others):
        return first._replace(voters=tuple(others))
    if not others:
        return first
    return first._replace(model=ensemble([member.model for member in members]).to(device).eval())


def _pieces(trained: TrainedTranslator) -> tuple[list[str], list[str]]:
    """What a model reads and what it writes, directly or as edits."""
    return list(trained.tokenizers.source.pieces), list(trained.tokenizers.target.letters.pieces)
