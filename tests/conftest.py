"""What every test shares."""

import os

import hypothesis
import torch

os.environ.setdefault("KERAS_BACKEND", "torch")

# The same examples every time: a failure seen once is seen again.
hypothesis.settings.register_profile("jumok", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("jumok")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
