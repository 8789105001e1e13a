"""Recipes: what is written is read again the same, and small changes are made from outside."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar

import pytest

from jumok.errors import ConfigError
from jumok.graphs.graph import GraphConfig
from jumok.recipe import parse_recipe, read_tables, sections, write_recipe
from jumok.settings import FilePath, Settings
from jumok.tasks import make_recipe, read_recipe, task_of
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.run import settings_fixed_on_resume
from jumok.training.config import TrainingConfig

ROOT = Path(__file__).resolve().parents[1]
DATA = {"corpus": "reverse"}


@pytest.mark.parametrize("decoder", sections(TranslationRecipe)["decoder"])
@pytest.mark.parametrize("encoder", sections(TranslationRecipe)["encoder"])
def test_what_is_written_is_read_again_the_same(tmp_path, encoder, decoder):
    edits = {"tokenizer": {"edits": True}} if decoder == "transducer" else {}
    recipe = make_recipe({"data": DATA, "encoder": {"kind": encoder}, "decoder": {"kind": decoder}, **edits})
    assert (recipe.encoder.kind, recipe.decoder.kind) == (encoder, decoder)
    (tmp_path / "recipe.toml").write_text(write_recipe(recipe), encoding="utf-8")
    assert read_recipe(tmp_path / "recipe.toml") == recipe


def test_texts_lists_and_numbers_survive_the_file(tmp_path):
    names = 'a "quoted"\\path\nof two\tlines, 주목 \x7f \u2028'
    tables = {
        "data": {"pairs": names, "columns": ["영어", "ko"]},
        "training": {"betas": [0.5, 0.25], "learning_rate": 1e-7, "weight_decay": 0},
        "filter": {"duplicates": False},
        "encoder": {"kind": "transformer", "key_heads": 2},
        "decoder": {"kind": "rnn", "readout": 7, "coverage": True},
    }
    recipe = make_recipe(tables)
    (tmp_path / "recipe.toml").write_text(write_recipe(recipe), encoding="utf-8")
    assert read_recipe(tmp_path / "recipe.toml") == recipe
    assert recipe.data.pairs == names
    assert recipe.training.betas == (0.5, 0.25)


def test_a_recipe_of_the_data_alone_has_defaults_for_all_else():
    recipe = make_recipe({"data": {"source": "a", "target": "b"}})
    assert recipe == make_recipe({"data": {"source": "a", "target": "b"}, "training": {}, "encoder": {}})


def test_every_recipe_of_ours_can_be_read(monkeypatch):
    monkeypatch.setenv("JUMOK_DATA", "somewhere")
    monkeypatch.setenv("JUMOK_L10N", "somewhere")
    for name in sorted(ROOT.glob("recipes/*.toml")):
        assert isinstance(read_recipe(name), task_of(read_tables(name)).recipe)


@pytest.mark.parametrize(
    ("change", "section", "key", "value"),
    [
        ("training.steps=7", "training", "steps", 7),
        ("training.learning_rate = 1", "training", "learning_rate", 1.0),
        ("data.corpus=dates", "data", "corpus", "dates"),
        ('data.corpus="dates"', "data", "corpus", "dates"),
        ("data.locales=['de', 'ko']", "data", "locales", ("de", "ko")),
        ("filter.duplicates=false", "filter", "duplicates", False),
        ("decoder.kind=rnn", "decoder", "kind", "rnn"),
    ],
)
def test_one_setting_is_changed_from_outside_and_no_other(tmp_path, change, section, key, value):
    (tmp_path / "recipe.toml").write_text('[data]\ncorpus = "reverse"\n')
    plain, changed = (read_recipe(tmp_path / "recipe.toml", changes) for changes in ([], [change]))
    assert getattr(getattr(changed, section), key) == value
    if key != "kind":
        assert getattr(changed, section) == replace(getattr(plain, section), **{key: value})
    assert all(
        getattr(changed, field.name) == getattr(plain, field.name)
        for field in fields(TranslationRecipe)
        if field.name != section
    )


def test_the_last_of_several_changes_wins(tmp_path):
    (tmp_path / "recipe.toml").write_text('[data]\ncorpus = "reverse"\n')
    changes = ["training.steps=7", "training.seed=3", "training.steps=8"]
    found = read_recipe(tmp_path / "recipe.toml", changes).training
    assert (found.steps, found.seed) == (8, 3)


def test_paths_of_data_may_name_environment_variables(monkeypatch):
    monkeypatch.setenv("CORPUS", "/there")
    recipe = make_recipe({"data": {"source": "$CORPUS/a.en", "target": "${CORPUS}/a.ko"}})
    assert (recipe.data.source, recipe.data.target) == ("/there/a.en", "/there/a.ko")


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("CORPUS", raising=False)
    with pytest.raises(ConfigError, match=r"data\.source = '\$CORPUS/a' needs the environment variable CORPUS"):
        make_recipe({"data": {"source": "$CORPUS/a", "target": "b"}})


def test_a_dollar_in_what_a_variable_holds_is_left_alone(monkeypatch):
    monkeypatch.setenv("CORPUS", "/there/$x")
    assert make_recipe({"data": {"pairs": "$CORPUS/a.tsv"}}).data.pairs == "/there/$x/a.tsv"


@pytest.mark.parametrize(("given", "path"), [("~/a", "/home/me/a"), ("~/$CORPUS/a", "/home/me/x/a")])
def test_a_path_may_begin_at_home(monkeypatch, given, path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("CORPUS", "x")
    assert make_recipe({"data": {"pairs": given}}).data.pairs == path
    assert make_recipe({"graph": {"nodes": given, "edges": "a/~"}}).graph == GraphConfig(nodes=path, edges="a/~")
    captions = make_recipe({"images": {"path": given, "captions": given}})
    assert (captions.images.path, captions.images.captions) == (path, path)


@pytest.mark.parametrize("value", ["~", "~/b"])
def test_a_tilde_in_what_a_variable_holds_is_left_alone_as_in_a_shell(monkeypatch, value):
    monkeypatch.setenv("CORPUS", value)
    assert make_recipe({"data": {"pairs": "$CORPUS/a"}}).data.pairs == f"{value}/a"


def test_a_saved_recipe_names_the_files_themselves_and_needs_no_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("CORPUS", "/there/$x")
    recipe = make_recipe({"data": {"pairs": "$CORPUS/a.tsv"}})
    (tmp_path / "recipe.toml").write_text(write_recipe(recipe), encoding="utf-8")
    monkeypatch.delenv("CORPUS")
    assert read_recipe(tmp_path / "recipe.toml", variables=False) == recipe


@dataclass(frozen=True, kw_only=True)
class SpeechConfig(Settings):
    section: ClassVar[str] = "speech"
    recordings: FilePath = ""
    speaker: str = ""


@dataclass(frozen=True, kw_only=True)
class SpeechRecipe:
    speech: SpeechConfig
    training: TrainingConfig = field(default_factory=TrainingConfig)


def test_a_new_task_declares_its_paths_at_the_field(monkeypatch):
    monkeypatch.setenv("CORPUS", "/there")
    recipe = parse_recipe(SpeechRecipe, {"speech": {"recordings": "$CORPUS/a.wav", "speaker": "$CORPUS"}})
    assert recipe.speech == SpeechConfig(recordings="/there/a.wav", speaker="$CORPUS")
    assert settings_fixed_on_resume(recipe) == {"speech": {"speaker": "$CORPUS"}}


def test_a_setting_of_another_task_is_unknown():
    with pytest.raises(ConfigError, match=r"training\.doubly_stochastic is not a setting"):
        make_recipe({"data": DATA, "training": {"doubly_stochastic": 0.0}})
