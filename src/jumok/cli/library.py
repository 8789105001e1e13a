"""The modules that commands call, each imported when a name of it is first used: help need not wait for PyTorch."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jumok.cli.loading import load


class LazyModule(ModuleType):
    """Stands for the module of its name; Ctrl-C while that is imported ends the program."""

    def __getattr__(self, name: str) -> Any:
        load(self.__name__)
        return getattr(sys.modules[self.__name__], name)


if TYPE_CHECKING:
    from jumok import data as data
    from jumok import model_folder as model_folder
    from jumok import tasks as tasks
    from jumok.analysis import draw as draw
    from jumok.analysis.alignment import error_rate as error_rate
    from jumok.analysis.curves import gradient_reach as gradient_reach
    from jumok.analysis.curves import score_by_length as score_by_length
    from jumok.analysis.curves import step_times as step_times
    from jumok.analysis.scores import metrics as metrics
    from jumok.bench import results as bench_results
    from jumok.data import terms as terms
    from jumok.data import word_links as word_links
    from jumok.exchange import convert as convert
    from jumok.serve import app as serve_app
    from jumok.serve import guard as guard
    from jumok.serve import models as serve_models
    from jumok.serve import server as server
    from jumok.serve import service as service
    from jumok.tasks import alignment as alignment
    from jumok.tasks import average as average
    from jumok.tasks import back_translation as back_translation
    from jumok.tasks import comparison as comparison
    from jumok.tasks import demo as demo
    from jumok.tasks import describe as describe
    from jumok.tasks import evaluation as evaluation
    from jumok.tasks import inspect as inspect
    from jumok.tasks import map_source as map_source
    from jumok.tasks import run as run
    from jumok.tasks import shortlist_from_text as shortlist_from_text
    from jumok.tasks import translation_scores as translation_scores
    from jumok.tasks import translation_warnings as translation_warnings

    __all__ = ["bench_results", "serve_app", "serve_models"]  # for type checkers; `as` exports only unchanged names
else:
    data = LazyModule("jumok.data")
    model_folder = LazyModule("jumok.model_folder")
    tasks = LazyModule("jumok.tasks")
    draw = LazyModule("jumok.analysis.draw")
    error_rate = LazyModule("jumok.analysis.alignment.error_rate")
    gradient_reach = LazyModule("jumok.analysis.curves.gradient_reach")
    score_by_length = LazyModule("jumok.analysis.curves.score_by_length")
    step_times = LazyModule("jumok.analysis.curves.step_times")
    metrics = LazyModule("jumok.analysis.scores.metrics")
    bench_results = LazyModule("jumok.bench.results")
    terms = LazyModule("jumok.data.terms")
    word_links = LazyModule("jumok.data.word_links")
    convert = LazyModule("jumok.exchange.convert")
    serve_app = LazyModule("jumok.serve.app")
    guard = LazyModule("jumok.serve.guard")
    serve_models = LazyModule("jumok.serve.models")
    server = LazyModule("jumok.serve.server")
    service = LazyModule("jumok.serve.service")
    alignment = LazyModule("jumok.tasks.alignment")
    average = LazyModule("jumok.tasks.average")
    back_translation = LazyModule("jumok.tasks.back_translation")
    comparison = LazyModule("jumok.tasks.comparison")
    demo = LazyModule("jumok.tasks.demo")
    describe = LazyModule("jumok.tasks.describe")
    evaluation = LazyModule("jumok.tasks.evaluation")
    inspect = LazyModule("jumok.tasks.inspect")
    map_source = LazyModule("jumok.tasks.map_source")
    run = LazyModule("jumok.tasks.run")
    shortlist_from_text = LazyModule("jumok.tasks.shortlist_from_text")
    translation_scores = LazyModule("jumok.tasks.translation_scores")
    translation_warnings = LazyModule("jumok.tasks.translation_warnings")
