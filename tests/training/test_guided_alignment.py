"""Guided alignment: the loss is the cross-entropy it says, resumes exactly, and is not there when off."""

import math
from dataclasses import replace

import pytest
import torch

from jumok.data import Batch
from jumok.models import TransformerDecoderConfig, TransformerEncoderConfig, build_model
from jumok.models.encoder_decoder import SingleHeadWeights
from jumok.tasks import make_recipe
from jumok.training.guided_alignment import GuidedAlignment, guided_layer
from jumok.training.objective import SEQUENCES
from support.commands import RECIPE, well, write
from support.runs import assert_same_run


def layers(*weights):
    """Attention of [batch, target, source] weights, one layer each."""
    return tuple(SingleHeadWeights((one,)) for one in weights)


def test_the_loss_is_the_cross_entropy_from_links_to_weights():
    torch.manual_seed(0)
    weights = torch.rand(2, 4, 3).softmax(-1)
    links = torch.rand(2, 4, 3) > 0.5
    links[0, 1] = False
    wanted = 0.0
    for b in range(2):
        for t in range(4):
            linked = [s for s in range(3) if links[b, t, s]]
            wanted -= sum(math.log(weights[b, t, s]) for s in linked) / max(len(linked), 1)
    guide = GuidedAlignment(weight=0.3, layer=0, head=0, shift=False)
    assert float(guide.loss(layers(weights)[0], links)) == pytest.approx(0.3 * wanted, rel=1e-5)


def test_shifted_the_row_that_reads_a_token_is_taught_its_links():
    weights = torch.full((1, 3, 2), 0.5)
    weights[0, 1] = torch.tensor([1.0, 0.0])
    links = torch.zeros(1, 3, 2, dtype=torch.bool)
    links[0, 0, 0] = True  # row 0 writes the token that row 1 reads
    assert float(GuidedAlignment(weight=1, layer=0, head=0, shift=True).loss(layers(weights)[0], links)) == 0
    assert float(GuidedAlignment(weight=1, layer=0, head=0, shift=False).loss(layers(weights)[0], links)) > 0.6


def test_a_weight_of_zero_on_a_link_gives_a_finite_loss():
    weights = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    loss = GuidedAlignment(weight=1, layer=0, head=None, shift=False).loss(
        layers(weights)[0], torch.tensor([[[True, False]]])
    )
    loss.backward()
    assert loss.isfinite()
    assert weights.grad.isfinite().all()


@pytest.fixture
def small():
    """A Transformer, and a batch of sentences of 4 and 2 tokens with links."""
    torch.manual_seed(0)
    sizes = {"width": 8, "heads": 2, "hidden": 8, "dropout": 0.0}
    model = build_model(
        TransformerEncoderConfig(layers=1, **sizes),
        TransformerDecoderConfig(layers=3, **sizes),
        source_vocabulary=9,
        target_vocabulary=9,
    ).double()
    visible = torch.arange(4) < torch.tensor([[4], [2]])
    ids = torch.randint(4, 9, (2, 4)) * visible
    words = torch.arange(4) < torch.tensor([[3], [1]])  # the last token, EOS, is no word
    links = (torch.rand(2, 4, 4) > 0.5) & visible[:, None] & words[:, :, None]
    return model, Batch(ids, visible, ids, ids, visible, links)


def guided_gradient(model, batch, context):
    """What the guided loss alone teaches each weight."""
    guide = GuidedAlignment(weight=1, layer=None, head=None, shift=True, context=context)
    encoding = model.encoder(batch.source, batch.source_visible)
    taught = guide.attention(model.decoder, encoding, model.decoder.hidden(encoding, batch.target_in), batch)
    model.zero_grad()
    guide.loss(taught, batch.word_links).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize(("context", "depends"), [("causal", False), ("full", True)])
def test_only_with_full_context_what_is_taught_depends_on_later_words(small, context, depends):
    model, batch = small
    other = batch.target_in.clone()
    other[0, 3] = (other[0, 3] + 1) % 9
    guide = GuidedAlignment(weight=1, layer=None, head=None, shift=True, context=context)

    def rows(target_in):
        encoding = model.encoder(batch.source, batch.source_visible)
        hidden = model.decoder.hidden(encoding, target_in)
        return guide.attention(model.decoder, encoding, hidden, batch._replace(target_in=target_in))()

    before, after = rows(batch.target_in), rows(other)
    assert torch.equal(before[0, :, :3], after[0, :, :3]) is not depends
    assert torch.equal(before[1], after[1])


@pytest.mark.parametrize("context", ["causal", "full"])
def test_padding_teaches_nothing(small, context):
    model, batch = small
    short = SEQUENCES.halves(batch)[1]
    padded = batch.each(lambda part: part[1:])
    found, wanted = guided_gradient(model, padded, context), guided_gradient(model, short, context)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


def test_words_without_links_are_taught_to_look_at_the_end_of_the_source(small):
    _, batch = small
    batch = batch._replace(word_links=torch.zeros(2, 4, 4, dtype=torch.bool))
    batch.word_links[0, 1, 2] = True
    guide = GuidedAlignment(weight=1, layer=None, head=None, shift=True, null=True)
    wanted = batch.word_links.clone()
    wanted[0, [0, 2, 3], 3] = True
    wanted[1, [0, 1], 1] = True  # what is padded has no word
    assert torch.equal(guide.links(batch), wanted)
    assert torch.equal(replace(guide, null=False).links(batch), batch.word_links)


def test_full_context_leaves_the_layers_above_alone(small):
    taught = guided_gradient(*small, "full")
    assert any("decoder.layers.1.cross" in name for name in taught)
    assert not any("decoder.layers.2" in name for name in taught)


def test_the_last_layer_but_one_is_taught_unless_told():
    assert [guided_layer(None, count) for count in (1, 2, 6)] == [0, 0, 4]
    assert [guided_layer(layer, 6) for layer in (3, -1, -6)] == [3, 5, 0]


def test_a_batch_that_is_split_splits_its_links():
    visible = torch.tensor([[True, True, False], [True, True, True]])
    ids, links = visible.long(), torch.arange(18).view(2, 3, 3) % 2 == 0
    one, other = SEQUENCES.halves(Batch(ids, visible, ids, ids, visible, links))
    assert torch.equal(one.word_links, links[:1, :2, :2])
    assert torch.equal(other.word_links, links[1:])


def test_a_recipe_without_guidance_has_no_guide():
    assert make_recipe({"data": {"corpus": "reverse"}}).training.guide is None


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "context", "null"), [("rnn", "causal", "false"), ("transformer", "full", "true")])
def test_a_guided_run_resumes_bit_for_bit(tmp_path, kind, context, null):
    texts = [str(number * 7919 % 10_000) for number in range(150)]
    spaced = [" ".join(text) for text in texts]
    write(tmp_path / "one", "".join(f"{text}\n" for text in spaced))
    write(tmp_path / "two", "".join(f"{text[::-1]}\n" for text in spaced))
    links = [" ".join(f"{at}-{len(text) - 1 - at}" for at in range(1, len(text))) for text in texts]
    write(tmp_path / "links", "".join(f"{line}\n" for line in links))
    recipe = RECIPE.replace('corpus = "reverse"\nsize = 2000', f'source = "{tmp_path}/one"\ntarget = "{tmp_path}/two"')
    recipe = recipe.replace("longest = 6", f'alignments = "{tmp_path}/links"').replace('"char"', '"unigram"')
    if kind == "transformer":
        recipe = recipe.replace('"rnn"', '"transformer"').replace("embedding = 32", "hidden = 16")
    path = write(tmp_path / "guided.toml", recipe)
    changes = ["tokenizer.size=15", "tokenizer.sampling=3", "filter.max_length=12", "training.metric=loss"]
    changes += ["training.validate_every=2", "training.guided_alignment=0.5", "encoder.width=16", "decoder.width=16"]
    changes += [f"training.guided_context={context}", f"training.guided_null={null}", "training.guided_layer=-1"]
    settings = ["--device=cpu", *(f"--set={change}" for change in changes)]
    well("train", path, "--out", tmp_path / "whole", *settings, "--set=training.steps=4")
    well("train", path, "--out", tmp_path / "parts", *settings, "--set=training.steps=2")
    well("train", path, "--out", tmp_path / "parts", *settings, "--set=training.steps=4", "--resume")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
