"""Registers per thread and instructions per pair and feature of compiled fused additive attention.

    python -m benchmarks.additive_code [--out FOLDER]

Compiles the score kernels for an H200 (sm_90) with the installed Triton; needs no GPU. Writes additive_code.json.
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks import results
from benchmarks.results import Row
from jumok.attention.additive.gpu import score_kernels
from jumok.attention.additive.gpu.forward import AHEAD, REGISTERS, SMALL_TILE, TILE, part_of
from jumok.attention.triton_launch import VARYING

POINTERS = {"room": "*fp32", "query": "*fp32", "key": "*fp32", "plane": "*fp32", "first": "*i64", "beyond": "*i64"}
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
CONDITIONS = "sm_90; d 256; sizes that are multiples of 16"
DIM, PAIRS, FEATURES = 256, 16, 4
"""Features of the problem; pairs that a thread of a large tile has, and features of one turn of its loop."""


def machine_code(kernel: Any, warps: int, registers: int | None, **constants: Any) -> tuple[int, list[tuple[str, str]]]:
    """Registers of a thread, and the instructions, for sizes that are multiples of 16."""
    function = kernel.function
    types = {name: POINTERS.get(name, "i32") for name in function.arg_names} | dict.fromkeys(constants, "constexpr")
    placed = [name for name in function.arg_names if name not in constants and name not in VARYING]
    attributes = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in placed}
    source = ASTSource(fn=function, signature=types, constexprs=constants, attrs=attributes)
    options = {"num_warps": warps, "num_stages": 1, "maxnreg": registers}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        listings = [
            subprocess.run([TOOLS / "cuobjdump", wanted, file.name], capture_output=True, text=True, check=True).stdout
            for wanted in ("-res-usage", "-sass")
        ]
    return int(re.findall(r"REG:(\d+)", listings[0])[0]), re.findall(r"/\*([0-9a-f]{4})\*/\s+(.*?);", listings[1])


def inner_loop(code: list[tuple[str, str]]) -> list[str]:
    """The instructions of the first loop that ends."""
    for number, (address, text) in enumerate(code):
        target = re.search(r"BRA\S* .*0x([0-9a-f]+)", text)
        if target and int(target[1], 16) < int(address, 16):
            return [other for where, other in code[: number + 1] if int(where, 16) >= int(target[1], 16)]
    raise ValueError("there is no loop")


USUAL = {"FIRST": False, "BEYOND": False, "DIM": DIM, "PART": part_of(DIM), "ASSEMBLY": True}


def large_tiles() -> list[Row]:
    """The kernel of tiles that fill a GPU: its registers, and the instructions of its loop over features."""
    registers, code = machine_code(score_kernels.scores_kernel, TILE // 16, None, **USUAL, TILE=TILE)
    loop = inner_loop(code)
    arithmetic = [text for text in loop if re.search(r"\b(FFMA|FMUL|MUFU)", text)]
    uniform = [text for text in arithmetic if "UR" in text]
    parts = {"all": loop, "arithmetic": arithmetic, "with v in a uniform register": uniform}
    each = {name: len(instructions) / PAIRS / FEATURES for name, instructions in parts.items()}
    return [row("registers", "tiles of 32 × 32", registers), *(row("instructions", *part) for part in each.items())]


def small_tiles() -> list[Row]:
    """The registers of the kernel for problems that do not fill a GPU, left to Triton and limited."""
    sizes = {**USUAL, "ALL": True, "TILE": SMALL_TILE, "AHEAD": min(AHEAD, part_of(DIM) // FEATURES)}
    kernel = score_kernels.other_scores_kernel
    limits = {"tiles of 16 × 16": None, "tiles of 16 × 16, all there are": REGISTERS}
    return [row("registers", name, machine_code(kernel, 1, limit, **sizes)[0]) for name, limit in limits.items()]


def row(unit: str, name: str, value: float) -> Row:
    return Row(f"additive-{unit}/{name}", "jumok", value, unit, CONDITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    results.FOLDER = parser.parse_args().out
    rows = sorted([*large_tiles(), *small_tiles()], key=lambda row: row.unit, reverse=True)
    for each in rows:
        print(f"{each.id}: {each.value:g}")
    results.write("additive_code", rows, device="compiled for sm_90, not run", packages=("triton",))


if __name__ == "__main__":
    main()
