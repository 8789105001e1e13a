"""The sections of an evaluation report, each from the numbers to HTML."""

import math
from collections.abc import Iterator
from functools import partial

from jumok.analysis.draw.chart import bar_chart
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.attention_stats import LITTLE, MUCH, Looks, WordCover
from jumok.analysis.report.html import (
    Html,
    attention_picture,
    chart,
    compared,
    covered_source,
    folded,
    html,
    join,
    table,
    tag,
)
from jumok.analysis.report.numbers import LONG, SHORT, Difference, Measured, Report
from jumok.analysis.scores.length_bands import length_chart
from jumok.analysis.scores.metrics import BETTER_IS_LOWER, Paired, Score


def scores_section(report: Report) -> Html:
    """Every score of every system with its interval, the paired tests, and the signatures."""
    names = [_name(score) for score in report.systems[0].scores]
    rows = [[one.system.name, *(_score(score) for score in one.scores)] for one in report.systems]
    parts = [table(["", *names], rows, caption="Scores, with the interval that 95% of resampled test sets fall into")]
    if report.paired:
        parts.append(_paired(report))
    signatures = [[score.name, tag("code", score.signature)] for score in report.systems[0].scores]
    parts.append(folded("Signatures", table(["score", "signature"], signatures, caption="How to compute them again")))
    return join(parts)


def _name(score: Score) -> str:
    return f"{score.name} (less is better)" if score.name.lower() in BETTER_IS_LOWER else score.name


def _score(score: Score) -> Html:
    value, spread = tag("span", f"{score.value:.2f}", class_="value"), f"{score.low:.2f} – {score.high:.2f}"
    return join([value, tag("span", spread, class_="spread")], " ")


def _paired(report: Report) -> Html:
    first = report.systems[0].system.name
    rows = [
        [one.other, one.score, f"{one.first_value:.2f}", f"{one.other_value:.2f}", _difference(one), _p(one)]
        for one in sorted(report.paired, key=lambda one: [row.system.name for row in report.systems].index(one.other))
    ]
    heads = ["compared with", "score", first, "other", "difference", "p"]
    note = (
        "p is how likely so large a difference is if both systems are equally good (paired bootstrap resampling, "
        "Koehn 2004, as in sacrebleu). Below 0.05 it is usually taken to be real, not luck."
    )
    return join([table(heads, rows, caption="Is the difference real?"), tag("p", note, class_="note")])


def _difference(one: Paired) -> str:
    return f"{one.other_value - one.first_value:+.2f}".replace("-", "−")


def _p(one: Paired) -> Html:
    if one.first_value == one.other_value:
        return html("–")
    return tag("strong", f"{one.p:.3f}") if one.p < 0.05 else html(f"{one.p:.3f}")


def length_section(report: Report) -> Html:
    """A chart for each of the first two scores, and its numbers."""
    parts = []
    for number in range(len(report.systems[0].bands)):
        bands = {one.system.name: one.bands[number] for one in report.systems}
        first = report.systems[0].bands[number]
        rows = [
            [band.words, band.sentences, *(_score(found[at].score) for found in bands.values())]
            for at, band in enumerate(first)
        ]
        name = first[0].score.name
        numbers = table(["source words", "sentences", *bands], rows, caption=f"{name} by source length")
        parts.append(tag("div", chart(partial(length_chart, bands)), folded(f"{name} as a table", numbers)))
    note = "Each band is scored as a test set of its own; few sentences make a wide interval."
    return join([tag("p", note, class_="note"), tag("div", *parts, class_="charts")])


def habits_section(report: Report) -> Html:
    """How long outputs are, and whether they go round in circles."""
    found = [one.habits for one in report.systems]
    rows: list[list[object]] = [
        ["length ratio to the references", *(f"{one.length_ratio:.3f}" for one in found)],
        [f"too short (below {SHORT:g} × reference)", *(_percent(one.short) for one in found)],
        [f"too long (above {LONG:g} × reference)", *(_percent(one.long) for one in found)],
        ["empty", *(_percent(one.empty) for one in found)],
        ["repeat a phrase of three words", *(_percent(one.phrases) for one in found)],
        ["say a word twice in a row", *(_percent(one.doubled) for one in found)],
    ]
    caption = "Outputs: their lengths, and the share that repeats what source and reference do not"
    parts = [table(["", *(one.system.name for one in report.systems)], rows, caption=caption)]
    for one in report.systems:
        if one.habits.repeating:
            lines = [tag("li", f"{at + 1}: ", one.system.outputs[at], dir="auto") for at in one.habits.repeating[:10]]
            parts.append(folded(f"Repeating outputs of {one.system.name}", tag("ul", *lines)))
    return join(parts)


def attention_section(report: Report) -> Html:
    """How sharply the systems look, and what they look past."""
    parts = []
    for one in report.systems:
        if one.looks is not None:
            parts.append(join([tag("h3", one.system.name), _looks(one.looks, len(report.task.sources))]))
        else:
            why = "there are only its outputs, or its decoder sees nothing but a fixed context."
            parts.append(tag("p", tag("strong", one.system.name), f" has no attention to show: {why}"))
    return join(parts)


def _looks(found: Looks, sentences: int) -> Html:
    of = f"all {sentences:,}" if found.maps == sentences else f"{found.maps:,} of {sentences:,}"
    facts = [
        (
            "attention entropy",
            f"{found.entropy:.2f} nats",
            f"as if spread evenly over {math.exp(found.entropy):.1f} words",
        ),
        ("hardly looked at", _percent(found.little), f"source words with less than {LITTLE:g} of a word’s attention"),
        ("looked at much", _percent(found.much), f"source words with more than {MUCH:g} words’ attention"),
    ]
    tiles = [
        tag("div", tag("dt", name), tag("dd", value), tag("p", note), class_="tile") for name, value, note in facts
    ]
    bars = [(name, float(count)) for name, count in found.histogram]
    label = "attention a source word got, in whole target words"
    coverage = partial(bar_chart, bars, x=label, y="source words", title="Coverage")
    lists = _words("Least looked at", found.least), _words("Most looked at", found.most)
    words = tag("div", *(tag("div", one) for one in lists), class_="pair")
    return join([tag("dl", *tiles, class_="tiles"), chart(coverage), words, *_heads(found), _over(of)])


def _over(of: str) -> Html:
    said = (
        f"Over {of} sentences, in words, averaged over layers and heads. A word hardly looked at may be missing in the "
        "output, one looked at much may be said twice; function words often get little without harm."
    )
    return tag("p", said, class_="note")


def _words(title: str, words: tuple[WordCover, ...]) -> Html:
    rows = [[one.word, f"{one.coverage:.2f}", one.times] for one in words]
    return table(["word", "attention", "times"], rows, caption=title)


def _heads(found: Looks) -> Iterator[Html]:
    if len(found.heads) * len(found.heads[0]) > 1:
        rows = [[f"layer {number}", *(f"{value:.2f}" for value in row)] for number, row in enumerate(found.heads)]
        heads = ["", *(f"head {number}" for number in range(len(found.heads[0])))]
        yield folded("Entropy of every head, in nats", table(heads, rows, caption="Entropy of every head, in nats"))


def sentences_section(report: Report) -> Html:
    """The sentences the first system did worst and best on."""
    legend = tag(
        "p",
        "In the order of sentence chrF. ",
        tag("mark", "Marked"),
        " words of an output are not where the reference has them. In a source, words ",
        tag("span", "hardly looked at", class_="word little"),
        " and words ",
        tag("span", "looked at much", class_="word much"),
        " are underlined.",
        class_="note",
    )
    first = report.systems[0]
    worst = [_card(report, at, first, is_open=number == 0) for number, at in enumerate(report.worst)]
    best = [_card(report, at, first, is_open=False) for at in report.best]
    return join([legend, tag("h3", "Worst"), *worst, *([tag("h3", "Best"), *best] if best else [])])


def differences_section(report: Report) -> Html:
    """Where another system and the first differ most."""
    parts = []
    for one in report.systems[1:]:
        better, worse = report.differences[one.system.name]
        for title, found in ((f"{one.system.name} is better", better), (f"{one.system.name} is worse", worse)):
            if found:
                parts.append(tag("h3", title))
                parts += [_card(report, difference.at, one, change=difference) for difference in found]
    return join(parts) if parts else tag("p", "There is no sentence that one of them translates better.")


def _card(
    report: Report, at: int, mapped: Measured, *, is_open: bool = False, change: Difference | None = None
) -> Html:
    """One sentence: source, the outputs of all systems, reference, and the attention of `mapped`."""
    shown = _map(mapped, at)
    source, reference = report.task.sources[at], report.task.references[at]
    lines = [_line("source", covered_source(shown) if shown is not None else html(source))]
    for one in report.systems:
        lines.append(_line(one.system.name, compared(one.system.outputs[at], reference), one.sentences[at]))
    lines.append(_line("reference", html(reference)))
    said = f"Sentence {at + 1}"
    if change is not None:
        said += f", {change.other - change.first:+.1f} chrF".replace("-", "−")
    maps = []
    if shown is not None:
        label = f"Attention of {mapped.system.name}, sentence {at + 1}"
        maps = [folded(f"Attention map of {mapped.system.name}", attention_picture(shown, label), is_open=is_open)]
    return tag("article", tag("h4", said), tag("dl", *lines), *maps)


def _line(name: str, text: Html, score: float | None = None) -> Html:
    number = [] if score is None else [" ", tag("span", f"{score:.1f}", class_="spread")]
    return tag("div", tag("dt", name, *number), tag("dd", text, dir="auto"))


def _map(one: Measured, at: int) -> AttentionMap | None:
    return None if one.system.attention is None else one.system.attention(at)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
