"""`jumok import` and `jumok export`: model folders from other toolkits, and for them."""

from pathlib import Path
from re import fullmatch

from jumok.decoding.config import Quantization
from jumok.decoding.ctranslate2_engine import SHORTLIST
from jumok.decoding.ctranslate2_model import write_model
from jumok.errors import ArgumentError, DataError, JumokError, ModelError, first_line
from jumok.exchange import Format, to_hugging_face, to_onnx
from jumok.exchange.hugging_face import CONFIG, read_config
from jumok.exchange.joeynmt import CONFIG as YAML
from jumok.exchange.joeynmt import read_joeynmt
from jumok.exchange.m2m100 import M2M100Folder
from jumok.exchange.marian import MarianFolder
from jumok.exchange.opennmt import read_opennmt
from jumok.files import check_place
from jumok.model_folder import RECIPE, WEIGHTS, write_file
from jumok.tasks.translation import TRANSLATION, TranslationTask
from jumok.tasks.translator import TrainedTranslator

READ = (
    "`jumok import` reads folders of Hugging Face of type marian (Marian, OPUS-MT) and m2m_100 (M2M-100, NLLB), "
    "folders of JoeyNMT with config.yaml and a checkpoint, and checkpoints of OpenNMT-py's Transformers"
)
MOST_TERMS = 1 << 20
"""The largest README or licence that is copied."""
CONVERT = (
    "convert it to a folder of Hugging Face with transformers' convert_marian_to_pytorch.py, and import that folder"
)


def export_model(
    folder: str | Path,
    out: str | Path,
    *,
    to: Format = "ctranslate2",
    quantization: Quantization = "float32",
    task: TranslationTask = TRANSLATION,
) -> str:
    """Write the translation model in `folder` to the new folder `out`, in the format of another toolkit.

    Returns a description of what can read it.
    """
    out = Path(out)
    check_place(out)
    if out.exists() and any(out.iterdir()):
        raise ModelError(f"{out} is not empty; export into a new folder")
    translator = task.load(folder, device="cpu")
    trained = translator.trained
    if to == "ctranslate2":
        write_model(trained.model, trained.tokenizers, out, quantization=quantization)
        for name, content in trained.tokenizers.files().items():
            write_file(out / name, content)
        if quantization == "int8" and (shortlist := translator.engines.shortlist()) is not None:
            write_file(out / SHORTLIST, shortlist.text(trained.tokenizers).encode())
        return "ctranslate2.Translator"
    if quantization != "float32":
        raise ArgumentError(
            f"`quantization={quantization}` applies only to `to=ctranslate2`; leave it out with `to={to}`"
        )
    if to == "onnx":
        to_onnx.export_model(trained, out)
        return "onnxruntime.InferenceSession"
    return f"transformers.{to_hugging_face.export_model(trained, out, marian=to == 'marian-hf')}"


def import_model(
    folder: str | Path,
    out: str | Path,
    *,
    source: str | None = None,
    target: str | None = None,
    tokenizer: str | Path | None = None,
) -> TrainedTranslator:
    """Read a model of another toolkit and write it as the model folder `out`, which must not hold one yet.

    `source` and `target` are the languages of a model that has several, used unless others are named later.
    `tokenizer` is the sentencepiece model of a checkpoint of OpenNMT-py, which holds none.
    """
    out = Path(out)
    check_place(out)
    if (out / WEIGHTS).exists():
        raise ModelError(f"{out} already holds a model; import into another folder")
    trained = read_foreign(Path(folder), source, target, tokenizer)
    TRANSLATION.save(out, trained, scores={"imported from": trained.recipe.data.imported})
    _keep_terms(Path(folder), out)
    return trained


def _keep_terms(folder: Path, out: Path) -> None:
    """Copy the description and the licence of a folder, which say how its model may be used."""
    for path in (*folder.glob("README*"), *folder.glob("LICENSE*")) if folder.is_dir() else ():
        if path.is_file() and path.stat().st_size <= MOST_TERMS:
            write_file(out / f"original-{path.name}", path.read_bytes())


def read_foreign(
    path: Path, source: str | None = None, target: str | None = None, tokenizer: str | Path | None = None
) -> TrainedTranslator:
    """A model of another toolkit; a DataError names what can be read where it is something else."""
    if not path.exists():
        raise DataError(_how_to_download(path))
    try:
        if path.is_file() and path.suffix == ".pt":
            return _set_languages(read_opennmt(path, tokenizer), source, target)
        if tokenizer is not None:
            raise ArgumentError(
                "`tokenizer=` applies only to OpenNMT-py checkpoints; other models contain their tokenizer"
            )
        if (path.parent if path.is_file() else path).joinpath(YAML).exists():
            return _set_languages(read_joeynmt(path), source, target)
        config = read_config(path) if (path / CONFIG).exists() else {}
        kind = config.get("model_type")
        if kind == "m2m_100":
            return M2M100Folder(path, config).trained(source, target)
        if kind != "marian":
            raise DataError(f'{path} holds a model of type "{kind}"; {READ}' if kind else _why_foreign(path))
        return _set_languages(MarianFolder.of(path, config).trained(), source, target)
    except JumokError:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        raise DataError(f"{path} is damaged or of an unknown version ({why}); {READ}") from None


def _how_to_download(path: Path) -> str:
    """What to do about a path that does not exist; OWNER/NAME is how Hugging Face names models."""
    missing = f"there is no folder or file {path}; `jumok import` reads models on this machine only"
    if not fullmatch(r"[\w.-]+/[\w.-]+", str(path)) or path.parent.exists():
        return missing
    return (
        f"{missing}; download a model of Hugging Face first: hf download {path} --local-dir {path.name}; then: "
        f"jumok import {path.name} --out runs/{path.name}"
    )


def _why_foreign(path: Path) -> str:
    """Why a folder or file cannot be imported, and what to do."""
    files = [path] if path.is_file() else list(path.iterdir())
    if any(file.suffix == ".npz" for file in files):
        return f"{path} is a model of Marian itself; {CONVERT}"
    if path.is_file():
        if (path.parent / CONFIG).exists():
            return f"{path} is a file; name its folder: jumok import {path.resolve().parent}"
        return f"{path} is not a model; {READ}"
    if (path / RECIPE).exists():
        return f"{path} is a model folder of jumok already; use it as it is: jumok translate {path}"
    if (path / CONFIG).exists() and (path / "model.bin").exists():
        return f"{path} is a model of CTranslate2, which is not converted back; import the model it was made from"
    return f"{path} has no {CONFIG} that names a type of model; {READ}"


def _set_languages(trained: TrainedTranslator, source: str | None, target: str | None) -> TrainedTranslator:
    return trained._replace(tokenizers=trained.tokenizers.between(source, target))
