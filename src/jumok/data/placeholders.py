"""Placeholders and markup of software texts, which a translation must keep: %s, %1, {name}, $1, <b>, &amp;."""

import re
from collections import Counter

PLACEHOLDER = re.compile(
    r"""
    %(?:\d+\$)?[-+\#0']*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfgGcspnSm@](?![A-Za-z])  # printf
    | %\([A-Za-z_][\w.]*\)[-+\#0]*\d*(?:\.\d+)?[diouxXeEfgGcsr]  # Python
    | %L?\d{1,2}(?!\d)  # Qt and KDE
    | %%
    | \$\{[^{}\s]+\} | \$\([^()\s]+\) | \$\d+ | \$[A-Za-z_]\w*\$  # shells, Chromium
    | \{\{?[^{}\s]*\}?\}  # str.format, ICU
    | </?[A-Za-z][^<>]*> | &[A-Za-z]+;  # markup
    """,
    re.VERBOSE | re.ASCII,
)
NUMBERED = re.compile(r"(?<=%)\d+\$")
"""The number in %1$s: a translation may number placeholders to change their order."""


def placeholders(text: str) -> Counter[str]:
    """How often each placeholder and tag occurs in a text; %1$s counts as %s."""
    return Counter(NUMBERED.sub("", placeholder) for placeholder in PLACEHOLDER.findall(text))


def keeps_placeholders(source: str, output: str) -> bool:
    """Whether a translation has the placeholders and tags of its source, each as often, and no others."""
    return placeholders(source) == placeholders(output)
