"""Commands that must fail: one clear line, exit code 1, no traceback; and ways to damage what they read."""

import errno
import json
import os
from contextlib import contextmanager
from hashlib import sha256

import pytest

from support.commands import jumok

MODEL_FILES = ["model.safetensors", "tokenizer.model", "recipe.toml", "checksums.json"]


def names(message, *facts):
    """Assert that a message states every fact, in whatever words; tables of cases join facts: "line 2 … 'x'"."""
    missing = [part for fact in facts for part in str(fact).split(" … ") if part not in message]
    assert not missing, f"{message!r} does not name {missing}"


@contextmanager
def refuses(error, *facts):
    """Expect an error whose message is one line and names the facts."""
    with pytest.raises(error) as raised:
        yield raised
    assert "\n" not in str(raised.value)
    names(str(raised.value), *facts)


def refused(*arguments, stdin=b""):
    """The one message of a command that must fail."""
    done = jumok(*arguments, stdin=stdin)
    assert done.code == 1, done
    *before, said = done.err.rstrip("\n").replace("\n       ", " ").split("\n")
    assert said.startswith("jumok: "), done.err
    assert not any(line.startswith("jumok: ") or "Traceback" in line for line in before)
    assert done.out == ""
    return said.removeprefix("jumok: ")


def train(recipe, *options):
    return refused("train", write_recipe(recipe), "--out", "run", "--device", "cpu", *options)


def write_recipe(text):
    with open("recipe.toml", "w", encoding="utf-8") as file:
        file.write(text)
    return "recipe.toml"


def two_files(source, target):
    for name, content in (("train.a", source), ("train.b", target)):
        with open(name, "wb") as file:
            file.write(content)
    return '[data]\nsource = "train.a"\ntarget = "train.b"\n[tokenizer]\nkind = "char"\n'


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def reseal(folder):
    """Write the checksums anew, as somebody would who changes a model on purpose."""
    digests = json.loads((folder / "checksums.json").read_text())
    digests = {name: sha256((folder / name).read_bytes()).hexdigest() for name in digests}
    (folder / "checksums.json").write_text(json.dumps(digests))


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
