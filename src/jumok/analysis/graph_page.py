"""Whom a node looked at, as one page to be opened offline: the drawing, and a table with the weight of every head."""

from html import escape

from jumok.analysis.colours import colour
from jumok.analysis.graph_map import GraphMap, Seen
from jumok.analysis.graph_svg import graph_svg


def graph_page(shown: GraphMap) -> str:
    """One self-contained file: nothing is fetched, and no script runs."""
    heads = len(shown.seen[0].heads) if shown.seen else 0
    columns = "".join(f"<th>head {head}</th>" for head in range(heads)) if heads > 1 else ""
    rows = "\n".join(_row(one, shown.node, heads) for one in shown.seen)
    heading = f"<tr><th>node</th><th>class</th><th>weight</th>{columns}</tr>"
    table = f"<table><thead>{heading}</thead><tbody>{rows}</tbody></table>"
    nothing = "<p>It has no neighbour and looked at nothing.</p>"
    return PAGE.format(title=escape(shown.title()), picture=graph_svg(shown), table=table if shown.seen else nothing)


def _row(one: Seen, centre: int, heads: int) -> str:
    name = escape(one.name) + (" (itself)" if one.node == centre else "")
    weights = (one.weight, *one.heads) if heads > 1 else (one.weight,)
    return f"<tr><td>{name}</td><td>{escape(one.label)}</td>{''.join(map(_cell, weights))}</tr>"


def _cell(weight: float) -> str:
    ink = "#fff" if weight > 0.45 else "#1f2933"
    return f'<td class="w" style="background:{colour(weight)};color:{ink}">{weight:.3f}</td>'


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="jumok">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ margin: 0 auto; padding: 20px clamp(14px, 4vw, 40px) 48px; max-width: 1320px; background: #fff; color: #1f2933;
  font: 14px Pretendard, 'Noto Sans KR', 'Apple SD Gothic Neo', 'Malgun Gothic', system-ui, sans-serif; }}
header {{ color: #7b8794; font-size: 13px; margin-bottom: 8px; }}
main {{ display: flex; flex-wrap: wrap; gap: 28px; align-items: flex-start; }}
svg {{ max-width: 100%; height: auto; flex: 0 1 auto; }}
circle, line {{ transition: opacity .15s; }}
svg:has(circle:hover, line:hover) :is(circle, line):not(:hover) {{ opacity: .35; }}
.weights {{ flex: 1 1 320px; max-height: 90vh; overflow: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th {{ text-align: left; font-weight: 600; color: #66717f; padding: 4px 8px; position: sticky; top: 0;
  background: #fff; }}
td {{ padding: 4px 8px; border-bottom: 1px solid #e7ecf2; }}
td.w {{ text-align: right; }}
</style>
</head>
<body>
<header>주목 jumok · whom a node looked at</header>
<main>
{picture}
<div class="weights">
{table}
</div>
</main>
</body>
</html>
"""
