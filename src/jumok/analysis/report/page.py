"""An evaluation report as one HTML page: nothing to install, nothing fetched, light and dark, wide and narrow."""

from pathlib import Path

from jumok.analysis.report.html import Html, html, join, tag
from jumok.analysis.report.numbers import Report
from jumok.analysis.report.sections import (
    attention_section,
    differences_section,
    habits_section,
    length_section,
    scores_section,
    sentences_section,
)

STYLE = Path(__file__).with_name("report.css")
# Nothing but what is on the page itself may be loaded, and no script may run, whatever a sentence contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def report_page(report: Report) -> str:
    """The whole page."""
    sections = [
        ("scores", "Scores", scores_section(report)),
        ("length", "Source length", length_section(report)),
        ("outputs", "Lengths and repetition", habits_section(report)),
        ("attention", "Attention", attention_section(report)),
        ("sentences", "Sentences", sentences_section(report)),
    ]
    if len(report.systems) > 1:
        sections.append(("differences", "Differences", differences_section(report)))
    links = tag("nav", *(tag("a", title, href=f"#{name}") for name, title, _ in sections), aria_label="Sections")
    body = join(tag("section", tag("h2", title), inside, id=name) for name, title, inside in sections)
    whole = tag("html", _head(report), tag("body", _header(report), links, tag("main", body)), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _head(report: Report) -> Html:
    names = " and ".join(one.system.name for one in report.systems)
    return tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", f"Evaluation of {names}"),
        tag("style", Html(STYLE.read_text(encoding="utf-8"))),
    )


def _header(report: Report) -> Html:
    task, (first, *others) = report.task, report.systems
    against = [html("compared with "), join((tag("strong", one.system.name) for one in others), ", ")] if others else []
    facts = {"sentences": f"{len(task.sources):,}", **task.facts}
    return tag(
        "header",
        tag("p", "Evaluation", class_="kicker"),
        tag("h1", first.system.name),
        *([tag("p", *against, class_="against")] if against else []),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()), class_="facts"),
    )
