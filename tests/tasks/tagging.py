"""A task of your own: it learns to tag each character of a text as a vowel or a consonant."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn

from jumok.settings import Settings
from jumok.tasks.results import EvaluationResult, Table
from jumok.tasks.task import Task, TaskData, parameters
from jumok.training import TrainingConfig, smoothed_cross_entropy

LETTERS, TAGS = "aeiouxyz", ("consonant", "vowel")


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(Settings):
    section = "tagger"
    width: int = 4


@dataclass(frozen=True, kw_only=True)
class TaggingTraining(TrainingConfig):
    metric: Literal["loss", "accuracy"] = "accuracy"


@dataclass(frozen=True, kw_only=True)
class TaggingRecipe:
    tagger: TaggerConfig
    training: TaggingTraining


class TrainedTagger(NamedTuple):
    model: nn.Module
    recipe: TaggingRecipe
    assets: str


class Texts(NamedTuple):
    seed: int

    def steps(self, epoch):
        return 4

    def batch(self, epoch, step):
        draws = torch.Generator().manual_seed(1000 * self.seed + 10 * epoch + step)
        letters = torch.randint(len(LETTERS), (8, 6), generator=draws)
        return letters, (letters < 5).long()


class Tagger(NamedTuple):
    trained: TrainedTagger

    def tag(self, text):
        ids = torch.tensor([self.trained.assets.index(letter) for letter in text])
        return [TAGS[tag] for tag in self.trained.model(ids).argmax(-1)]


class Tagging(Task[TaggingRecipe, str, TrainedTagger, Tagger]):
    name, does, unit = "tagging", "tags the characters of a text", "char"
    recipe, trained, own_sections, model_sections = TaggingRecipe, TrainedTagger, frozenset({"tagger"}), ("tagger",)

    def prepare(self, recipe, run):
        train, held_out = Texts(recipe.training.seed), Texts(seed=9).batch(0, 0)
        return TaskData(recipe=recipe, assets=LETTERS, train=train, held_out=held_out, fingerprint="letters")

    def build(self, recipe, assets):
        width = recipe.tagger.width
        return nn.Sequential(nn.Embedding(len(assets), width), nn.Dropout(0.1), nn.Linear(width, len(TAGS)))

    def items(self, batch):
        return batch[1].numel()

    def loss(self, model, batch, device, config):
        letters, tags = (part.to(device).flatten() for part in batch)
        return smoothed_cross_entropy(model(letters), tags, smoothing=config.label_smoothing)

    def validate(self, trained, held_out):
        letters, tags = (part.to(trained.model[0].weight.device).flatten() for part in held_out)
        logits = trained.model(letters).detach()
        loss, right = nn.functional.cross_entropy(logits, tags), logits.argmax(-1) == tags
        return {"loss": float(loss), "accuracy": 100 * float(right.float().mean())}

    def predictor(self, trained, folder=None):
        return Tagger(trained)

    def evaluate(self, predictor, options, *, name="model", watch=None):
        accuracy = self.validate(predictor.trained, Texts(seed=10).batch(0, 0))["accuracy"]
        return EvaluationResult({"accuracy": accuracy}, [Table(["score", "value"], [["accuracy", f"{accuracy:.1f}"]])])

    def files(self, assets):
        return {"letters.txt": assets.encode()}

    def read_assets(self, folder, recipe):
        return folder.files(["letters.txt"])["letters.txt"].decode()

    def describe(self, trained):
        return {"does": self.does, "parameters": parameters(trained.model), "letters": trained.assets}
