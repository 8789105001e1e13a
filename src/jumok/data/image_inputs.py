"""What prepared images were made from, so that the same images and captions are known again wherever they are."""

import hashlib
from dataclasses import asdict
from functools import partial
from pathlib import Path

from jumok.data.image_folder import ImageFolder
from jumok.data.image_pairs import ImagesConfig, read_captions
from jumok.data.made_from import Inputs, find, state, why_other
from jumok.data.store import fingerprint_of, open_store
from jumok.data.tokenizer import TokenizerConfig

FORMAT = 1


def image_inputs(config: ImagesConfig, tokenizer: TokenizerConfig) -> Inputs:
    """What a recipe for captions names."""
    places = ("path", "captions")
    files = {key: value for key in places if (value := getattr(config, key))}
    states = [state(path) if path else ("", -1, -1) for path in (config.path, config.captions)]
    settings = {key: value for key, value in asdict(config).items() if key not in places}
    return Inputs(
        fingerprint_of(asdict(config), asdict(tokenizer), states, FORMAT),
        fingerprint_of(settings, asdict(tokenizer), FORMAT),
        files,
        {"path": partial(images_digest, config)} if config.path else {},
    )


def images_digest(config: ImagesConfig) -> str:
    """Of the images that captions name: each name and size, and in a zip the checksum that stands there.

    Reading every image would take as long as preparing them. What else lies in the folder does not count.
    """
    folder = ImageFolder(config.path)
    found = sorted((image, *folder.facts(image)) for image in read_captions(config).lines)
    return hashlib.sha256("".join(f"{one}\n" for one in found).encode("utf-8", "surrogatepass")).hexdigest()


def why_outdated(folder: str | Path, config: ImagesConfig, tokenizer: TokenizerConfig) -> str:
    """Why `prepare_images` would write over what it made of other images or captions; "" if it would not."""
    folder, inputs = Path(folder), image_inputs(config, tokenizer)
    found = find(folder, inputs)
    if not found.recorded or not (folder / "valid.store").exists():
        return ""  # of an earlier jumok, or not done: made anew, and compared then
    whole = all(open_store(folder / f"{name}.store", found.fingerprint) for name in ("train", "valid"))
    return "" if whole else why_other(folder, inputs, found, "images")
