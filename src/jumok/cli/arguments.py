"""Options and arguments that several commands share, and the checks of paths before any work is done."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from typer import BadParameter, Option

from jumok.cli import library
from jumok.decoding.config import DecodingConfig, Engine, SearchPrecision
from jumok.errors import ArgumentError, MissingExtraError
from jumok.screen import to_screen
from jumok.settings import Settings, field_types, is_within, limit_words, limits_of

if TYPE_CHECKING:
    from jumok.data.pairs import Columns

T = TypeVar("T")

Device = Annotated[str, Option(help="auto, cpu or cuda.")]


def setting_option(config: type[Settings], setting: str, help: str, *names: str, **further: Any) -> Any:
    """An option for a setting, with the limits that its field declares."""
    hint = field_types(config)[setting]
    inclusive = {"at least": "min", "at most": "max"}
    bounds = {inclusive[limit.words]: limit.bound for limit in limits_of(hint) if limit.words in inclusive}

    def check(value: float | None) -> float | None:
        """Refuse what typer cannot, such as 0 for a number above 0."""
        if value is not None and not is_within(value, hint):
            raise BadParameter(f"must be {limit_words(hint)}, but it is {value}")
        return value

    return Option(*names, help=help, callback=check, **bounds | further)


def decoding_option(setting: str, help: str, *names: str, **further: Any) -> Any:
    """An option for a setting of [decoding]."""
    return setting_option(DecodingConfig, setting, help, *names, **further)


Beam = Annotated[
    int | None,
    decoding_option("beam", "Number of hypotheses kept by beam search; defaults to the model's setting."),
]
LengthPenalty = Annotated[
    float | None,
    decoding_option("length_penalty", "Exponent of length normalisation: 0 favours short outputs, 1 is neutral."),
]
MinLength = Annotated[int | None, decoding_option("min_length", "Minimum number of tokens in an output.")]
MaxLength = Annotated[int | None, decoding_option("max_length", "Maximum number of tokens in an output.")]
NoRepeat = Annotated[
    int | None, decoding_option("no_repeat", "Size of n-grams that may not repeat in an output; 0 allows all.")
]
Sample = Annotated[bool, Option("--sample", help="Sample outputs at random instead of searching.")]
Temperature = Annotated[
    float | None, decoding_option("temperature", "With --sample: values below 1 favour likely tokens.")
]
TopK = Annotated[int | None, decoding_option("top_k", "With --sample: sample only from the k most likely tokens.")]
TopP = Annotated[
    float | None,
    decoding_option(
        "top_p", "With --sample: sample only from the most likely tokens that together have this probability."
    ),
]
Seed = Annotated[int | None, decoding_option("seed", "With --sample: random seed.")]
MinimumRisk = Annotated[
    int | None,
    decoding_option(
        "samples", "Minimum Bayes risk: of this many outputs, choose the one closest to the others.", "--mbr", min=2
    ),
]
DecodingEngine = Annotated[
    Engine | None,
    Option(
        help="Engine on a CPU: auto, the default, is CTranslate2 if it gives the same outputs, otherwise jumok's own.",
    ),
]
DecodingPrecision = Annotated[
    SearchPrecision | None,
    Option(
        help="Precision of the weights: auto, the default, is fp16 on a GPU and float32 on a CPU. int8 is faster on a "
        "CPU, but changes some outputs.",
    ),
]
MaxSource = Annotated[
    int | None,
    decoding_option(
        "max_source",
        "Maximum number of source tokens translated at once; longer texts are split. 0, the default: the model's "
        "setting, usually the length of its longest training input.",
    ),
]
MapKindOption = Annotated[
    Literal["cross", "encoder", "decoder"],
    Option("--kind", help="Attention to the source, or self-attention of a Transformer's encoder or decoder."),
]
ColumnNames = Annotated[
    str | None,
    Option(
        "--columns",
        help="Source and target in a file of pairs: columns of a TSV, such as 1,3 or 3+1,2, or JSON keys: en,ko.",
    ),
]
Tag = Annotated[
    str | None, Option(help="Tag of a language or domain to put before every source, for a model trained with tags.")
]
FromLanguage = Annotated[str | None, Option("--from", help="Source language of a multilingual model, such as en.")]
ToLanguage = Annotated[str | None, Option("--to", help="Target language of a multilingual model, such as de.")]
FeatureColumns = Annotated[
    str | None, Option("--features", help='Columns that contain features such as "V;PST": 3, or 3,4.')
]
OnlyRows = Annotated[
    str | None, Option("--only", help="Use only the rows of a TSV that have this text in this column: 2=kor.")
]
TestReference = Annotated[
    str | None, Option(help="Reference translations, one per line; leave it out if --source holds pairs.")
]
TaskFile = Annotated[
    Path | None,
    Option("--task", help="Python file that defines your own task; jumok runs its code."),
]
PAIRS = "or pairs: .tsv, .jsonl, or lines of the form `a ||| b`."

BUNDLED_HELP = "Folder of a trained model; defaults to the tiny English-Korean model that comes with jumok."


class NamedPath(NamedTuple):
    """A path and the name under which its results appear."""

    name: str
    path: Path


def named_path(argument: str) -> NamedPath:
    """NAME=PATH, or a PATH named after its last part; a path that exists may contain an = sign."""
    name, equals, path = argument.partition("=")
    if equals and name and path and not Path(argument).exists():
        return NamedPath(name, Path(path))
    return NamedPath(Path(argument).resolve().name or argument, Path(argument))


def named_paths(arguments: Sequence[str]) -> list[NamedPath]:
    """Model folders or files of outputs, with distinct names."""
    models = [named_path(argument) for argument in arguments]
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError(f"the name {twice!r} is used twice; give each its own: NAME=PATH")
    return models


def named_folder(name: str) -> Path:
    """The folder that an option names; an empty name usually comes from an unset variable of the shell."""
    if not name:
        raise BadParameter('the name is empty: ""; name a folder, "." for the current one')
    return Path(name)


def model_or_bundled(model: Path | None) -> Path:
    """The model that was named, or the bundled one with a message that says so."""
    if model is not None:
        return model
    to_screen(
        "no model is named: using the tiny one that comes with jumok (English dates, amounts and names to Korean)"
    )
    return library.model_folder.BUNDLED


def parse_columns(argument: str | None) -> "Columns | None":
    """Two columns of a TSV, counted from 1 or by name, or two keys of JSON objects: "1,3" or "en,ko".

    Numbers of several columns that make one side are joined by +: "3+1,2".
    """
    if argument is None:
        return None
    columns = [column.strip() for column in argument.split(",")]
    if len(columns) != 2 or not all(columns):
        raise ArgumentError(f"--columns {argument!r} must name two columns, source and target, such as 1,3 or en,ko")
    source, target = columns
    counted = all(fullmatch(r"\d{1,9}(\+\d{1,9})*", column) for column in columns)
    return (_joined_columns(source), _joined_columns(target)) if counted else (source, target)


def _joined_columns(argument: str) -> int | tuple[int, ...]:
    numbers = tuple(map(int, argument.split("+")))
    return numbers[0] if len(numbers) == 1 else numbers


def parse_features(argument: str | None) -> tuple[int | str, ...]:
    """Columns of a TSV, counted from 1 or by name."""
    columns = [column.strip() for column in (argument or "").split(",") if column.strip()]
    return tuple(int(column) if column.isdecimal() and len(column) < 10 else column for column in columns)


def parse_only(argument: str | None) -> tuple[int, str] | None:
    """A column of a TSV, counted from 1, and what it must hold: "2=kor"."""
    if argument is None:
        return None
    column, equals, text = argument.partition("=")
    if not equals or not column.isdecimal() or not int(column[:9]):
        raise ArgumentError(f"--only {argument!r} must be a column, counted from 1, and its text, such as 2=kor")
    return int(column), text


def parse_numbers(argument: str, option: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(number) for number in argument.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{option} {argument!r} must be whole numbers separated by commas, such as 10,20,30"
        ) from None


def sampling_settings(
    sample: bool, mbr: int | None, n_best: int = 1, *, beam: int | None, **settings: Any
) -> dict[str, Any]:
    """The settings of sampling and minimum Bayes risk, where they are asked for."""
    if beam is not None and (sample or mbr is not None):
        other = "--sample, which draws outputs at random" if sample else f"--mbr {mbr}, which sets the size of the beam"
        raise ArgumentError(f"--beam {beam} has no effect with {other}; leave it out")
    risk = {} if mbr is None else {"mbr": True, "samples" if sample else "beam": mbr}
    if sample:
        return settings | {"samples": n_best, "mbr": False} | risk
    if options := [name for name, value in settings.items() if value is not None]:
        raise ArgumentError(
            f"--{options[0].replace('_', '-')} applies only with --sample; add --sample, or leave it out"
        )
    return risk


def own_task(path: Path | None, *, models: int = 1) -> Any:
    """The task in the file that --task names; None if it is one of jumok's."""
    if path is None:
        return None
    if models != 1:
        raise ArgumentError(
            f"--task {path} applies to a single model; leave it out "
            + ("with several models" if models else "without a model")
        )
    return library.tasks.read_task(path)


def task_or(default: T, path: Path | None, *, models: int = 1) -> T:
    """The task in the file that --task names, derived from the class of `default`; `default` without a file."""
    if path is None:
        return default
    task = own_task(path, models=models)
    if not isinstance(task, type(default)):
        raise ArgumentError(f"this command needs a task derived from {type(default).__name__}, but {path} {task.does}")
    return task


def check_picture_kind(kind: str) -> None:
    """Refuse a kind of picture that needs matplotlib before any work is done, if matplotlib is not installed."""
    if kind in ("png", "pdf") and find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot", f"drawing .{kind} files")
