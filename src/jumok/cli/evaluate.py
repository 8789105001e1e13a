"""`jumok evaluate`: translate a test set and score it, or score outputs made elsewhere."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli.output import print_json, print_table, progress


def evaluate(
    model: Annotated[Path | None, Argument(help="Folder written by `jumok train`; leave it out with --output.")] = None,
    source: Annotated[str | None, Option(help="Test sentences, one a line.")] = None,
    reference: Annotated[str | None, Option(help="Their right translations.")] = None,
    output: Annotated[str | None, Option(help="Score these outputs instead of translating.")] = None,
    metrics: Annotated[str, Option(help="bleu, chrf, ter, exact_match, wer; separated by commas.")] = "bleu,chrf,ter",
    tokenize: Annotated[str, Option(help="sacrebleu's tokenizer for BLEU: 13a, intl, char, zh, none …")] = "13a",
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case.")] = False,
    beam: Annotated[int | None, Option(min=1, help="Hypotheses kept at each step.")] = None,
    by_length: Annotated[bool, Option("--by-length", help="Also the first metric by source length.")] = False,
    save: Annotated[Path | None, Option(help="Also write the outputs to this file.")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score translations against references: BLEU, chrF, TER with signatures and 95% intervals."""
    from jumok.analysis.scores import check_scores, score_outputs
    from jumok.data import read_lines
    from jumok.data.files import check_place
    from jumok.errors import ArgumentError

    if reference is None:
        raise ArgumentError("--reference is needed: the right translations, one a line")
    if (model is None) == (output is None):
        raise ArgumentError("give a MODEL to translate with, or --output with outputs to score, and not both")
    if source is None and (model is not None or by_length):
        raise ArgumentError("--source is needed: the test sentences, one a line")
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ArgumentError(f"--metrics {metrics!r} names no score; for example: --metrics bleu,chrf")
    check_scores(names, tokenize)
    if save is not None:
        check_place(save.parent)
    references = list(read_lines(reference))
    sources = list(read_lines(source)) if source is not None else []
    if source is not None and len(sources) != len(references):
        raise ArgumentError(f"--source has {len(sources)} lines but --reference has {len(references)}")
    outputs = list(read_lines(output)) if output is not None else _translated(model, sources, beam, device)
    if save is not None:
        _save(save, outputs)
    scores = score_outputs(outputs, references, names, tokenize=tokenize, lowercase=lowercase)
    bands = _bands(names[0], sources, outputs, references, tokenize, lowercase) if by_length else []
    if json:
        found = {"sentences": len(outputs), "scores": [vars(score) for score in scores]}
        print_json({**found, **({"by_length": bands} if by_length else {})})
        return
    rows = [[one.name, f"{one.value:.2f}", f"{one.low:.2f} - {one.high:.2f}", one.signature] for one in scores]
    print_table(["score", "value", "95% interval", "signature"], rows)
    if by_length:
        rows = [[str(band["words"]), str(band["sentences"]), f"{band['value']:.2f}"] for band in bands]
        print_table(["source words", "sentences", scores[0].name], rows)


def _translated(model: Path | None, sources: list[str], beam: int | None, device: str) -> list[str]:
    from jumok.translator import Translator

    assert model is not None
    translator = Translator.load(model, device=device)
    found = translator.stream(sources, chunk=256, **({} if beam is None else {"beam": beam}))
    return [translation.text for translation in progress(found, "translating", "lines", total=len(sources))]


def _bands(
    name: str, sources: list[str], outputs: list[str], references: list[str], tokenize: str, lowercase: bool
) -> list[dict[str, object]]:
    """The score of the sentences of each band of source lengths, each band scored as a test set of its own."""
    from jumok.analysis.scores import score_outputs

    edges = (0, 5, 10, 15, 20, 25, 30, 40, 50)
    found = []
    for low, high in zip((-1, *edges), (*edges, 10**9), strict=True):
        inside = [at for at, text in enumerate(sources) if low < len(text.split()) <= high]
        if inside:
            found_here, wanted_here = ([texts[at] for at in inside] for texts in (outputs, references))
            (score,) = score_outputs(
                found_here, wanted_here, [name], tokenize=tokenize, lowercase=lowercase, resamples=1
            )
            words = f"over {low}" if high == 10**9 else f"{low + 1}-{high}" if high else "0"
            found.append({"words": words, "sentences": len(inside), "value": score.value})
    return found


def _save(path: Path, outputs: list[str]) -> None:
    from jumok.data.files import atomic_write

    with atomic_write(path) as file:
        file.write("".join(f"{output}\n" for output in outputs).encode())
