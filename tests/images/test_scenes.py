"""Built-in scenes: the same every time, and their captions true of their pixels."""

import numpy as np
import pytest

from jumok.images.scenes import COLOURS, KOREAN, SHAPES, scene, scenes


def middle(mask):
    """Centre of a mask as (x, y)."""
    rows, columns = np.nonzero(mask)
    return columns.mean(), rows.mean()


def seen_relation(one, other):
    """How two masks lie, from their pixels alone."""
    (x, y), (u, v) = middle(one), middle(other)
    if abs(x - u) > abs(y - v):
        return "left of" if x < u else "right of"
    return "above" if y < v else "below"


def test_a_scene_is_the_same_every_time_and_another_for_every_number():
    assert scene(3) == scene(3)
    assert np.array_equal(scene(3).picture(48), scene(3).picture(48))
    assert len({scene(number) for number in range(50)}) == 50
    assert scene(3, seed=1) != scene(3)


def test_no_caption_of_one_split_is_in_another():
    captions = {split: {one.caption() for one in scenes(40, split=split)} for split in ("train", "valid", "test")}
    assert not captions["train"] & captions["valid"]
    assert not captions["train"] & captions["test"]
    assert not captions["valid"] & captions["test"]


def test_pixels_of_a_thing_have_the_colour_its_words_say_and_others_do_not():
    for one in scenes(30):
        picture, masks = one.picture(64).astype(int), one.masks(64)
        for mask, thing in zip(masks, one.things, strict=True):
            colour = np.median(picture[mask], axis=0)
            nearest = min(COLOURS, key=lambda name: np.abs(np.array(COLOURS[name]) - colour).sum())
            assert nearest == thing.colour
        paper = picture[~masks.any(0)]
        assert np.ptp(paper.mean(0)) < 3
        assert paper.mean() > 195


def test_masks_do_not_touch_and_are_as_large_as_their_words_say():
    extents = {"small": [], "": [], "large": []}
    for one in scenes(30):
        masks = one.masks(64)
        assert masks.sum(0).max() == 1
        for mask, thing in zip(masks, one.things, strict=True):
            extents[thing.size].append(np.ptp(np.nonzero(mask)[1]))
    assert max(extents["small"]) < min(extents[""]) <= max(extents[""]) < min(extents["large"])


def test_captions_say_how_the_pixels_lie():
    for one in scenes(30):
        masks, text = one.masks(96), one.caption()
        first, rest = text.split(one.things[0].shape, 1)
        assert one.things[0].colour in first
        for number in range(1, len(one.things)):
            thing = one.things[number]
            relation = rest.split(" a ")[number - 1].replace("and", "").replace(one.things[number - 1].shape, "")
            assert seen_relation(masks[0], masks[number]) in relation, text
            assert thing.colour in text


def test_the_caption_is_about_what_is_nearest_to_the_middle():
    for one in scenes(30):
        distances = [np.hypot(*(np.array(middle(mask)) - 31.5)) for mask in one.masks(64)]
        assert distances[0] == min(distances)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_thing_is_named_by_its_colour_and_its_shape(language):
    for one in scenes(30):
        words = one.words(language)
        assert " ".join(word.text for word in words) == one.caption(language)
        for number, thing in enumerate(one.things):
            said = [word.text for word in words if word.thing == number]
            wanted = [part for part in (thing.size, thing.colour, thing.shape) if part]
            if language == "ko":
                wanted = [KOREAN[part] for part in wanted]
                said[-1] = said[-1].rstrip("이가") if number == 0 else said[-1]
            assert said == wanted


def test_korean_captions_have_the_particle_of_their_last_syllable():
    texts = [one.caption("ko") for one in scenes(60)]
    assert any("별이" in text for text in texts)
    assert not any("별가" in text or "네모이" in text for text in texts)
    assert all(text.endswith("있다") for text in texts)
    assert {shape for shape in SHAPES if any(KOREAN[shape] in text for text in texts)} == set(SHAPES)
