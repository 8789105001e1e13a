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

    All must have the same vocabularies, as models trained on the same text with the same [tokenizer] have.
    """
    if not folders:
        raise ArgumentError("no model folder is named; name one or more")
    members: list[TrainedTranslator] = [
        read_trained(folder, lambda tables: TRANSLATION, device)[1] for folder in folders
    ]
    first = members[0]
    for folder, member in zip(folders[1:], members[1:], strict=True):
        if difference := TRANSLATION.difference(first, member):
            raise ArgumentError(
                f"{folder} {difference} {folders[0]}; an ensemble needs models with the same vocabulary: train them "
                "from the same text with the same [tokenizer], and with different training.seed"
            )
    if len(members) == 1:
        return first
    return first._replace(model=ensemble([member.model for member in members]).to(device).eval())
