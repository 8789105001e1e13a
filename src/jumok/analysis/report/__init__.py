"""The evaluation report."""
