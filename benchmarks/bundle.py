"""Build the bundled model, src/jumok/bundled, from a finished run of its recipe.

    jumok train recipes/bundled-en-ko.toml --out runs/bundled
    python -m benchmarks.bundle runs/bundled

Stores the weights in half precision. Scores the model on values that occur in neither training nor validation data,
and on a fixed list of short texts that people are likely to try first. Days, months and single names on this list
occur in the training data, because a model cannot guess them.
"""

import argparse
from pathlib import Path

from benchmarks.results import Row, cpu, write
from jumok.data import Pair
from jumok.data.corpora.built_in import corpus_pairs
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION
from jumok.tasks.translator import Translator

UNSEEN = 2000
SHORT = {
    "3 hours": "3시간",
    "three hours": "3시간",
    "1 minute": "1분",
    "45 min": "45분",
    "2 weeks": "2주",
    "6 months": "6개월",
    "10 years": "10년",
    "Monday": "월요일",
    "Sunday": "일요일",
    "Wed": "수",
    "May": "5월",
    "December": "12월",
    "Aug": "8월",
    "May 5": "5월 5일",
    "December 25": "12월 25일",
    "Oct 9": "10월 9일",
    "8/15": "8. 15.",
    "Friday, May 5": "5월 5일 금요일",
    "March 2024": "2024년 3월",
    "May 5, 2024": "2024년 5월 5일",
    "10:30 AM": "오전 10:30",
    "9:05 PM": "오후 9:05",
    "12:00 PM": "오후 12:00",
    "7 AM": "오전 7시",
    "18:45": "18:45",
    "Korea": "대한민국",
    "South Korea": "대한민국",
    "Japan": "일본",
    "USA": "미국",
    "Korean": "한국어",
    "English": "영어",
    "France and Italy": "프랑스 및 이탈리아",
    "two days ago": "2일 전",
    "5 minutes ago": "5분 전",
    "in one week": "1주 후",
    "in 3 months": "3개월 후",
    "yesterday": "어제",
    "today": "오늘",
    "next week": "다음 주",
    "last year": "작년",
    "5 kilometers": "5킬로미터",
    "5 km": "5km",
    "70 kg": "70kg",
    "2.5 liters": "2.5리터",
    "25°C": "25°C",
    "50%": "50%",
    "100 km/h": "100km/h",
    "$5.00": "US$5.00",
    "₩5,000": "₩5,000",
    "10 euros": "10 유로",
    "1,000 South Korean won": "1,000 대한민국 원",
    "42": "42",
}
"""What people type first, and how CLDR writes it in Korean."""


def bundle(run: Path) -> None:
    trained = TRANSLATION.load(run, device="cpu").trained
    TRANSLATION.save(BUNDLED, trained, half=True)
    translator = TRANSLATION.load(BUNDLED, device="cpu")
    share = exact_match(translator, list(corpus_pairs("phrases", UNSEEN, split="test")))
    short = exact_match(translator, [Pair(*one) for one in SHORT.items()])
    scores = {
        f"exact match of {UNSEEN:,} unseen values": f"{round(share, 2):g}%",
        f"exact match of {len(SHORT)} short texts": f"{round(short, 2):g}%",
    }
    TRANSLATION.save(BUNDLED, trained, half=True, scores=scores)
    size = sum(path.stat().st_size for path in BUNDLED.iterdir())
    rows = [
        Row("bundled-exact-match", "jumok", round(share, 2), "%", f"{UNSEEN:,} unseen values, beam 3"),
        Row(
            "bundled-short",
            "jumok",
            round(short, 2),
            "%",
            f"{len(SHORT)} short texts, some of them learned, beam 3",
        ),
        Row("bundled-size", "jumok", round(size / 1e6, 2), "MB", "the whole folder, weights in half precision"),
    ]
    write("bundled", rows, device=cpu())


def exact_match(translator: Translator, pairs: list[Pair]) -> float:
    """Percent of the sources translated to the letter; what is wrong is printed."""
    found = translator.translate([pair.source for pair in pairs])
    wrong = [(pair, one.text) for pair, one in zip(pairs, found, strict=True) if one.text != pair.target]
    for pair, output in wrong[:20]:
        print(f"{pair.source} → {output} (not {pair.target})")
    return 100 * (1 - len(wrong) / len(pairs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    bundle(parser.parse_args().run)
