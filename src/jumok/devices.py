"""Devices by name, the memory of a machine, two settings of a CPU before PyTorch is loaded, and one before training.

Some virtual machines advertise the AMX matrix units of a CPU but do not permit their use. oneDNN, which multiplies
bfloat16 matrices for PyTorch, uses them nevertheless, and the program crashes with an illegal instruction.

OpenMP's threads spin for milliseconds after each operation, waiting for the next. With another program on the same
cores this made training seventy times slower in a measurement, while a shorter wait costs nothing.
"""

import os
import sys

TYPE_CHECKING = False  # that of typing takes long to import, and `import jumok` imports this file
if TYPE_CHECKING:
    import torch

ASK_PERMISSION = 0x1023  # ARCH_REQ_XCOMP_PERM
TILE_DATA = 18  # XFEATURE_XTILEDATA
ARCH_PRCTL = 158
WITHOUT_AMX = "AVX512_CORE_BF16"
SPINS = "5000"  # some ten microseconds
KEEP_AT_MOST, MAP_FROM = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
MEMORY = "/proc/meminfo"
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files where Linux says how much of the machine's memory a container may use."""


def prepare_cpu() -> None:
    """Apply both settings, unless the environment or an earlier import of PyTorch has decided them."""
    avoid_broken_amx()
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def avoid_broken_amx() -> None:
    """Keep oneDNN from using AMX where it is advertised but not permitted; elsewhere change nothing."""
    if not (_advertised() and not _permitted()):
        return
    if "torch" not in sys.modules:
        # oneDNN reads this when PyTorch is loaded.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", WITHOUT_AMX)
    elif "ONEDNN_MAX_CPU_ISA" not in os.environ:
        # Too late for that: turn oneDNN off, which is slower but does not crash.
        sys.modules["torch"].backends.mkldnn.set_flags(False)


def _advertised() -> bool:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return "amx_tile" in file.read().split()
    except OSError:
        return False


def _permitted() -> bool:
    """Ask the kernel for the tile registers, as every program that uses them must."""
    import ctypes

    try:
        return int(ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, ASK_PERMISSION, TILE_DATA)) == 0
    except (OSError, AttributeError):
        return False


def keep_freed_memory() -> None:
    """Have the C library keep the memory that a training step frees for the next step, up to 1 GiB.

    Otherwise glibc returns large tensors to the system as soon as they are freed, and the next step waits while the
    same memory is mapped and zeroed again. Other C libraries are left as they are.
    """
    import ctypes

    try:
        adjust = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    adjust(KEEP_AT_MOST, 2**30)
    adjust(MAP_FROM, 2**25)  # the most that glibc accepts; larger tensors are still mapped one by one


def memory_limits() -> list[int]:
    """The limits in bytes on the memory of the container that this process runs in; none elsewhere."""
    limits = []
    for path in LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # "max" is no number
            continue
    return limits


def free_memory() -> float:
    """Bytes available without swapping, within the limits of a container; infinite if unknown."""
    try:
        with open(MEMORY, encoding="ascii") as file:
            available = [1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")]
    except OSError:  # only Linux has the file
        available = []
    return min([*available, *memory_limits()], default=float("inf"))


def find_device(name: str) -> "torch.device":
    """The device called auto (a GPU if there is one), cpu, cuda or cuda:1."""
    import torch

    from jumok.errors import ArgumentError

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device: torch.device | None = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"device = {name!r} must be auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ArgumentError(f"device = {name!r} was asked for, but PyTorch sees no GPU here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        gpus = ", ".join(f"cuda:{index}" for index in range(torch.cuda.device_count()))
        raise ArgumentError(f"device = {name!r} was asked for, but there are only: {gpus}")
    return device
