"""What a model folder holds, for every task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from jumok.models.weights import weights_of
from jumok.tasks import load_trained
from jumok.tasks.describe import count
from jumok.tasks.task import AnyTask, in_words
from jumok.training.config import TrainingConfig
from jumok.training.metrics import read_metrics
from jumok.training.score_names import score_text


class Inspection(NamedTuple):
    """What a model folder holds."""

    facts: dict[str, Any]
    """What the model is and does, how it was trained, the parameters of its parts and the sizes of its files."""
    shapes: dict[str, list[int]]
    """The shape of every weight."""

    def rows(self) -> list[tuple[str, str]]:
        """The facts as a table for people."""
        parts, files = self.facts["parts"], self.facts["files"]
        rows = []
        for name, text in in_words(self.facts).items():
            if name == "training" and "imported from" in self.facts:
                continue
            if name == "training":
                rows.append(("trained for", training_in_words(self.facts["training"])))
            elif name not in ("parts", "files"):
                rows.append((name, text))
            if name == "parameters":
                rows += [(f"  {part}", f"{numbers:,}") for part, numbers in parts.items()]
        return [*rows, ("files", ""), *((f"  {name}", size_in_words(size)) for name, size in files.items())]


def inspect(folder: str | Path, *, task: AnyTask | None = None) -> Inspection:
    """Describe the model of a folder, checking every file on the way."""
    task, trained = load_trained(folder, task=task)
    tensors = weights_of(trained.model)
    facts = task.describe(trained) | {
        "use": " or ".join(task.usage(str(folder), trained)),
        "training": training_so_far(Path(folder), trained.recipe.training),
        "parts": parameters_by_part(dict(trained.model.named_parameters())),
        "files": file_sizes(Path(folder)),
    }
    return Inspection(facts, {name: list(tensor.shape) for name, tensor in tensors.items()})


def parameters_by_part(parameters: Mapping[str, Tensor]) -> dict[str, int]:
    """How many numbers each part of a model has; a table that several parts share is counted where it comes first."""
    counts: dict[str, int] = {}
    for name, parameter in parameters.items():
        part = _part(name)
        counts[part] = counts.get(part, 0) + parameter.numel()
    if "target embeddings" not in counts and "source embeddings" in counts:
        counts = {"embeddings of both sides" if k == "source embeddings" else k: v for k, v in counts.items()}
    return counts


def training_so_far(folder: Path, config: TrainingConfig) -> dict[str, Any]:
    """Steps, epochs, time and the best score, from the metrics beside the model; empty without them."""
    path = folder / "metrics.jsonl"
    records = read_metrics(path) if path.is_file() else []
    steps = [record for record in records if "validation" not in record]
    best = [record for record in records if record.get("best")]
    facts: dict[str, Any] = {}
    if records:
        facts["steps"] = max(record["step"] for record in records)
    if steps:
        facts |= {"epochs": steps[-1].get("epoch", 0) + 1, "minutes": round(steps[-1].get("seconds", 0) / 60, 1)}
    if best and config.metric in best[-1]["validation"]:
        facts |= {"metric": config.metric, "best": best[-1]["validation"][config.metric], "best step": best[-1]["step"]}
    return facts


def training_in_words(facts: Mapping[str, Any]) -> str:
    """The same as one line."""
    if "steps" not in facts:
        return "not known: metrics.jsonl is not in the folder"
    words = [count(facts["steps"], "step")]
    if "epochs" in facts:
        words += [count(facts["epochs"], "epoch") + " begun", f"{facts['minutes']:g} minutes"]
    if "best" in facts:
        words.append(f"best {score_text(facts['metric'], facts['best'])} at step {facts['best step']:,}")
    return ", ".join(words)


def file_sizes(folder: Path) -> dict[str, int]:
    """The size in bytes of every file and folder."""
    return {
        path.name + ("/" if path.is_dir() else ""): sum(file.stat().st_size for file in _inside(path) if file.is_file())
        for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    }


def size_in_words(size: int) -> str:
    """12345678 as 12.3 MB."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} bytes"


def _part(name: str) -> str:
    half, _, rest = name.partition(".")
    if half == "layers":
        return f"layer {rest.partition('.')[0]}"
    if "embedding" in rest:
        return "source embeddings" if half == "encoder" else "target embeddings"
    return "output" if rest.startswith("output") else half


def _inside(path: Path) -> list[Path]:
    return [path] if not path.is_dir() else list(path.rglob("*"))
