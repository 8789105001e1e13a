"""From attention weights to numbers and pictures."""
