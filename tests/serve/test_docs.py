"""The commands of docs/serve.md, asked of a server with the model that comes with jumok."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from jumok.model_folder import BUNDLED
from support.serving import serving

PAGE = Path(__file__).resolve().parents[2] / "docs/serve.md"
COMMANDS = re.findall(r"^\$ (curl .*)\n((?:(?!```|\$ ).*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def bundled():
    with serving({"en-ko": BUNDLED}) as running:
        yield running


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command.split()[1:3][-1] for command, _ in COMMANDS])
def test_a_command_of_the_page_prints_what_the_page_shows(bundled, command, shown):
    words = shlex.split(command.replace("http://127.0.0.1:8000", bundled.url))
    said = subprocess.run([*words, "--silent"], capture_output=True, text=True, check=True, encoding="utf-8").stdout
    assert parts(said) == parts(shown)


def parts(text):
    """JSON values, and the names of events before them; numbers as far as they are shown."""
    if text.startswith("event: "):
        return [(name, rounded(json.loads(data))) for name, data in re.findall(r"event: (\w+)\ndata: (.*)", text)]
    return rounded(json.loads(text))


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return pytest.approx(value, abs=5e-5) if isinstance(value, float) else value


def test_every_path_and_option_is_on_the_page(bundled):
    text = PAGE.read_text(encoding="utf-8")
    assert [path for path in bundled.get("/openapi.json").json["paths"] if path not in text] == []
