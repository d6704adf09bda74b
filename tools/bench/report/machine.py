"""What was measured on, and with: the machine, and the versions of ours, of every library and of every peer."""
import json
import os
import platform
import re
import shutil
import subprocess


def output_of(*command, seconds=30):
    """What a command prints, or nothing where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def first_line(text):
    return text.splitlines()[0].strip() if text else ""


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def cpu():
    """Of lscpu: {"Model name": ..., "L3 cache": ...}, and what of the instruction sets matters here."""
    lines = {}
    try:
        for entry in json.loads(output_of("lscpu", "-J") or '{"lscpu": []}')["lscpu"]:
            collect_fields(entry, lines)
    except (ValueError, KeyError):
        pass
    flags = lines.get("Flags", "").split()
    known = ["avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16"]
    return {"model": lines.get("Model name", platform.processor() or "unknown"),
            "cores": os.cpu_count(), "threads_per_core": lines.get("Thread(s) per core", "unknown"),
            "numa_nodes": lines.get("NUMA node(s)", "unknown"),
            "hypervisor": lines.get("Hypervisor vendor", "none"),
            "caches": {level: lines[level + " cache"] for level in ("L1d", "L2", "L3") if level + " cache" in lines},
            "instructions": [flag for flag in known if flag in flags]}


def collect_fields(entry, lines):
    lines[entry["field"].rstrip(":")] = entry.get("data") or ""
    for child in entry.get("children", []):
        collect_fields(child, lines)


def memory_gib():
    found = re.search(r"MemTotal:\s+(\d+)", read("/proc/meminfo"))
    return round(int(found[1]) / (1 << 20), 1) if found else None


def distribution():
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release"), re.MULTILINE)
    return found[1] if found else "unknown"


def gpus():
    """A dict for each GPU that the driver shows."""
    keys = ["name", "driver_version", "memory.total", "compute_cap"]
    lines = output_of("nvidia-smi", "--query-gpu=" + ",".join(keys), "--format=csv,noheader").splitlines()
    return [dict(zip(keys, (word.strip() for word in line.split(",")))) for line in lines]


def build(programs):
    """Compiler and kind of the build that the programs are of, as far as its cache lies where it should."""
    cache = read(os.path.join(programs, "..", "CMakeCache.txt"))
    entries = dict(re.findall(r"^([A-Za-z0-9_]+):[A-Z]+=(.*)$", cache, re.MULTILINE))
    compiler = entries.get("CMAKE_CXX_COMPILER", "")
    return {"dlaunch": first_line(output_of(os.path.join(programs, "dlaunch"), "--version")) or "unknown",
            "compiler": first_line(output_of(compiler, "--version")) if compiler else "unknown: no CMakeCache.txt there",
            "build_type": entries.get("CMAKE_BUILD_TYPE", "unknown"),
            "flags": entries.get("CMAKE_CXX_FLAGS_" + entries.get("CMAKE_BUILD_TYPE", "").upper(), "unknown")}


def libraries(root):
    """Versions of the packages that tools/packages.sh names, where dpkg knows them."""
    named = re.findall(r"\blib[a-z0-9+.-]+-dev\b|\bnlohmann-json3-dev\b", read(os.path.join(root, "tools", "packages.sh")))
    if not named or not shutil.which("dpkg-query"):
        return {}
    try:  # not output_of: dpkg-query fails if it misses any
        text = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *named], capture_output=True,
                              text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line.strip())


def peers(torch_python, torchrun):
    """Name -> version, or why it is missing."""
    def version(program, package):
        if not shutil.which(program):
            return f"missing: no {program}, install {package}"
        text = output_of(program, "--version") or "unknown"
        found = re.search(r"[Vv]ersion:?\s*([0-9][\w.]*)|\s([0-9]+\.[0-9][\w.]*)", text)
        return (found[1] or found[2]) if found else first_line(text)

    torch = output_of(torch_python, "-c", "import torch; print(torch.__version__)", seconds=120) if torch_python else ""
    return {"Open MPI": version("mpirun.openmpi", "openmpi-bin libopenmpi-dev"),
            "MPICH": version("mpiexec.hydra", "mpich libmpich-dev"),
            "PyTorch": torch or "missing: no Python with torch, name one with --torch-python",
            "torchrun": "PyTorch's" if torchrun else "missing: name it with --torchrun"}


def commit(root):
    """The git commit, with + if files differ from it; "unknown" outside a repository."""
    head = output_of("git", "-C", root, "rev-parse", "--short=10", "HEAD")
    changed = output_of("git", "-C", root, "status", "--porcelain", "--untracked-files=no")
    return (head + ("+" if changed else "")) if head else "unknown"


def python_packages():
    versions = {"Python": platform.python_version()}
    try:
        import matplotlib
        versions["matplotlib"] = matplotlib.__version__
    except ImportError:
        versions["matplotlib"] = "missing: no plots, install python3-matplotlib"
    weasyprint = output_of("weasyprint", "--version")
    versions["WeasyPrint"] = weasyprint.rpartition(" ")[2] if weasyprint else "missing: no PDF, install weasyprint"
    return versions


def describe(root, programs, torch_python, torchrun):
    return {"cpu": cpu(), "memory_gib": memory_gib(), "gpus": gpus(), "distribution": distribution(),
            "kernel": platform.release(), "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            or "unknown", "load_average": list(os.getloadavg()), "build": build(programs),
            "libraries": libraries(root), "peers": peers(torch_python, torchrun)}
