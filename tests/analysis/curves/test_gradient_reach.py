"""The gradient at each source token, against finite differences and against PyTorch on a model taken apart."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from jumok.analysis.curves.gradient_reach import reach_by_distance, reach_curves, relative_gradients, source_gradients
from jumok.data import Batch, collate
from jumok.errors import ArgumentError
from jumok.models.build import build_model
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.models.rnn.encoder import RnnEncoderConfig
from jumok.models.transformer.decoder import TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoderConfig

RNN = {"width": 8, "embedding": 6, "dropout": 0.5}
TRANSFORMER = {"width": 8, "heads": 2, "hidden": 8, "layers": 2, "dropout": 0.5}
VOCABULARY = 20
ROWS = [([1, 5, 6, 7, 8, 2], [1, 9, 10, 11, 2]), ([1, 12, 13, 2], [1, 14, 2])]  # no source token comes twice


def model_of(attention: str, tied: str = "none"):
    if attention == "transformer":
        halves = TransformerEncoderConfig(**TRANSFORMER), TransformerDecoderConfig(**TRANSFORMER, tied=tied)
    else:
        halves = RnnEncoderConfig(**RNN), RnnDecoderConfig(**RNN, attention=attention)
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "shared_vocabulary": True}
    return build_model(*halves, **sizes).double().train()


def loss(model, batch: Batch) -> torch.Tensor:
    """−Σ log p of the targets, by the model as anybody calls it."""
    log_probs = model(batch.source, batch.source_visible, batch.target_in).logits.log_softmax(-1)
    return -log_probs.gather(-1, batch.target_out[..., None])[..., 0][batch.target_visible].sum()


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["none", "additive", "general", "transformer"])
def test_gradients_are_the_slopes_of_the_loss(attention):
    model, batch = model_of(attention), collate(ROWS)
    found = source_gradients(model, batch)
    assert model.training
    model.eval()
    embedding, tiny = model.encoder.embedding, 1e-5
    for row, place in [(0, 0), (0, 3), (1, 1)]:
        slopes = []
        for feature in range(embedding.width):
            at = batch.source[row, place], feature
            ends = []
            for step in (tiny, -tiny):
                with torch.no_grad():
                    embedding.table[at] += step
                    ends.append(float(loss(model, batch)))
                    embedding.table[at] -= step
            slopes.append((ends[0] - ends[1]) / (2 * tiny))
        # A row of the table is multiplied before it is a vector.
        assert float(found[row, place]) == pytest.approx(np.linalg.norm(slopes) / embedding.factor, rel=1e-4)


def test_a_table_shared_with_the_decoder_counts_for_the_source_alone():
    model, batch = model_of("transformer", tied="all"), collate(ROWS)
    apart = deepcopy(model).eval()
    apart.encoder.tokens.embedding = deepcopy(apart.encoder.embedding)
    loss(apart, batch).backward()
    rows = apart.encoder.embedding.table.grad[batch.source[0]].norm(dim=-1) / apart.encoder.embedding.factor
    visible = batch.source[0] != 2  # the end mark comes once in each sentence, and its row has the gradient of both
    assert torch.allclose(source_gradients(model, batch)[0][visible].double(), rows[visible], rtol=1e-5)


def test_padding_gets_no_gradient_and_weights_keep_none():
    model, batch = model_of("additive"), collate(ROWS)
    found = source_gradients(model, batch)
    assert (found[~batch.source_visible] == 0).all()
    assert (found[batch.source_visible] > 0).all()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_shares_of_a_sentence_average_to_one_without_its_end_mark():
    shares = list(relative_gradients(model_of("none"), [collate(ROWS)]))
    assert [len(one) for one in shares] == [4, 2]
    assert all(one.mean() == pytest.approx(1) for one in shares)


def test_distances_count_from_the_nearer_end_or_from_the_last_token():
    sentence = np.array([5.0, 1.0, 0.0, 2.0, 7.0])
    both = reach_by_distance([sentence] * 5, every=1)
    assert [(one.nearest, one.share, one.tokens) for one in both] == [(0, 6.0, 10), (1, 1.5, 10), (2, 0.0, 5)]
    last = reach_by_distance([sentence] * 5, every=2, ends="last")
    assert [(one.nearest, one.farthest, one.share) for one in last] == [(0, 1, 4.5), (2, 3, 0.5), (4, 5, 5.0)]
    assert all(one.low == one.share == one.high for one in both)  # sentences that are all alike leave no doubt
    assert "nearer end" in reach_curves({"a": both}, title="t")[0].x.label


def test_where_no_sentence_is_long_enough_that_is_said():
    with pytest.raises(ArgumentError, match="no source has 9 tokens"):
        reach_by_distance([np.ones(5)], shortest=9)
    with pytest.raises(ArgumentError, match="only 1 of the sources"):
        reach_by_distance([np.ones(9)], shortest=9)


def test_a_fresh_fixed_context_forgets_the_middle_and_attention_does_not():
    rng = np.random.default_rng(0)
    texts = rng.integers(4, 20, (5, 2, 40)).tolist()
    rows = [([1, *source, 2], [1, *target, 2]) for source, target in texts]
    ends = {}
    for attention in ("none", "additive"):
        reach = reach_by_distance(list(relative_gradients(model_of(attention), [collate(rows)])))
        ends[attention] = reach[-1].share / reach[0].share
    assert ends["none"] < 0.05
    assert ends["additive"] > 0.3
