"""`jumok import`: a model of another toolkit becomes a model folder of ours."""

from pathlib import Path

from jumok.errors import ModelError
from jumok.exchange.marian import MarianFolder
from jumok.files import check_place
from jumok.model_folder import WEIGHTS
from jumok.tasks import TRANSLATION
from jumok.tasks.translator import TrainedTranslator


def import_model(folder: str | Path, out: str | Path) -> TrainedTranslator:
    """Read a model of another toolkit and write it as the model folder `out`, which must not hold one yet."""
    out = Path(out)
    check_place(out)
    if (out / WEIGHTS).exists():
        raise ModelError(f"{out} holds a model already; import into another folder")
    trained = MarianFolder.open(folder).trained()
    TRANSLATION.save(out, trained, scores={"imported from": trained.recipe.data.imported})
    return trained
