"""GPUs that the fit knows: what their data sheets say."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU by its data sheet."""

    title: str
    architecture: str
    peak_flops_per_s: float
    """FP32 at boost clock."""
    memory_bytes_per_s: float


VOLTA = "volta"
PASCAL = "pascal"
TURING = "turing"

GPUS: dict[str, Gpu] = {
    "v100": Gpu("NVIDIA Tesla V100 SXM2", VOLTA, 15.7e12, 900e9),
    "titanv": Gpu("NVIDIA TITAN V", VOLTA, 14.9e12, 653e9),
    "p100": Gpu("NVIDIA Tesla P100 PCIe 16 GB", PASCAL, 9.3e12, 732e9),
    "1080ti": Gpu("NVIDIA GeForce GTX 1080 Ti", PASCAL, 11.34e12, 484e9),
    "titanxp": Gpu("NVIDIA TITAN Xp", PASCAL, 12.15e12, 548e9),
    "2080ti": Gpu("NVIDIA GeForce RTX 2080 Ti", TURING, 13.45e12, 616e9),
    "titanrtx": Gpu("NVIDIA TITAN RTX", TURING, 16.3e12, 672e9),
    "rtx6000": Gpu("NVIDIA Quadro RTX 6000", TURING, 16.3e12, 672e9),
    "rtx8000": Gpu("NVIDIA Quadro RTX 8000", TURING, 16.3e12, 672e9),
    "t4": Gpu("NVIDIA Tesla T4", TURING, 8.1e12, 320e9),
}

SLOWER: dict[str, tuple[str, str]] = {"k80": ("NVIDIA Tesla K80, one of its two GPUs", "p100")}
"""GPUs of which only the ratio to another one is known: title, and the other one."""
