"""Tasks: translation, captioning, node classification."""
