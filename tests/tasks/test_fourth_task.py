"""A fourth task is one file: a toy that tags each character trains, resumes, is inspected, averaged and loaded."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jumok.settings import Settings
from jumok.tasks import load
from jumok.tasks.average import average_models
from jumok.tasks.inspect import inspect
from jumok.tasks.run import train
from jumok.tasks.task import Task, TaskData, parameters
from jumok.training import Report, TrainingConfig
from jumok.training.loss import smoothed_cross_entropy
from support.runs import Remarks, assert_same_run, interrupt

LETTERS, TAGS = "aeiouxyz", ("consonant", "vowel")


# The task, in under 100 lines


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

    def validate(self, trained, held_out):
        logits, tags = trained.model(held_out.letters).flatten(0, 1), held_out.tags.flatten()
        right = (logits.argmax(-1) == tags).float().mean()
        return {"loss": float(F.cross_entropy(logits, tags)), "accuracy": 100 * float(right)}

    def predictor(self, trained):
        return Tagger(trained)

    def files(self, assets):
        return {"letters.txt": assets.encode()}

    def read_assets(self, folder, recipe):
        return folder.files(["letters.txt"])["letters.txt"].decode()

    def describe(self, trained):
        return {"does": self.does, "parameters": parameters(trained.model), "letters": trained.letters}


# What all tasks share works with it


TABLES = {"tagger": {"width": 8}, "training": {"steps": 60, "learning_rate": 0.05, "warmup": 1, "validate_every": 20}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging") / "run"
    return train(TABLES, out=folder, device="cpu", report=Report(), draw=False, task=Tagging())


def test_it_trains_and_validates(run):
    assert run.metrics["accuracy"] == 100
    assert run.model.tag("axe") == ["vowel", "consonant", "vowel"]
    assert "accuracy: 100% (validation)" in (run.folder / "README.md").read_text()


def test_it_is_loaded_from_its_folder(run):
    assert load(run.folder, device="cpu", task=Tagging()).tag("you") == ["consonant", "vowel", "vowel"]


def test_it_resumes_exactly(run, tmp_path):
    settings = {"device": "cpu", "draw": False, "task": Tagging()}
    first = train(TABLES, out=tmp_path / "run", report=Remarks({30: interrupt}), **settings)
    assert first.stopped == "interrupted"
    train(TABLES, out=tmp_path / "run", report=Remarks(), resume=True, **settings)
    assert_same_run(tmp_path / "run", run.folder)


def test_it_is_inspected(run):
    facts, shapes = inspect(run.folder, task=Tagging())
    assert facts["does"] == "tags the characters of a text"
    assert facts["training"]["best"] == 100
    assert sum(facts["parts"].values()) == facts["parameters"] == 8 * 8 + 8 * 2 + 2
    assert shapes["0.weight"] == [8, 8]


def test_it_is_averaged(run, tmp_path):
    average_models([run.folder, run.folder], tmp_path / "mean", task=Tagging())
    assert load(tmp_path / "mean", device="cpu", task=Tagging()).tag("axe") == run.model.tag("axe")
