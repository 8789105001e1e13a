"""A task of your own: it learns to tag each character of a text as a vowel or a consonant."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jumok.settings import Settings
from jumok.tasks.results import EvaluationResult, Table
from jumok.tasks.task import Task, TaskData, parameters
from jumok.training import TrainingConfig
from jumok.training.loss import smoothed_cross_entropy

LETTERS, TAGS = "aeiouxyz", ("consonant", "vowel")


@dataclass(frozen=True, kw_only=True)
class TextConfig(Settings):
    length: int = 6
    count: int = 8


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(Settings):
    section = "tagger"
    width: int = 4


@dataclass(frozen=True, kw_only=True)
class TaggingTraining(TrainingConfig):
    metric: Literal["loss", "accuracy"] = "accuracy"


@dataclass(frozen=True, kw_only=True)
class TaggingRecipe:
    text: TextConfig
    tagger: TaggerConfig
    training: TaggingTraining


class TrainedTagger(NamedTuple):
    model: nn.Module
    recipe: TaggingRecipe
    letters: str


class Batch(NamedTuple):
    letters: Tensor
    tags: Tensor

    def pinned(self):
        return self


class Texts(NamedTuple):
    config: TextConfig
    seed: int

    def steps(self, epoch):
        return 4

    def batch(self, epoch, step):
        draws = torch.Generator().manual_seed(1000 * self.seed + 10 * epoch + step)
        letters = torch.randint(len(LETTERS), (self.config.count, self.config.length), generator=draws)
        return Batch(letters, (letters < 5).long())


class Tagger(NamedTuple):
    trained: TrainedTagger

    def tag(self, text):
        ids = torch.tensor([self.trained.letters.index(letter) for letter in text])
        return [TAGS[tag] for tag in self.trained.model(ids).argmax(-1)]


class Tagging(Task[TaggingRecipe, str]):
    name, does, unit = "tagging", "tags the characters of a text", "char"
    recipe, trained, own_sections, model_sections = TaggingRecipe, TrainedTagger, frozenset({"tagger"}), ("tagger",)

    def prepare(self, recipe, run):
        texts, held_out = Texts(recipe.text, recipe.training.seed), Texts(recipe.text, 9).batch(0, 0)
        return TaskData(recipe=recipe, assets=LETTERS, train=texts, held_out=held_out, fingerprint="letters")

    def build(self, recipe, assets):
        width = recipe.tagger.width
        return nn.Sequential(nn.Embedding(len(assets), width), nn.Dropout(0.1), nn.Linear(width, len(TAGS)))

    def items(self, batch):
        return batch.tags.numel()

    def loss(self, model, batch, device, config):
        logits = model(batch.letters.to(device)).flatten(0, 1)
        return smoothed_cross_entropy(logits, batch.tags.to(device).flatten(), smoothing=config.label_smoothing)

    @torch.no_grad()
    def validate(self, trained, held_out):
        logits, tags = trained.model(held_out.letters).flatten(0, 1), held_out.tags.flatten()
        right = (logits.argmax(-1) == tags).float().mean()
        return {"loss": float(F.cross_entropy(logits, tags)), "accuracy": 100 * float(right)}

    def predictor(self, trained, folder=None):
        return Tagger(trained)

    def evaluate(self, predictor, options, *, name="model", watch=None):
        test = Texts(predictor.trained.recipe.text, seed=10).batch(0, 0)
        accuracy = self.validate(predictor.trained, test)["accuracy"]
        return EvaluationResult({"accuracy": accuracy}, [Table(["score", "value"], [["accuracy", f"{accuracy:.1f}"]])])

    def files(self, assets):
        return {"letters.txt": assets.encode()}

    def read_assets(self, folder, recipe):
        return folder.files(["letters.txt"])["letters.txt"].decode()

    def describe(self, trained):
        return {"does": self.does, "parameters": parameters(trained.model), "letters": trained.letters}
