"""An evaluation report as a single HTML page: no scripts, no network, light and dark, for wide and narrow screens."""

import math
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from jumok.analysis.curves.score_by_length import length_curves
from jumok.analysis.draw.chart import NARROW, WIDTH, bar_chart, line_chart
from jumok.analysis.draw.heatmap import heatmap
from jumok.analysis.draw.shapes import Drawing, svg_text
from jumok.analysis.draw.style import cell_width, css_variables
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.attention_stats import LITTLE, MUCH, AttentionStats, WordCoverage, source_words
from jumok.analysis.report.content import LONG, SHORT, Difference, EvaluationReport, SystemResult
from jumok.analysis.scores.metrics import MetricScore, Paired
from jumok.training.score_names import lower_is_better

PHONE = 40
"""Letters in a row that fit a phone; the rows of a wider table are stacked there."""
MOST_WORDS = 1000
"""Longer outputs are not compared with the reference: the time grows with the square of the length."""


class ReportTable(NamedTuple):
    """A table whose first column names the rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    @property
    def wide(self) -> bool:
        """Whether the table is too wide for a phone; names of rows wrap."""
        every = zip(*[self.columns, *self.rows], strict=True)
        longest = [max(cell_width(escape(cell).striptags()) for cell in column) for column in every]
        return min(longest[0], 16) + sum(longest[1:]) + 2 * len(longest) > PHONE


class Chart(NamedTuple):
    """A chart for a wide and for a narrow screen."""

    wide: Markup
    narrow: Markup


class Card(NamedTuple):
    """A sentence with the outputs of all systems, and the attention of one of them."""

    title: str
    source: str
    covered: list[tuple[str, str, float]]
    """Source words with "little", "fair" or "much" attention; empty without attention."""
    outputs: list[tuple[str, float, list[tuple[str, bool]]]]
    """Name of the system, chrF, and the parts of its output that equal or differ from the reference."""
    reference: str
    system: str
    picture: Markup | None


def report_page(report: EvaluationReport) -> str:
    """Render the page; the template escapes every text."""
    templates = Environment(
        loader=PackageLoader("jumok.analysis", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    first = report.systems[0]
    values = {
        "colours": Markup(css_variables(":root")),
        "scores": _score_table(report),
        "paired": _paired_table(report) if report.paired else None,
        "signatures": _signature_table(first.scores),
        "lengths": [_by_length(report, metric) for metric in range(len(first.bands))],
        "outputs": _output_table(report),
        "attention": [(result.system.name, _attention(result, report)) for result in report.systems],
        "worst": [_card(report, number, first) for number in report.worst],
        "best": [_card(report, number, first) for number in report.best],
        "differences": _differences(report),
    }
    return templates.get_template("report.html.jinja").render(report=report, **values) + "\n"


def _score_table(report: EvaluationReport) -> ReportTable:
    names = [
        f"{score.name} (lower is better)" if lower_is_better(score.name.lower()) else score.name
        for score in report.systems[0].scores
    ]
    rows = [[result.system.name, *map(_score_cell, result.scores)] for result in report.systems]
    return ReportTable("Scores with 95% bootstrap confidence intervals", ["", *names], rows)


def _score_cell(score: MetricScore) -> Markup:
    cell = Markup('<span class="value">{:.2f}</span> <span class="spread">{:.2f} – {:.2f}</span>')
    return cell.format(score.value, score.low, score.high)


def _signature_table(scores: Sequence[MetricScore]) -> ReportTable:
    rows = [[score.name, Markup("<code>{}</code>").format(score.signature)] for score in scores]
    return ReportTable("Settings that reproduce the scores", ["score", "signature"], rows)


def _paired_table(report: EvaluationReport) -> ReportTable:
    names = [result.system.name for result in report.systems]
    rows = [
        [
            paired.other,
            paired.score,
            f"{paired.first_value:.2f}",
            f"{paired.other_value:.2f}",
            _signed(paired.other_value - paired.first_value, 2),
            _p_cell(paired),
        ]
        for paired in sorted(report.paired, key=lambda paired: names.index(paired.other))
    ]
    columns = ["compared with", "score", names[0], "other", "difference", "p"]
    return ReportTable("Is the difference significant?", columns, rows)


def _p_cell(paired: Paired) -> str:
    if paired.first_value == paired.other_value:
        return "–"
    return Markup("<strong>{:.3f}</strong>").format(paired.p) if paired.p < 0.05 else f"{paired.p:.3f}"


def _by_length(report: EvaluationReport, metric: int) -> tuple[str, Chart, ReportTable]:
    """Return the name of a score, and its chart and table by source length."""
    bands = {result.system.name: result.bands[metric] for result in report.systems}
    first = report.systems[0].bands[metric]
    rows = [
        [band.words, band.sentences, *(_score_cell(of_system[number].score) for of_system in bands.values())]
        for number, band in enumerate(first)
    ]
    name, (curves,) = first[0].score.name, length_curves(bands)
    table = ReportTable(f"{name} by source length", ["source words", "sentences", *bands], rows)
    return name, _chart(lambda width: line_chart(curves, width=width)), table


def _output_table(report: EvaluationReport) -> ReportTable:
    stats = [result.outputs for result in report.systems]
    rows: list[list[object]] = [
        ["length ratio to the references", *(f"{system.length_ratio:.3f}" for system in stats)],
        [f"too short (below {SHORT:g} × reference)", *(_percent(system.short) for system in stats)],
        [f"too long (above {LONG:g} × reference)", *(_percent(system.long) for system in stats)],
        ["empty", *(_percent(system.empty) for system in stats)],
        ["with a repeated phrase of three words", *(_percent(system.phrases) for system in stats)],
        ["with a word twice in a row", *(_percent(system.doubled) for system in stats)],
    ]
    caption = "Outputs: their lengths, and the share with repetitions that source and reference do not have"
    return ReportTable(caption, ["", *(result.system.name for result in report.systems)], rows)


AVERAGED = "between words, averaged over layers and heads"
COVERAGE_NOTE = (
    "The output may omit words with low coverage and repeat words with high coverage; function words often have low "
    "coverage without harm."
)


def _attention(result: SystemResult, report: EvaluationReport) -> dict[str, Any] | None:
    """Return tiles, chart and tables of a system's attention; None if it has none."""
    stats, sentences = result.attention, len(report.test.sources)
    if stats is None:
        return None
    bars = [(name, float(count)) for name, count in stats.histogram]
    axes = {"x": "coverage (1 is the attention of one target word)", "y": "source words"}
    spread = f"equivalent to a uniform distribution over {math.exp(stats.entropy):.1f} words"
    tiles = [("attention entropy", f"{stats.entropy:.2f} nats", spread)]
    measured = f"all {sentences:,}" if stats.maps == sentences else f"{stats.maps:,} of {sentences:,}"
    if stats.kind != "cross":  # what a word receives from its own text says nothing about the translation
        own = {"tiles": tiles, "chart": None, "words": [], "heads": _heads(stats)}
        return {**own, "note": f"Self-attention of the {stats.kind}, measured on {measured} sentences, {AVERAGED}."}
    return {
        "tiles": [
            *tiles,
            ("low coverage", _percent(stats.little), f"source words with less attention than {LITTLE:g} target words"),
            ("high coverage", _percent(stats.much), f"source words with more attention than {MUCH:g} target words"),
        ],
        "chart": _chart(lambda width: bar_chart(bars, **axes, title="Coverage", width=width)),
        "words": [_words("Lowest coverage", stats.least), _words("Highest coverage", stats.most)],
        "heads": _heads(stats),
        "note": f"Measured on {measured} sentences, {AVERAGED}. {COVERAGE_NOTE}",
    }


def _words(caption: str, words: tuple[WordCoverage, ...]) -> ReportTable:
    rows = [[word.word, f"{word.coverage:.2f}", word.times] for word in words]
    return ReportTable(caption, ["word", "attention", "times"], rows)


def _heads(stats: AttentionStats) -> ReportTable | None:
    if len(stats.heads) * len(stats.heads[0]) < 2:
        return None
    rows = [[f"layer {number}", *(f"{value:.2f}" for value in row)] for number, row in enumerate(stats.heads)]
    return ReportTable(
        "Entropy of each head in nats", ["", *(f"head {head}" for head in range(len(stats.heads[0])))], rows
    )


def _differences(report: EvaluationReport) -> list[tuple[str, list[Card]]]:
    sections = []
    for result in report.systems[1:]:
        for verdict, differences in zip(("better", "worse"), report.differences[result.system.name], strict=True):
            cards = [_card(report, difference.sentence, result, difference) for difference in differences]
            sections += [(f"{result.system.name} is {verdict}", cards)] if cards else []
    return sections


def _card(report: EvaluationReport, number: int, result: SystemResult, change: Difference | None = None) -> Card:
    shown = None if result.system.attention is None else result.system.attention(number)
    reference = report.test.references[number]
    outputs = [
        (compared.system.name, compared.sentences[number], marked_parts(compared.system.outputs[number], reference))
        for compared in report.systems
    ]
    title = f"Sentence {number + 1}"
    return Card(
        title if change is None else f"{title}, {_signed(change.other - change.first, 1)} chrF",
        report.test.sources[number],
        [] if shown is None or shown.kind != "cross" else covered_words(shown),
        outputs,
        reference,
        result.system.name,
        None if shown is None else _inline(heatmap(shown)),
    )


def marked_parts(output: str, reference: str) -> list[tuple[str, bool]]:
    """Split an output into parts, each with whether it differs from the reference; very long ones stay whole."""
    words, wanted = output.split(), reference.split()
    if max(len(words), len(wanted)) > MOST_WORDS:
        return [(output, False)]
    codes = SequenceMatcher(None, words, wanted, autojunk=False).get_opcodes()
    return [(" ".join(words[start:end]), kind != "equal") for kind, start, end, _, _ in codes if start < end]


def covered_words(shown: AttentionMap) -> list[tuple[str, str, float]]:
    """Return each source word, whether its attention is "little", "fair" or "much", and how much it is."""
    return [
        (word, "little" if value < LITTLE else "much" if value > MUCH else "fair", value)
        for word, value in source_words(shown)
    ]


def _chart(draw: Callable[[int], Drawing]) -> Chart:
    return Chart(_inline(draw(WIDTH)), _inline(draw(NARROW)))


def _inline(drawing: Drawing) -> Markup:
    return Markup(svg_text([drawing], style="page"))  # the picture has escaped its own texts


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _signed(number: float, digits: int) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")
