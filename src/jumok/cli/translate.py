"""`jumok translate`: standard input to standard output, one text per line."""

import sys
from collections.abc import Callable
from os.path import exists, isdir, isfile
from pathlib import Path
from re import fullmatch
from typing import Annotated, Any

from typer import Argument, Option

import jumok
from jumok.cli import library
from jumok.cli.arguments import (
    BUNDLED_HELP,
    Beam,
    DecodingEngine,
    DecodingPrecision,
    Device,
    FromLanguage,
    LengthPenalty,
    MaxLength,
    MaxSource,
    MinimumRisk,
    MinLength,
    NoRepeat,
    Sample,
    Seed,
    Tag,
    TaskFile,
    Temperature,
    ToLanguage,
    TopK,
    TopP,
    check_picture_kind,
    decoding_option,
    model_or_bundled,
    named_folder,
    sampling_settings,
    task_or,
)
from jumok.cli.output import print_json, say
from jumok.cli.streams import is_live, is_typed, live_groups
from jumok.errors import ArgumentError
from jumok.files import STDIN, check_place, read_lines
from jumok.progress import ProgressBars


def translate(
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="[MODEL]... [FILE]",
            help=f"{BUNDLED_HELP} Several folders form an ensemble. FILE: same as --source.",
        ),
    ] = None,
    source: Annotated[str, Option(help='File to translate, also .gz or .xz; "-" is standard input.')] = "-",
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    beam: Beam = None,
    n_best: Annotated[
        int, decoding_option("beam", "Number of translations per line, separated by tabs, each followed by its score.")
    ] = 1,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    no_repeat: NoRepeat = None,
    sample: Sample = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    mbr: MinimumRisk = None,
    max_source: MaxSource = None,
    tag: Tag = None,
    prefix: Annotated[str | None, Option(help="Text with which every translation begins.")] = None,
    terms: Annotated[
        Path | None,
        Option(
            help="File of terms that translations must contain; each line has a source term, a tab and a target term."
        ),
    ] = None,
    no_split: Annotated[
        bool, Option("--no-split", help="Refuse texts that are too long instead of translating them in parts.")
    ] = False,
    attention: Annotated[
        Path | None,
        Option(parser=named_folder, metavar="<path>", help="Also save an attention map for each line in this folder."),
    ] = None,
    format: Annotated[str, Option(help="File format of these maps: svg, png, pdf, html, json or txt.")] = "svg",
    batch: Annotated[int, Option(min=1, help="Maximum number of lines translated at once.")] = 1024,
    task: TaskFile = None,
    device: Device = "auto",
    engine: DecodingEngine = None,
    precision: DecodingPrecision = None,
    json: Annotated[bool, Option("--json", help="Print one JSON object per line, with scores.")] = False,
    probabilities: Annotated[
        bool, Option("--probabilities", help="With --json, also print the probability of each word.")
    ] = False,
) -> None:
    """Translate one text per line; line n of the output belongs to line n of the input."""
    if attention is not None:
        check_place(attention)
    if format not in (formats := library.draw.FORMATS):
        raise ArgumentError(f"--format {format!r} is not a format for maps; choose one of {', '.join(formats)}")
    check_picture_kind(format)
    if probabilities and not json:
        raise ArgumentError("--probabilities needs --json")
    older_maps = set() if attention is None else _saved_maps(attention)
    models, file = _models_and_file(arguments or [])
    source = _source(models[0] if models else None, file, source)
    required = None if terms is None else library.terms.read_terms(terms)
    its_task = task_or(library.tasks.TRANSLATION, task, models=len(models) or 1)
    translator = library.tasks.load(models or model_or_bundled(None), device=device, task=its_task)
    translator = translator.between(from_language, to_language)
    # At a terminal a bar would appear between the lines that are typed or printed.
    with_bars = not is_typed(source) and not sys.stdout.isatty()
    with ProgressBars() as bars:
        settings: dict[str, Any] = {"beam": beam, "n_best": n_best, "no_repeat": no_repeat, "split": not no_split}
        settings |= {"length_penalty": length_penalty, "min_length": min_length, "max_length": max_length}
        settings |= {"engine": engine, "precision": precision}
        drawing: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        settings |= sampling_settings(sample, mbr, n_best, beam=beam, **drawing)
        settings |= {
            "max_source": max_source,
            "tag": tag,
            "prefix": prefix,
            "terms": required,
            "tell": _show_group(bars) if with_bars else None,
        }
        if source == STDIN and is_live():
            translations = translator.stream_groups(live_groups(batch), **settings)
        else:
            translations = translator.stream(read_lines(source), chunk=batch, **settings)
        if is_typed(source):
            say("type a text and press Enter; Ctrl-D ends")
        warnings = library.translation_warnings.WarningSummary(say)
        lines, saved = bars(translations, "translating") if with_bars else translations, 0
        for number, translation in enumerate(lines, start=1):
            if attention is not None and translation.pieces:
                paths = _draw(translation, attention, f"{number:04}", format)
                older_maps -= set(paths)
                saved += len(paths)
            _print(translation, n_best, json, probabilities)
            if len(translation.pieces) > 1:
                say(f"line {number} was too long for the model and translated in {len(translation.pieces)} parts")
            warnings.add(number, translation.warnings())
    warnings.summarise()
    if saved:
        say(f"saved {_maps(saved)} in {attention}")
    if older_maps:
        say(f"{attention} also holds {_maps(len(older_maps))} of an earlier run, such as {min(older_maps).name}")


def _models_and_file(arguments: list[str]) -> tuple[list[Path], str | None]:
    """The model folders, and the file to translate if the last argument after the first is not a folder."""
    if len(arguments) > 1 and not isdir(arguments[-1]):
        return [Path(folder) for folder in arguments[:-1]], arguments[-1]
    return [Path(folder) for folder in arguments], None


def _show_group(bars: ProgressBars) -> Callable[[range, float], None]:
    """Shows the progress within lines that are translated together, such as one long line."""

    def show(numbers: range, share: float) -> None:
        lines = f"lines {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"line {numbers[0]}"
        bars.show_share(lines, share)

    return show


def _draw(translation: "jumok.Translation", folder: Path, name: str, format: str) -> list[Path]:
    """Save the map of a line, or the maps of its parts."""
    maps = translation.attention_maps()
    names = [name] if len(maps) == 1 else [f"{name}-{part}" for part in range(1, len(maps) + 1)]
    paths = [folder / f"{name}.{format}" for name in names]
    for path, shown in zip(paths, maps, strict=True):
        library.draw.save(shown, path)
    return paths


def _maps(number: int) -> str:
    return "1 attention map" if number == 1 else f"{number} attention maps"


def _saved_maps(folder: Path) -> set[Path]:
    """The attention maps in a folder, in any format."""
    kinds = "|".join(kind for kind in library.draw.FORMATS if kind != "txt")  # 0001.txt may be the user's own
    return {path for path in folder.glob("*.*") if fullmatch(rf"\d{{4,}}(-\d+)?\.({kinds})", path.name)}


def _print(translation: "jumok.Translation", n_best: int, json: bool, probabilities: bool) -> None:
    best = translation.n_best or (translation,)
    if json:
        outputs = [{"text": output.text, **_scores(output), **_words(output, probabilities)} for output in best]
        warnings = list(translation.warnings().values())
        more = ({"n_best": outputs} if n_best > 1 else {}) | ({"warnings": warnings} if warnings else {})
        print_json({"source": translation.source, **outputs[0], **more})
    elif n_best > 1 and translation.pieces:  # an empty line stays empty
        print("\t".join(f"{output.text}\t{list(_scores(output).values())[-1]:.4f}" for output in best), flush=True)
    else:
        print(translation.text, flush=True)


def _words(output: "jumok.Translation", probabilities: bool) -> dict[str, Any]:
    """The words of an output with their probabilities, if these were asked for."""
    if not probabilities:
        return {}
    return {"words": [{"word": word, "probability": round(share, 4)} for word, share in output.probabilities()]}


def _scores(output: "jumok.Translation") -> dict[str, float]:
    """The scores of an output by name, rounded; the last is the one that orders several."""
    scores = {"score": output.score} | ({} if output.expected_chrf is None else {"expected_chrf": output.expected_chrf})
    return {name: round(score, 4) for name, score in scores.items()}


def _source(model: Path | None, file: str | None, source: str) -> str:
    """The file to translate; the errors for a text in place of a file say how to translate it."""
    if file is not None and source != "-":
        raise ArgumentError(f"two files to translate are named: {file} and --source {source}; name one")
    if file not in (None, "-") and not exists(str(file)):
        raise ArgumentError(f"there is no file {file}; if that is a text: echo {file!r} | jumok translate {model}")
    if str(model) == "-" and not isdir("-"):
        raise ArgumentError(
            "- is not a model folder; the first argument is the model, and standard input is read unless a file is "
            "named: jumok translate [MODEL] [FILE]"
        )
    # A file of a model is refused when it is loaded.
    if model is not None and isfile(model) and not library.model_folder.is_model_file(model):
        raise ArgumentError(f"{model} is a file, not a model folder; to translate it: jumok translate --source {model}")
    if model is not None and " " in str(model) and not isdir(model):
        raise ArgumentError(
            f"there is no model folder {str(model)!r}; if that is a text: echo {str(model)!r} | jumok translate"
        )
    return file or source
