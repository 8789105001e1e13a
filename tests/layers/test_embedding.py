import pytest
import torch

from jumok.layers.embedding import TokenEmbedding

torch.set_num_threads(1)


def test_it_looks_up_as_torch_embedding_does():
    ours = TokenEmbedding(vocabulary=7, width=4)
    ids = torch.tensor([[0, 6], [3, 3]])
    assert torch.equal(ours(ids), torch.nn.functional.embedding(ids, ours.table))
    assert ours(ids.int()).shape == (2, 2, 4)
    assert ours(torch.zeros(0, 5, dtype=torch.long)).shape == (0, 5, 4)


def test_scale_multiplies_by_the_root_of_the_width():
    torch.manual_seed(0)
    embedding = TokenEmbedding(vocabulary=1000, width=64, scale=True)
    out = embedding(torch.arange(1000))
    torch.testing.assert_close(out, embedding.table * 8)
    assert out.std().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("vector_width", [4, 6])
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.AdamW])
def test_padding_is_zero_and_stays_zero_while_training(vector_width, optimiser):
    embedding = TokenEmbedding(vocabulary=5, width=4, padding=2, vectors=torch.randn(5, vector_width), scale=True)
    ids = torch.tensor([2, 1, 2, 0])
    before = embedding(ids).detach()
    step = optimiser(embedding.parameters(), lr=0.1)
    for _ in range(3):
        step.zero_grad()
        (embedding(ids) - 1).square().sum().backward()
        step.step()
    after = embedding(ids)
    assert (before[[0, 2]] == 0).all()
    assert (after[[0, 2]] == 0).all()
    assert (after[1] != before[1]).any()


def test_pretrained_vectors_are_used_and_not_shared_with_the_caller():
    vectors = torch.randn(5, 4)
    embedding = TokenEmbedding(vocabulary=5, width=4, vectors=vectors)
    assert torch.equal(embedding(torch.arange(5)), vectors)
    assert embedding.project is None
    vectors.zero_()
    assert (embedding(torch.arange(5)) != 0).any()


def test_words_unknown_to_the_vectors_are_drawn_with_their_mean_and_spread():
    torch.manual_seed(0)
    vectors = 3 + 0.1 * torch.randn(400, 50)
    vectors[200:] = torch.nan
    table = TokenEmbedding(vocabulary=400, width=50, vectors=vectors).table.detach()
    assert torch.equal(table[:200], vectors[:200])
    assert table[200:].mean().item() == pytest.approx(3, abs=0.01)
    assert table[200:].std().item() == pytest.approx(0.1, abs=0.01)
    assert len(table[200:].unique(dim=0)) == 200


def test_vectors_that_know_no_word_leave_a_random_table():
    table = TokenEmbedding(vocabulary=4, width=3, vectors=torch.full((4, 3), torch.nan)).table
    assert table.isfinite().all()


def test_vectors_of_another_width_are_projected():
    vectors = torch.randn(5, 6)
    embedding = TokenEmbedding(vocabulary=5, width=4, vectors=vectors)
    torch.testing.assert_close(embedding(torch.tensor([3])), vectors[3:4] @ embedding.project.weight.T)


def test_frozen_vectors_do_not_learn_but_their_projection_does():
    embedding = TokenEmbedding(vocabulary=5, width=4, vectors=torch.randn(5, 6), freeze=True)
    embedding(torch.tensor([1])).sum().backward()
    assert embedding.table.grad is None
    assert (embedding.project.weight.grad != 0).any()
