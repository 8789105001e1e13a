"""A process of `jumok serve` on a free port, for benchmarks and screenshots."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 90.0
"""Seconds to wait for the server to start, to answer, and to stop."""


@dataclass
class Server:
    """A process of `jumok serve`, and the time at which it was told to stop."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    stopped: float = float("inf")

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def memory(self) -> float:
        """The megabytes it uses."""
        status = Path(f"/proc/{self.process.pid}/status")
        size = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(size[1]) / 1024 if size else float("nan")

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.stopped = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def running_server(*arguments: str) -> Iterator[Server]:
    """Run `jumok serve ARGUMENTS` with its messages in a file."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "jumok", "serve", *arguments, "--port", "0", "--device", "cpu"]
        with log.open("wb") as messages:
            process = subprocess.Popen(command, stderr=messages)
        try:
            yield Server(process, _port(process, log), log)
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the server prints once it has started."""
    deadline = time.monotonic() + PATIENCE
    while not (address := re.search(r"at http://127\.0\.0\.1:(\d+)", log.read_text())):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server did not start: {log.read_text().strip()}")
        time.sleep(0.1)
    return int(address[1])
