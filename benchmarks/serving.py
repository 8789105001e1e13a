"""A server as users start it, on a port of its own, for as long as it is measured or photographed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The address of `jumok serve ARGUMENTS`; it ends with the block."""
    command = [sys.executable, "-m", "jumok.cli", "serve", *arguments, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = next((line for line in process.stderr if line.startswith(("serving", "jumok:"))), "")
            found = re.search(r"^serving .* at (http://\S+)", said)
            if found is None:
                raise RuntimeError(f"the server did not start: {said.strip()}")
            yield found[1]
        finally:
            process.terminate()
