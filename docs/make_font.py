"""Create the Hangul font that jumok ships from Noto Sans CJK: python -m docs.make_font NotoSansCJK-Regular.ttc.

The source is Debian's package fonts-noto-cjk (version 1:20220127+repack1-1 for the stored file):
apt-get download fonts-noto-cjk; dpkg -x fonts-noto-cjk_*.deb noto.

The subset keeps all Hangul syllables and jamo, the rules that combine jamo into syllables, Latin letters and symbols.
It drops Chinese characters, kana and hinting, and converts cubic outlines to TrueType outlines, the only ones that
matplotlib can embed in a PDF.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.pens.cu2quPen import Cu2QuPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTCollection, TTFont, newTable

from jumok.analysis.draw.fonts import SHIPPED, SHIPPED_FILE

SOURCE = "Noto Sans CJK KR"
RANGES = (
    (0x0020, 0x017F),  # Latin
    (0x1100, 0x11FF),  # jamo
    (0x2010, 0x206F),  # punctuation
    (0x20A9, 0x20AC),  # won and euro
    (0x2100, 0x214F),  # letterlike symbols
    (0x2190, 0x2193),  # arrows
    (0x2200, 0x22FF),  # mathematics
    (0x2581, 0x2581),  # the space marker of subword tokens
    (0x25A0, 0x25FF),  # shapes
    (0x3000, 0x301F),  # CJK punctuation
    (0x3131, 0x318E),  # compatibility jamo
    (0x3200, 0x321E),  # parenthesised Hangul
    (0x3260, 0x327F),  # circled Hangul
    (0xA960, 0xA97C),  # old jamo
    (0xAC00, 0xD7A3),  # syllables
    (0xD7B0, 0xD7FB),  # old jamo
    (0xFF01, 0xFFE6),  # full-width Latin, half-width jamo
)
JOIN = ["ccmp", "ljmo", "vjmo", "tjmo"]
"""OpenType features that combine jamo into a syllable."""
KANA = range(0xFF65, 0xFFA0)
EXACT = 1.0
"""Largest error of a converted outline, in thousandths of the font size."""


def cut(font: TTFont) -> None:
    """Remove the glyphs of other scripts and everything that only they use."""
    options = subset.Options()
    options.layout_features, options.hinting, options.glyph_names = JOIN, False, False
    options.name_IDs, options.drop_tables = [0, 1, 2, 3, 4, 5, 6, 13, 14], ["BASE", "VORG", "vhea", "vmtx"]
    subsetter = subset.Subsetter(options)
    letters = [code for first, last in RANGES for code in range(first, last + 1) if code not in KANA]
    subsetter.populate(unicodes=letters)
    subsetter.subset(font)


def to_truetype(font: TTFont) -> None:
    """Replace cubic outlines with quadratic ones."""
    drawn, order, outlines = font.getGlyphSet(), font.getGlyphOrder(), {}
    for name in order:
        pen = TTGlyphPen(drawn)
        drawn[name].draw(Cu2QuPen(pen, EXACT, reverse_direction=True))
        outlines[name] = pen.glyph()
    del font["CFF "]
    font["loca"], font["glyf"] = newTable("loca"), newTable("glyf")
    font["glyf"].glyphOrder, font["glyf"].glyphs = order, outlines
    font["maxp"].tableVersion, font["maxp"].maxZones = 0x00010000, 1
    for limit in ("TwilightPoints", "Storage", "FunctionDefs", "InstructionDefs", "StackElements"):
        setattr(font["maxp"], f"max{limit}", 0)
    font["maxp"].maxSizeOfInstructions = font["maxp"].maxComponentElements = 0
    font["post"].formatType, font.sfntVersion = 3.0, "\0\1\0\0"


def rename(font: TTFont) -> None:
    """Give the font its own name, so that it never replaces an installed copy of the full font."""
    version = font["name"].getDebugName(5)
    font["name"].names = [record for record in font["name"].names if record.nameID in (0, 13, 14)]
    plain = SHIPPED.replace(" ", "")
    for number, text in {
        1: SHIPPED,
        2: "Regular",
        3: f"{plain}-Regular of {SOURCE} {version}",
        4: SHIPPED,
        5: f"{version}; a part of {SOURCE}",
        6: f"{plain}-Regular",
    }.items():
        font["name"].setName(text, number, 3, 1, 0x409)


def main(source: Path) -> None:
    """Write the font into the package."""
    fonts = TTCollection(source).fonts
    font = next(font for font in fonts if font["name"].getDebugName(4) == SOURCE)
    font.recalcTimestamp = False
    cut(font)
    to_truetype(font)
    rename(font)
    font.save(SHIPPED_FILE)
    print(f"{SHIPPED_FILE}: {len(font.getGlyphOrder()):,} outlines, {SHIPPED_FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
