"""The models a server has: loaded once, known by name."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch

from jumok.analysis.alignment.attention import Aligner
from jumok.analysis.alignment.choice import choose_head, default_head, guided_head
from jumok.analysis.alignment.word_attention import AlignmentHead, alignment_heads
from jumok.data import BOS, EOS, DataConfig, Pair
from jumok.model_folder import Trained
from jumok.serve.problems import UnknownModelError
from jumok.tasks.translator import Translator

EXAMPLES = "examples.txt"
"""A file of a model folder with texts to try, one a line."""
MOST_EXAMPLES, LONGEST_EXAMPLE = 8, 50
SAMPLE = 200
"""Pairs of a built-in corpus to draw examples from, and to choose the attention that aligns on."""
NUMBER, WORD, LIST = re.compile(r"\d+"), re.compile(r"[^\W\d]+(?: [^\W\d]+)*"), re.compile(r"(a, ?)+")


class Served:
    """A translator with a name, and what a visitor may want to know of it."""

    def __init__(self, name: str, translator: Translator, examples: Sequence[str] = ()) -> None:
        self.name, self.translator, self.examples = name, translator, tuple(examples)
        self.layers, self.heads = _attention_shape(translator)

    @classmethod
    def load(cls, name: str, folder: str | Path, *, device: str = "auto") -> "Served":
        """Load a model folder."""
        translator = Translator.load(folder, device=device)
        return cls(name, translator, _examples(Path(folder), translator))

    @property
    def parameters(self) -> int:
        """How many numbers it learnt."""
        return sum(parameter.numel() for parameter in self.translator.trained.model.parameters())

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """Of source and target, where the recipe tells: by its locales, or by file names such as train.ko."""
        data = self.translator.trained.recipe.data
        if data.corpus:
            source, target = data.locales
            both = dict.fromkeys(("cldr", "phrases"), (source, target))
            return {**both, "dates": (source, None)}.get(data.corpus, (None, None))
        return _language(data.source), _language(data.target)

    @cached_property
    def aligner(self) -> Aligner:
        """With the part of its attention that aligns; found when it is first asked for, which takes a moment."""
        trained = self.translator.trained
        head = guided_head(trained.model, trained.recipe.training) or _chosen_head(trained)
        return Aligner(trained.model, trained.tokenizers, head)

    def aligner_with(self, layer: int | None, head: int | None) -> Aligner:
        """The same with the layer and head asked for, if any are; of a layer alone, with the mean of its heads."""
        look = self.aligner.head
        if layer is None and head is None:
            return self.aligner
        asked = look._replace(layer=look.layer if layer is None else layer, head=head, informed=False, null=False)
        return self.aligner._replace(head=asked)

    def count(self, text: str) -> int:
        """The tokens of a source text."""
        return len(self.translator.trained.tokenizers.source.encode(text)) - 2


def load_models(folders: Mapping[str, str | Path], *, device: str = "auto") -> dict[str, Served]:
    """All of them, the first one being the one that answers when none is named."""
    return {name: Served.load(name, folder, device=device) for name, folder in folders.items()}


def find_model(models: Mapping[str, Served], name: str | None) -> Served:
    """The model of that name; the first one for None."""
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise UnknownModelError(f"there is no model {name[:80]!r}; there are: {', '.join(models)}")
    return models[name]


@torch.no_grad()
def _attention_shape(translator: Translator) -> tuple[int, int]:
    """Layers that look at the source and heads in each; zeros for a decoder with a fixed context."""
    model = translator.trained.model
    ids = torch.tensor([[EOS]], device=next(model.parameters()).device)
    looked = model(ids, torch.ones_like(ids, dtype=torch.bool), torch.full_like(ids, BOS)).attention
    return len(looked), looked[0]().shape[1] if looked else 0


def _examples(folder: Path, translator: Translator) -> list[str]:
    """From the folder's own file; else sources of the built-in corpus it learnt from, which it never saw."""
    path = folder / EXAMPLES
    if path.is_file():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][:MOST_EXAMPLES]
    return _varied(translator.trained.recipe.data)


def _chosen_head(trained: Trained) -> AlignmentHead:
    """Chosen as `jumok align` does on the built-in corpus the model learnt from; else the usual one."""
    looks, sample = alignment_heads(trained.model), _corpus_sample(trained)
    if not sample:
        return default_head(looks, recurrent=trained.recipe.decoder.kind == "rnn")
    return choose_head(trained.model, trained.tokenizers, sample, looks)


def _corpus_sample(trained: Trained) -> list[Pair]:
    """Pairs of the built-in corpus a model learnt from, which it never saw; none for a model of other text."""
    from jumok.data import corpus_pairs

    data = trained.recipe.data
    if not data.corpus:
        return []
    source, target = data.locales
    return list(corpus_pairs(data.corpus, SAMPLE, split="valid", source=source, target=target, longest=data.longest))


def _varied(data: DataConfig) -> list[str]:
    """Short texts that the model never saw: one of every kind of value its corpus has, then others of other forms."""
    from jumok.data.corpora.built_in import corpus_values

    if not data.corpus:
        return []
    source, target = data.locales
    values = corpus_values(data.corpus, SAMPLE, split="test", source=source, target=target, longest=data.longest)
    short = [(value.kind, pair.source) for value, pair in values if len(pair.source) < LONGEST_EXAMPLE]
    of_kinds = dict(reversed(short)).values()  # the first of each kind
    of_forms = {_form(text): text for _, text in reversed(short)}.values()
    return list(dict.fromkeys([*of_kinds, *of_forms]))[:MOST_EXAMPLES]


def _form(text: str) -> str:
    """Words, numbers and signs in their order; lists are all alike."""
    return LIST.sub("a, ", WORD.sub("a", NUMBER.sub("0", text)))


def _language(path: str) -> str | None:
    ending = Path(path.removesuffix(".gz").removesuffix(".xz")).suffix[1:]
    return ending if 2 <= len(ending) <= 3 and ending.isalpha() and ending != "txt" else None
