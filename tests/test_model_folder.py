"""A trained model as a folder: what is saved is loaded again the same, and a mean of models is one."""

import json
import shutil
from hashlib import sha256

import pytest
import torch
from safetensors.torch import load_file, save_file

from jumok.data import Pair, TokenizerPair
from jumok.errors import DataError
from jumok.model_folder import ModelFolder
from jumok.models.weights import weights_of
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.average import average_models
from jumok.tasks.translator import TrainedTranslator

SMALL = {
    "rnn": {"kind": "rnn", "width": 8, "embedding": 8},
    "transformer": {"kind": "transformer", "width": 8, "heads": 2, "hidden": 8, "layers": 1},
}


def fresh(encoder="rnn", decoder="rnn", *, shared=True, seed=1, tied="none"):
    tables = {
        "data": {"corpus": "reverse"},
        "tokenizer": {"kind": "char", "shared": shared},
        "encoder": SMALL[encoder],
        "decoder": SMALL[decoder] | {"tied": tied},
        "training": {"seed": seed},
    }
    recipe = make_recipe(tables)
    tokenizers = TokenizerPair.train([Pair("012", "가나"), Pair("34", "210")], recipe.tokenizer)
    return TrainedTranslator(TRANSLATION.new_model(recipe, tokenizers), recipe, tokenizers)


def same_weights(one, other):
    mine, theirs = weights_of(one), weights_of(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("decoder", SMALL)
@pytest.mark.parametrize("encoder", SMALL)
def test_what_is_saved_is_loaded_again_the_same(tmp_path, encoder, decoder, shared):
    trained = fresh(encoder, decoder, shared=shared)
    TRANSLATION.save(tmp_path, trained)
    loaded = TRANSLATION.load(tmp_path, device="cpu").trained
    assert same_weights(loaded.model, trained.model)
    assert loaded.recipe == trained.recipe
    assert loaded.tokenizers.shared is shared
    assert [side.model for side in loaded.tokenizers] == [side.model for side in trained.tokenizers]
    assert not loaded.model.training


def test_a_model_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    old, new = fresh(seed=1), fresh(seed=2)
    TRANSLATION.save(tmp_path, old)
    header, replaced = ModelFolder.header, []

    def late(folder):
        if not replaced:
            replaced.append(True)
            TRANSLATION.save(tmp_path, new)
        return header(folder)

    monkeypatch.setattr(ModelFolder, "header", late)
    assert same_weights(TRANSLATION.load(tmp_path, device="cpu").trained.model, new.model)


def test_tied_weights_are_saved_once_and_still_tied_when_loaded(tmp_path):
    TRANSLATION.save(tmp_path, fresh("transformer", "transformer", tied="all"))
    model = TRANSLATION.load(tmp_path, device="cpu").trained.model
    addresses = {tensor.data_ptr() for name, tensor in model.state_dict().items() if tensor.shape == (14, 8)}
    assert len(addresses) <= 1


TIED = [
    ("rnn", "rnn", "output"),
    ("rnn", "rnn", "all"),
    ("rnn", "transformer", "all"),
    ("transformer", "rnn", "output"),
]
OTHERS = [
    *[("rnn", "rnn", "none"), ("rnn", "rnn", "embeddings"), ("rnn", "transformer", "output")],
    *[("transformer", "rnn", "all"), ("transformer", "transformer", "all")],
]


def saved_before(folder, encoder, decoder, tied):
    """A folder and the model in it, whose weights say nothing of how tied tables are scaled."""
    model = fresh(encoder, decoder, tied=tied)
    TRANSLATION.save(folder, model)
    tensors, checksums = load_file(folder / "model.safetensors"), folder / "checksums.json"
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    digest = sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    checksums.write_text(json.dumps(json.loads(checksums.read_text()) | {"model.safetensors": digest}))
    return model.model


@pytest.mark.parametrize(("encoder", "decoder", "tied"), TIED)
def test_a_tied_recurrent_model_of_an_earlier_version_is_refused(encoder, decoder, tied, tmp_path):
    saved_before(tmp_path, encoder, decoder, tied)
    with pytest.raises(DataError, match=r"before the first release .* train the model anew"):
        TRANSLATION.load(tmp_path, device="cpu")


@pytest.mark.parametrize(("encoder", "decoder", "tied"), OTHERS)
def test_other_models_of_an_earlier_version_can_be_loaded(encoder, decoder, tied, tmp_path):
    model = saved_before(tmp_path, encoder, decoder, tied)
    assert same_weights(TRANSLATION.load(tmp_path, device="cpu").trained.model, model)


@pytest.mark.parametrize(("encoder", "decoder", "tied"), TIED)
def test_a_tied_recurrent_model_can_be_loaded(encoder, decoder, tied, tmp_path):
    model = fresh(encoder, decoder, tied=tied)
    TRANSLATION.save(tmp_path, model, half=True)
    loaded = TRANSLATION.load(tmp_path, device="cpu").trained.model
    assert loaded.decoder.output.weight is loaded.decoder.embedding.table
    torch.testing.assert_close(loaded.decoder.output.weight, model.model.decoder.output.weight, atol=1e-3, rtol=1e-3)


def test_the_same_seed_gives_the_same_fresh_weights_and_leaves_other_draws_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, other = fresh(seed=3), fresh(seed=3)
    assert torch.equal(torch.rand(1), expected)
    assert same_weights(one.model, other.model)
    assert not same_weights(one.model, fresh(seed=4).model)


def test_a_folder_holds_nothing_but_text_tensors_and_tokenizers(tmp_path):
    TRANSLATION.save(tmp_path, fresh(), scores={"bleu": "31.4 (validation)"})
    assert {path.name for path in tmp_path.iterdir()} == {
        "README.md",
        "checksums.json",
        "model.safetensors",
        "recipe.toml",
        "tokenizer.model",
    }
    assert "- trained on: reverse\n" in (tmp_path / "README.md").read_text()
    assert "- bleu: 31.4 (validation)\n" in (tmp_path / "README.md").read_text()
    assert json.loads((tmp_path / "checksums.json").read_text()).keys() == {
        "model.safetensors",
        "recipe.toml",
        "tokenizer.model",
    }


def test_saving_over_a_model_of_the_other_kind_leaves_a_whole_model(tmp_path):
    TRANSLATION.save(tmp_path, fresh(shared=False))
    TRANSLATION.save(tmp_path, fresh(shared=True))
    assert TRANSLATION.load(tmp_path, device="cpu").trained.tokenizers.shared


def test_a_recipe_is_not_read_with_the_variables_of_whoever_loads_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("HERE", "/a/$folder")
    trained = fresh()
    recipe = make_recipe({"data": {"pairs": "$HERE/a.tsv"}, "encoder": SMALL["rnn"], "decoder": SMALL["rnn"]})
    TRANSLATION.save(tmp_path, trained._replace(recipe=recipe))
    assert TRANSLATION.load(tmp_path, device="cpu").trained.recipe.data.pairs == "/a/$folder/a.tsv"


def test_the_average_is_the_mean_and_keeps_the_tokenizers(tmp_path):
    folders = [tmp_path / str(seed) for seed in (1, 2, 3)]
    for seed, folder in enumerate(folders, start=1):
        TRANSLATION.save(folder, fresh(seed=seed))
    average_models(folders, tmp_path / "mean")
    tensors = [load_file(folder / "model.safetensors") for folder in folders]
    for name, mean in load_file(tmp_path / "mean/model.safetensors").items():
        torch.testing.assert_close(mean, sum(one[name].double() for one in tensors).float() / 3)
    loaded = TRANSLATION.load(tmp_path / "mean", device="cpu").trained
    assert loaded.tokenizers.source.model == TRANSLATION.load(folders[0], device="cpu").trained.tokenizers.source.model
    assert loaded.recipe == TRANSLATION.load(folders[0], device="cpu").trained.recipe


def test_one_folder_can_be_averaged_with_weights_alone(tmp_path):
    TRANSLATION.save(tmp_path / "model", fresh())
    weights = load_file(tmp_path / "model/model.safetensors")
    save_file({name: 3 * tensor for name, tensor in weights.items()}, tmp_path / "thrice.safetensors")
    average_models([tmp_path / "thrice.safetensors", tmp_path / "model"], tmp_path / "mean")
    for name, mean in load_file(tmp_path / "mean/model.safetensors").items():
        torch.testing.assert_close(mean, 2 * weights[name])


def test_a_model_folder_can_be_moved(tmp_path):
    TRANSLATION.save(tmp_path / "here", fresh())
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert TRANSLATION.load(tmp_path / "there", device="cpu").trained.recipe.data.corpus == "reverse"
