"""The machine that numbers were measured on, in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CPUINFO = Path("/proc/cpuinfo")
PROCESSORS = Path("/proc/stat")


def describe_machine(kubernetes_version: str) -> str:
    """Return processor model, cores, memory, load, kernel, Python and Kubernetes version."""
    cores = len(os.sched_getaffinity(0))
    parts = [
        processor_model(CPUINFO.read_text()) if CPUINFO.exists() else platform.processor(),
        f"{cores} core{'s' if cores != 1 else ''}",
        f"{total_memory(MEMINFO.read_text()) / 2**30:.0f} GiB" if MEMINFO.exists() else "memory unknown",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"Kubernetes {kubernetes_version}",
        f"load {os.getloadavg()[0]:.1f} before the start",
    ]
    return ", ".join(parts)


def processor_model(text: str) -> str:
    """Return the model from the text of /proc/cpuinfo; ``unknown processor`` when it names none."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == "model name":
            return value.strip()
    return "unknown processor"


def total_memory(text: str) -> int:
    """Return the bytes of memory from the text of /proc/meminfo; 0 when it names none."""
    for line in text.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, user and system, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has resident now."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def busy_seconds() -> float:
    """Return the processor time that all processes and the kernel have used since the machine started."""
    fields = [int(field) for field in PROCESSORS.read_text().partition("\n")[0].split()[1:9]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = fields
    return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")
