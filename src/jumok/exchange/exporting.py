"""`jumok export`: a model folder of ours for another toolkit."""

from pathlib import Path
from typing import Literal

from jumok.errors import ModelError
from jumok.exchange import to_ctranslate2
from jumok.exchange.to_ctranslate2 import Quantization
from jumok.files import check_place
from jumok.tasks import TRANSLATION

Format = Literal["ctranslate2"]


def export_model(
    folder: str | Path, out: str | Path, *, to: Format = "ctranslate2", quantization: Quantization = "float32"
) -> None:
    """Write the translation model in `folder` to the new folder `out`, in the format of another toolkit."""
    out = Path(out)
    check_place(out)
    if out.exists() and any(out.iterdir()):
        raise ModelError(f"{out} is not empty; export into a new folder")
    trained = TRANSLATION.load(folder, device="cpu").trained
    to_ctranslate2.export_model(trained, out, quantization=quantization)
