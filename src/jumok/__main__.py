"""`python -m jumok` is the command `jumok`; torchrun starts it so: `torchrun -m jumok train recipe.toml`."""

from jumok.cli import main

if __name__ == "__main__":
    main()
