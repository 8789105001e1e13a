"""Which engine a translator decodes with on a CPU: our own, CTranslate2, or our own with 8-bit weights."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.analysis.alignment.shortlist import MOST_PAIRS, ROUNDS, make_shortlist
from jumok.data import TokenizerPair
from jumok.data.dataset import Dataset
from jumok.data.prepare import train_stores
from jumok.decoding.config import DecodingConfig, Precision
from jumok.decoding.conversion_cache import FOLDER, exported, weights_digest
from jumok.decoding.ctranslate2_engine import SHORTLIST, CTranslate2Engine, can_search, is_installed, why_it_fails
from jumok.decoding.ctranslate2_model import why_not, write_model
from jumok.decoding.int8_rnn import can_quantise, quantised, with_vocabulary, works_here
from jumok.decoding.shortlist import FILE, Shortlist, read_shortlist
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.layers.recorded import is_recorded
from jumok.model_folder import BUNDLED
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.ensemble import EnsembleEncoder
from jumok.models.rnn.decoder import RnnDecoder
from jumok.progress import ProgressBars
from jumok.screen import to_screen
from jumok.tasks.recipes import TranslationRecipe

TRAINING_TEXT = "data"
"""The folder of the prepared training text in a model folder."""
LARGE = 100_000_000
"""Weights whose export takes a second or more."""


class Refused(NamedTuple):
    """Why an engine does not run a model."""

    reason: str


class CpuEngines:
    """The engines of one loaded model, each made when it is first needed and again when its weights have changed."""

    def __init__(
        self, model: EncoderDecoder, tokenizers: TokenizerPair, recipe: TranslationRecipe, folder: Path | None
    ) -> None:
        self.model, self.tokenizers, self.recipe = model, tokenizers, recipe
        self.folder = None if folder is None or folder.resolve() == BUNDLED.resolve() else folder
        self.is_loaded = folder is not None
        self.made: dict[Precision, tuple[int, CTranslate2Engine | Refused]] = {}
        self.small: tuple[int, RnnDecoder, Shortlist | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Engines stay in the process that made them; a copy makes its own."""
        return {**self.__dict__, "made": {}, "small": None}

    def ctranslate2(self, config: DecodingConfig, n_best: int, *, watched: bool) -> CTranslate2Engine | None:
        """CTranslate2, if it was asked for or is the better choice, and finds what our own search would find.

        An ArgumentError if it was asked for and cannot run the model at all.
        """
        asked = config.engine == "ctranslate2"
        if config.engine == "jumok" or not (asked or self.is_loaded) or config.precision in ("fp16", "bf16"):
            return None
        is_ours = watched or not can_search(config, n_best) or is_recorded(self.model)
        if is_ours and not asked:
            return None
        reason = self._why_not()
        if reason is not None and asked:
            raise ArgumentError(f'engine = "ctranslate2", but {reason}; use engine = "auto"')
        if is_ours or reason is not None:
            return None
        engine = self._engine("int8" if config.precision == "int8" else "float32")
        if not isinstance(engine, Refused):
            return engine
        if asked:
            raise ArgumentError(f'{engine.reason}; use engine = "jumok"')
        return None

    def recurrent(
        self, config: DecodingConfig, sources: Sequence[Sequence[int]], *, watched: bool
    ) -> tuple[RnnDecoder, Int[Tensor, " pieces"] | None] | None:
        """A recurrent decoder in int8, and the tokens it writes, if not all; None if our own is to run as it is."""
        weight = next(self.model.parameters())
        if config.precision != "int8" or watched or weight.device.type != "cpu" or weight.dtype != torch.float32:
            return None
        if not can_quantise(self.model) or is_recorded(self.model) or not works_here():
            return None
        changes = self._changes()
        if self.small is None or self.small[0] != changes:
            self.small = changes, quantised(cast(RnnDecoder, self.model.decoder)), self.shortlist()
        _, decoder, shortlist = self.small
        if shortlist is None or not all(map(shortlist.covers, sources)):
            return decoder, None
        kept = shortlist.ids(sources)
        return with_vocabulary(decoder, kept), kept

    def _why_not(self) -> str | None:
        if not is_installed():
            return "CTranslate2 is not installed (in the folder of jumok: pip install '.[fast]')"
        weight = next(self.model.parameters())
        if weight.device.type != "cpu":
            return f"the model is on {weight.device.type}, and only a CPU needs another engine"
        if weight.dtype != torch.float32:
            return f"the weights are {weight.dtype}, not float32"
        if isinstance(self.model.encoder, EnsembleEncoder):
            return "ensembles run on jumok's own engine"
        if (reason := why_not(self.model)) is not None:
            return reason
        return self._repeated_piece

    @cached_property
    def _repeated_piece(self) -> str | None:
        """The engine tells tokens apart by their pieces."""
        for name, tokenizer in zip(("source", "target"), self.tokenizers, strict=True):
            if len(set(tokenizer.pieces)) != tokenizer.size:
                return f"the tokenizer of the {name} has the same piece twice"
        return None

    def _engine(self, precision: Precision) -> CTranslate2Engine | Refused:
        changes = self._changes()
        if precision not in self.made or self.made[precision][0] != changes:
            self.made[precision] = changes, self._make(precision)
        return self.made[precision][1]

    def _changes(self) -> int:
        """Grows whenever a weight is changed in place."""
        return sum(weight._version for weight in self.model.parameters())

    def _make(self, precision: Precision) -> CTranslate2Engine | Refused:
        shortlist = self.shortlist() if precision == "int8" else None
        if shortlist is not None and not _is_between(shortlist, self.tokenizers):
            shortlist = None
        lines = "" if shortlist is None else shortlist.text(self.tokenizers)
        place = None if self.folder is None else self.folder / FOLDER / precision
        if sum(weight.numel() for weight in self.model.parameters()) > LARGE:
            to_screen(f"preparing the model for CTranslate2 ({precision})")

        def write(folder: Path) -> None:
            write_model(self.model, self.tokenizers, folder, quantization=precision, never=())
            if lines:
                (folder / SHORTLIST).write_text(lines, encoding="utf-8")
            if (reason := why_it_fails(folder, precision, self.tokenizers.source.pieces[-1])) is not None:
                raise JumokError(reason)

        identity = " ".join([weights_digest(self.model), str(hash_of(lines)), *self._pieces_digest()])
        try:
            with exported(place, identity, write) as folder:
                threads, sees_end = torch.get_num_threads(), cast(Any, self.recipe.encoder).sees_end
                return CTranslate2Engine(folder, precision, self.tokenizers, threads, shortlist, sees_end=sees_end)
        except JumokError as error:
            return Refused(str(error))

    def _pieces_digest(self) -> list[str]:
        return [hash_of("\n".join(side.pieces)) for side in self.tokenizers]

    def shortlist(self) -> Shortlist | None:
        """The shortlist in the model's folder, made now if the training text is still there.

        The text of fine-tuning lacks words that the model learned before, so its shortlist is joined to that of the
        model it started from; without that one there is none.
        """
        if self.folder is None:
            return None
        path, texts = self.folder / FILE, train_stores(self.folder / TRAINING_TEXT, self.recipe.data)
        if (known := read_shortlist(path, self.tokenizers)) is not None or not all(text.exists() for text in texts):
            return known
        start_from, started = self.recipe.training.start_from, None
        if start_from and (started := read_shortlist(Path(start_from) / FILE, self.tokenizers)) is None:
            return None
        to_screen(f"creating the shortlist for int8 from {texts[0].parent} (only once)")
        try:
            shortlist = shortlist_of_training([Dataset(text) for text in texts], self.tokenizers)
        except (DataError, ValueError):
            return None  # not the text of this model, or damaged: the engine considers every word
        if started is not None:
            shortlist = shortlist | started
        with suppress(DataError):  # a folder that cannot be written to
            shortlist.write(path, self.tokenizers)
        return shortlist


def shortlist_of_training(datasets: Sequence[Dataset], tokenizers: TokenizerPair) -> Shortlist:
    """The shortlist of a prepared training text, with a progress bar."""
    every = max(1, sum(map(len, datasets)) // MOST_PAIRS)
    rows = [dataset[row] for dataset in datasets for row in range(0, len(dataset), every)]
    sources, targets = ([row[side][1:-1].tolist() for row in rows] for side in (0, 1))
    for side, tokenizer in ((sources, tokenizers.source), (targets, tokenizers.target)):
        if max((max(ids, default=0) for ids in side), default=0) >= tokenizer.size:
            raise DataError(f"{datasets[0].path} is of another vocabulary")
    return shortlist_of_tokens(sources, targets, tokenizers)


def shortlist_of_tokens(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], tokenizers: TokenizerPair, *, least: int = 1
) -> Shortlist:
    """The shortlist of a text in tokens, with a progress bar; `least` as in `make_shortlist`."""
    with ProgressBars() as bars:
        tell: Callable[[int], None] = lambda done: bars.show_share("aligning", done / sum(ROUNDS))  # noqa: E731
        return make_shortlist(sources, targets, shared=tokenizers.shared, least=least, tell=tell)


def _is_between(shortlist: Shortlist, tokenizers: TokenizerPair) -> bool:
    """Whether it was made from text between these languages, in multilingual models."""
    source, target = (set(tokenizer.language_ids) for tokenizer in tokenizers)
    return source <= shortlist.likely.keys() and target <= shortlist.always


def hash_of(text: str) -> str:
    """A short name for a text."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]
