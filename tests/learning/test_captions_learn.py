"""Captioners from nothing to words that look where they should, in seconds and without being told where."""

import numpy as np
import pytest
import torch

from jumok.data.batches import BatchConfig
from jumok.data.dataset import write_dataset
from jumok.data.subwords import BOS, EOS, SPECIALS
from jumok.images.encoder import PatchEncoderConfig, build_captioner
from jumok.images.store import ImageBatch, ImageBatches, PreparedSplit, to_tensor
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.rnn.decoder import RnnDecoderConfig
from jumok.tasks.captioning import CaptioningTask, unevenness
from jumok.tasks.recipes import CaptionTraining
from jumok.training import train

pytestmark = pytest.mark.long

COLOURS = np.array([[220, 30, 30], [30, 180, 30], [40, 60, 220], [230, 210, 30]], np.uint8)
SIDE, PATCH = 16, 4
CELLS = (SIDE // PATCH) ** 2
DECODERS = {
    "additive": RnnDecoderConfig(width=32, embedding=16, dropout=0.0),
    "general": RnnDecoderConfig(width=32, embedding=16, dropout=0.0, attention="general"),
}


def dots(count, seed):
    """Pictures with a coloured patch in every column; captions say the colours of the first and the third column.

    What is in the other columns can be seen and must not be said, so no word can be guessed from what is there at all.
    """
    draws = np.random.default_rng(seed)
    images = np.full((count, SIDE, SIDE, 3), 128, np.uint8)
    rows = draws.integers(SIDE // PATCH, size=(count, SIDE // PATCH))
    colours = draws.integers(len(COLOURS), size=rows.shape)
    for (image, column), row in np.ndenumerate(rows):
        corner = images[image, row * PATCH :, column * PATCH :]
        corner[:PATCH, :PATCH] = COLOURS[colours[image, column]]
    return images, [[BOS, *said, EOS] for said in (colours[:, ::2] + SPECIALS).tolist()]


def trained(folder, decoder, steps=450, **settings) -> EncoderDecoder:
    images, captions = dots(800, seed=1)
    store = write_dataset(folder / "train.store", ([[n], ids] for n, ids in enumerate(captions)), size=800)
    config = CaptionTraining(metric="loss", steps=steps, learning_rate=0.01, warmup=20, label_smoothing=0.0, **settings)
    encoder = PatchEncoderConfig(patch=PATCH, layers=0, width=32, dropout=0.0)
    model = build_captioner(encoder, decoder, side=SIDE, vocabulary=SPECIALS + len(COLOURS))
    batches = ImageBatches(PreparedSplit(images, store), BatchConfig(tokens=200), seed=1)
    train(model, batches, config, folder=folder / "run", task=CaptioningTask())
    return model.eval()


def unseen():
    images, captions = dots(200, seed=2)
    return to_tensor(list(images)), torch.tensor(captions)


@pytest.mark.parametrize("decoder", DECODERS)
def test_each_colour_word_looks_at_its_column_though_nobody_said_where(tmp_path, decoder):
    model = trained(tmp_path, DECODERS[decoder])
    images, captions = unseen()
    with torch.no_grad():
        found = model(images, captions[:, :-1])
    right = found.logits.argmax(-1) == captions[:, 1:]
    assert right.float().mean() >= 0.98
    columns = found.attention[0]().squeeze(1).view(len(images), 3, *model.encoder.grid).sum(2)
    looks = columns[:, :2].argmax(-1) == torch.tensor([0, 2])  # by chance a quarter would be right
    # Bahdanau's state carries what it has seen on, so it may see the second colour early; Luong's look is for one word.
    share = looks[:, 0] if decoder == "additive" else looks
    assert share.float().mean() >= (0.7 if decoder == "additive" else 0.9)


def test_attention_that_is_asked_to_leaves_no_region_out(tmp_path):
    images, captions = unseen()
    spread = {}
    for weight in (0.0, 1.0):
        model = trained(tmp_path / str(weight), DECODERS["general"], steps=100, doubly_stochastic=weight)
        with torch.no_grad():
            attention = model(images, captions[:, :-1]).attention
        spread[weight] = float(unevenness(attention, torch.ones_like(captions[:, 1:], dtype=torch.bool))) / len(images)
    assert spread[1.0] < 0.9 * spread[0.0]
    # Three words have 3 to give to 16 regions: no map is more even than 3/16 for each.
    assert spread[1.0] >= CELLS * (1 - 3 / CELLS) ** 2 - 1e-3


def test_unevenness_is_the_papers_sum():
    weights = torch.rand(3, 2, 4, 5).softmax(-1)
    words = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    wanted = 0.0
    for caption in range(3):
        for region in range(5):
            looked = sum(float(weights[caption, :, t, region].mean()) for t in range(4) if words[caption, t])
            wanted += (1 - looked) ** 2
    found = unevenness([lambda **_: weights], words)
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_a_batch_that_does_not_fit_has_halves_that_are_the_whole():
    images, captions = dots(5, seed=3)
    ids = torch.tensor(captions)
    visible = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    visible[3:, 2] = False
    batch = ImageBatch(to_tensor(list(images)), ids[:, :-1], ids[:, 1:], visible)
    first, second = CaptioningTask().halves(batch)
    assert len(first.images) + len(second.images) == 5
    assert torch.equal(torch.cat([first.images, second.images]), batch.images)
    model = build_captioner(
        PatchEncoderConfig(patch=4, layers=0, width=32), DECODERS["general"], side=SIDE, vocabulary=8
    ).eval()
    task, config = CaptioningTask(), CaptionTraining()
    parts = [task.loss(model, part, torch.device("cpu"), config).total.item() for part in (batch, first, second)]
    assert parts[0] == pytest.approx(parts[1] + parts[2], rel=1e-4)
