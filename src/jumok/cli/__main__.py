"""`python -m jumok.cli` is the command `jumok`."""

from jumok.cli import main

main()
