"""What every test shares."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
