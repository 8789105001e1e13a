"""`jumok look CAPTIONER image.jpg`: caption an image and show where every word of the caption looked."""

from os.path import exists
from typing import TYPE_CHECKING, Any

from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.attention_map import AttentionMap


def looked_in_image(
    model: str, image: str | None, *, caption: str | None, beam: int | None, words: bool, device: str
) -> tuple[dict[str, Any], "AttentionMap"]:
    """What there is to say of the caption, the model's own or one that is given, and its map."""
    from jumok.captioner import Captioner

    if image is None:
        raise ArgumentError(f"{model} is a captioner; say which image to look at: jumok look {model} image.jpg")
    if not exists(image):
        raise ArgumentError(
            f"there is no image {image}; {model} is a captioner and looks at images: jumok look {model} image.jpg, and "
            "a caption of your own goes behind --target"
        )
    captioner = Captioner.load(model, device=device)
    found: dict[str, Any] = {"image": image}
    if caption is not None:
        found["text"], shown = caption, captioner.attention(image, caption, words=words)
    else:
        (own,) = captioner.caption([image], beam=beam)
        found |= {"text": own.text, "score": round(own.score, 4)}
        shown = own.attention(words=words)
    return found, shown
