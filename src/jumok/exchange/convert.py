"""`jumok import` and `jumok export`: model folders of ours from and for other toolkits."""

from pathlib import Path
from typing import Literal

from jumok.decoding.ctranslate2_model import Quantization
from jumok.errors import ModelError
from jumok.exchange import to_ctranslate2
from jumok.exchange.marian import MarianFolder
from jumok.files import check_place
from jumok.model_folder import WEIGHTS
from jumok.tasks import TRANSLATION
from jumok.tasks.translator import TrainedTranslator

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


def import_model(folder: str | Path, out: str | Path) -> TrainedTranslator:
    """Read a model of another toolkit and write it as the model folder `out`, which must not hold one yet."""
    out = Path(out)
    check_place(out)
    if (out / WEIGHTS).exists():
        raise ModelError(f"{out} holds a model already; import into another folder")
    trained = MarianFolder.open(folder).trained()
    TRANSLATION.save(out, trained, scores={"imported from": trained.recipe.data.imported})
    return trained
