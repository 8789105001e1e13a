"""Augmentation: what changes in an image depends on its row and epoch alone, and on nothing around it."""

import numpy as np
import torch

from jumok.images.augment import AugmentConfig, augment
from jumok.images.store import to_tensor


def noise(count=3, side=16):
    return to_tensor(list(np.random.default_rng(0).integers(256, size=(count, side, side, 3), dtype=np.uint8)))


def test_what_is_done_to_an_image_depends_on_its_row_and_epoch_alone():
    images, rows = noise(), np.array([5, 9, 2])
    changes = AugmentConfig(crop=0.6, flip=True, colour=0.3)
    together = augment(images, rows, changes, seed=1, epoch=4)
    alone = augment(images[1:2], rows[1:2], changes, seed=1, epoch=4)
    assert torch.equal(together[1:2], alone)
    assert not torch.equal(together, augment(images, rows, changes, seed=1, epoch=5))
    assert not torch.equal(together, augment(images, rows, changes, seed=2, epoch=4))


def test_no_changes_leave_the_image_alone():
    assert augment(noise(), np.arange(3), AugmentConfig(), seed=1, epoch=0) is not None
    assert torch.equal(augment(noise(), np.arange(3), AugmentConfig(), seed=1, epoch=0), noise())


def test_a_flip_is_a_mirror_of_every_other_image():
    images = noise(200, 8)
    flipped = augment(images, np.arange(200), AugmentConfig(flip=True), seed=1, epoch=0)
    mirrored = [torch.equal(new, old.flip(-1)) for new, old in zip(flipped, images, strict=True)]
    kept = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(one != other for one, other in zip(mirrored, kept, strict=True))
    assert 60 < sum(mirrored) < 140


def test_a_crop_shows_a_part_of_the_image_enlarged():
    ramp = np.zeros((1, 32, 32, 3), np.uint8)
    ramp[:] = np.arange(32, dtype=np.uint8)[None, None, :, None] * 8
    cropped = augment(to_tensor(list(ramp)), np.array([1]), AugmentConfig(crop=0.5), seed=1, epoch=0)[0, 0, 0].float()
    steps = cropped.diff()
    assert (steps >= 0).all()
    assert 4 <= steps.mean() < 8  # flatter than the ramp, but not by more than a factor of two
