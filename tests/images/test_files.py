"""Images read as they look, whatever their format says about turning, transparency and depth."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from jumok.images.files import decode_image, read_image, squared

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def stripes(height=8, width=12):
    """Red above blue."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2], picture[height // 2 :] = RED, BLUE
    return picture


def saved(image, **options):
    file = BytesIO()
    image.save(file, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "PPM", "WEBP"])
def test_a_file_gives_the_pixels_that_were_saved(tmp_path, kind):
    path = tmp_path / f"picture.{kind.lower()}"
    options = {"lossless": True} if kind == "WEBP" else {}
    path.write_bytes(saved(Image.fromarray(stripes()), format=kind, **options))
    assert np.array_equal(read_image(path), stripes())


def test_a_photo_taken_sideways_is_turned_upright():
    turned = Image.fromarray(np.rot90(stripes()).copy())  # what a camera held sideways stores
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it a quarter to the right to see it upright
    found = decode_image(saved(turned, format="PNG", exif=exif), "photo")
    assert np.array_equal(found, stripes())


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_what_is_transparent_is_white(mode):
    picture = np.dstack([stripes(), np.full((8, 12), 255, np.uint8)])
    picture[:4, :, 3] = 0
    image = Image.fromarray(picture)
    image = image if mode == "RGBA" else image.quantize(4)
    found = decode_image(saved(image, format="PNG"), "picture")
    assert np.array_equal(found[0, 0], WHITE)
    assert np.array_equal(found[-1, 0], BLUE)


def test_sixteen_bits_a_pixel_are_cut_to_eight():
    deep = Image.fromarray(np.array([[0, 256 * 100, 65535]], np.uint16))
    found = decode_image(saved(deep, format="PNG"), "scan")
    assert found[0, :, 0].tolist() == [0, 100, 255]


def test_greys_and_cmyk_become_red_green_and_blue():
    grey = decode_image(saved(Image.new("L", (2, 2), 77), format="PNG"), "grey")
    assert grey.shape == (2, 2, 3)
    assert (grey == 77).all()
    print_ = decode_image(saved(Image.new("CMYK", (2, 2), (0, 0, 0, 0)), format="JPEG"), "print")
    assert (print_ > 250).all()


def test_crop_keeps_the_middle_and_stretch_keeps_all():
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = WHITE
    assert (squared(wide, 4) == 255).all()
    stretched = squared(wide, 12, fit="stretch")
    assert (stretched[:, 6] == 255).all()
    assert (stretched[:, 0] == 0).all()


def test_an_image_of_the_right_size_is_left_as_it_is():
    picture = np.random.default_rng(0).integers(256, size=(16, 16, 3), dtype=np.uint8)
    assert np.array_equal(squared(picture, 16), picture)


@pytest.mark.parametrize("side", [1, 7, 33])
def test_images_of_any_size_become_squares(side):
    for shape in ((1, 1), (1, 50), (3, 2), (40, 60)):
        assert squared(np.zeros((*shape, 3), np.uint8), side).shape == (side, side, 3)
