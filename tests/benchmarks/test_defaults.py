"""What benchmark scripts run when no names are given."""

import json
import re

from benchmarks import multi30k, results


def test_multi30k_trains_the_recipes_of_its_tables():
    rows = json.loads((results.FOLDER / "multi30k.json").read_text(encoding="utf-8"))["rows"]
    shown = [found[1] for row in rows if (found := re.match(r"recipes/multi30k-(\S+)\.toml,", row["conditions"]))]
    assert set(multi30k.SHOWN) == set(shown)
