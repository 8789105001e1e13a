"""Words of other tools: a message names what jumok calls it, or says that jumok does not have it."""

import pytest

from jumok.errors import ArgumentError, ConfigError
from jumok.recipe import sections
from jumok.setting_hints import OPTIONS, SETTINGS
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.recipes import TranslationRecipe
from support.commands import jumok, write

DATA = {"source": "a", "target": "b"}


@pytest.mark.parametrize(
    ("section", "key", "ours"),
    [
        ("training", "lr", "training.learning_rate"),
        ("training", "batch_size", "batch.tokens, in tokens; batch.sentences limits the sentences"),
        ("training", "epochs", "training.steps, in updates of the weights, not epochs"),
        ("training", "warmup_steps", "training.warmup, in steps"),
        ("training", "dropout", "encoder.dropout and decoder.dropout"),
        ("encoder", "hidden_size", "encoder.width"),
        ("decoder", "d_model", "decoder.width"),
        ("encoder", "num_layers", "encoder.layers"),
        ("decoding", "beam_size", "decoding.beam"),
        ("data", "src", "data.source"),
        ("data", "tgt", "data.target"),
    ],
)
def test_an_unknown_setting_is_told_our_name(section, key, ours):
    with pytest.raises(ConfigError) as raised:
        make_recipe({"data": DATA, section: {**(DATA if section == "data" else {}), key: 1}})
    assert str(raised.value) == f"the recipe: {section}.{key} is not a setting; here it is {ours}"


def test_what_there_is_not_is_said():
    with pytest.raises(ConfigError, match=r"decoding.ensemble is not a setting; an ensemble is several model folders"):
        make_recipe({"data": DATA, "decoding": {"ensemble": 5}})
    with pytest.raises(ConfigError, match="there is one optimiser here, AdamW"):
        make_recipe({"data": DATA, "training": {"optimizer": "sgd"}})


@pytest.mark.parametrize(
    ("section", "key", "value", "ours"),
    [
        ("decoder", "attention", "bahdanau", "'additive'"),
        ("encoder", "kind", "lstm", "'rnn' with cell = 'lstm'"),
        ("encoder", "positions", "rope", "'rotary'"),
        ("training", "precision", "fp16", "'bf16'"),
        ("tokenizer", "kind", "sentencepiece", "'unigram'"),
    ],
)
def test_an_unknown_value_is_told_ours(section, key, value, ours):
    tables = {"data": DATA, section: {key: value, **({"kind": "rnn"} if key == "attention" else {})}}
    with pytest.raises(ConfigError) as raised:
        make_recipe(tables)
    assert str(raised.value).endswith(f"; here it is {ours}")


def test_sections_and_settings_without_one(tmp_path):
    recipe = write(tmp_path / "r.toml", '[data]\nsource = "a"\ntarget = "b"\n')
    with pytest.raises(ConfigError, match=r"there is no section \[model\]; here it is \[encoder\] and \[decoder\]"):
        make_recipe({"data": DATA, "model": {}})
    with pytest.raises(ConfigError, match=r"lr stands before the first section.*; here it is training.learning_rate"):
        make_recipe({"data": DATA, "lr": 1})
    assert jumok("train", recipe, "--set", "steps=5").err.endswith("; did you mean training.steps?\n")
    assert jumok("train", recipe, "--set", "lr=5").err.endswith("; here it is training.learning_rate\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("train", "r.toml", "--steps", "5"), "here it is --set training.steps=…, in updates of the weights"),
        (("train", "r.toml", "--width=64"), "here it is --set encoder.width=…"),
        (("train", "--config", "r.toml"), "a recipe is an argument without an option: jumok train recipe.toml"),
        (["translate", "--sampling-topk", "5"], "there is no option --sampling-topk; here it is --top-k"),
        (["translate", "--beam-size", "5"], "there is no option --beam-size; here it is --beam"),
        (["translate", "--n_best", "5"], "there is no option --n_best; here it is --n-best"),
        (["translate", "--src", "a"], "here it is --source"),
        (["evaluate", "--refs", "a"], "here it is --reference"),
        (["align", "--tgt", "a"], "here it is --target"),
        (["train", "r.toml", "--lr", "1"], "here it is --set training.learning_rate=…"),
        (["train", "r.toml", "--epochs", "1"], "here it is --set training.steps=…, in updates of the weights"),
        (["train", "r.toml", "--save-dir", "x"], "here it is --out"),
    ],
)
def test_an_unknown_option_is_told_ours(command, said):
    done = jumok(*command)
    assert done.code == 2
    assert said in done.err


def test_settings_of_the_translator_are_told_ours(reverser):
    with pytest.raises(ArgumentError, match=r"num_beams is not a setting of decoding; here it is decoding\.beam"):
        TRANSLATION.load(reverser, device="cpu").translate(["1"], num_beams=3)


def test_a_number_for_minimum_bayes_risk_is_told_where_it_goes(reverser):
    with pytest.raises(ArgumentError, match=r"mbr = 4 must be True or False; .*: mbr=True, beam=4"):
        TRANSLATION.load(reverser, device="cpu").translate(["1"], mbr=4)


def test_every_name_of_ours_exists():
    kinds = [(name, cls) for name, classes in sections(TranslationRecipe).items() for cls in classes.values()]
    places = {f"{section}.{field}" for section, cls in kinds for field in cls.__dataclass_fields__}
    assert {place for ours in SETTINGS for place in ours.split(" and ")} <= places
    words = [word for theirs in SETTINGS.values() for word in theirs.split()]
    assert len(set(words)) == len(words)  # a word stands for one thing
    said = "".join(jumok(command, "--help").out for command in ("translate", "evaluate", "align", "train"))
    assert [option for option in OPTIONS if option not in said] == []
