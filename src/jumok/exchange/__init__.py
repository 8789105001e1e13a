"""Import models of other toolkits into model folders, and export model folders to them."""

from typing import Literal

Format = Literal["ctranslate2", "onnx", "marian-hf", "hf"]
"""What models are exported to."""
