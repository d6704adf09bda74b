"""Section: what was measured on, and with; what cores, memory and sockets do by themselves."""
import json
import os

from .blocks import Table, command_of, figure, paragraph, table_of
from .runner import Step

NAME, TITLE, PEERS = "infrastructure", "Infrastructure", []
ALWAYS = True  # there is something to tell when nothing was measured
SIZES = [1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26]
WAYS = {"memcpy": "one core copies", "memcpy_both": "both of two ranks copy", "shared_flag": "a flag in shared memory",
        "socket_spinning": "TCP on loopback, polled", "socket_blocking": "TCP on loopback, blocking"}


TRAINING_CORES = 2  # the ranks of one thread with which training is measured
RATES = {"fp32": "fp32 multiply-adds, GFLOP/s", "bf16": "bf16 multiply-adds, GFLOP/s", "read": "reading memory, GB/s",
         "copy": "copying memory, GB/s"}


def plan(context):
    def read(folder, _):
        with open(os.path.join(folder, "figures.json"), encoding="utf-8") as file:
            return json.load(file)

    common = ["--seconds", "0.1" if context.quick else "0.3", "--json", "{out}/figures.json"]
    steps = []
    for ranks in sorted({1, min(TRAINING_CORES, context.cores), context.cores}):
        command = [context.program("dbench"), "machine", "--nproc", str(ranks), *common]
        steps.append(Step(NAME, f"machine-{ranks}", command, 2, read, about=f"what {cores_text(ranks)} can do at best"))
    sizes = ",".join(map(str, [8, *SIZES]))
    command = [context.program("dbench"), "p2p", "--nproc", "2", "--references", "--counts", sizes,
               *common]
    steps.append(Step(NAME, "memory", command, 7 if context.quick else 20, read, about="memory and sockets"))
    return steps, {} if context.has_gpu else {"GPU": "nvidia-smi names no device"}


def figures(data):
    found = []
    for document in data.values():
        for cell in document["cells"]:
            if document["operation"] == "machine":
                found.append(figure(NAME, "at best", {"what": RATES[cell["what"]]}, cores_text(document["ranks"]),
                                    cell["unit"], [cell["rate"]], "higher", cell["rate_p10"], cell["rate_p90"]))
                continue
            way, size = cell["way"], cell["bytes"]
            if way.startswith("memcpy"):
                rates = [size / cell["one_way_us" + part] * 1e-3 for part in ("", "_p90", "_p10")]
                found.append(figure(NAME, "copying", {"bytes": size}, WAYS[way], "GB/s", rates[:1], "higher", *rates[1:]))
            elif size == 8 and "round_trip_us" in cell:
                found.append(figure(NAME, "round trip", {"bytes": size}, WAYS[way], "µs", [cell["round_trip_us"]],
                                    low=cell["round_trip_us_p10"], high=cell["round_trip_us_p90"]))
    return found


def cores_text(ranks):
    return "one core" if ranks == 1 else f"{ranks} cores"


def peak(entries, kind):
    """The measured (fp32, bf16) rate of the cores that training has, in GFLOP/s, or None."""
    training = [cores_text(ranks) for ranks in range(1, TRAINING_CORES + 1)]
    rates = [entry["value"] for entry in entries if entry["section"] == NAME and entry["measure"] == "at best"
             and entry["case"]["what"] == RATES[kind] and entry["contender"] in training]
    return max(rates, default=None)


def blocks(document, entries, _plots):
    machine = document["machine"]
    cpu, build = machine["cpu"], machine["build"]
    rows = [["processor", cpu["model"]], ["cores", f"{cpu['cores']} (threads per core: {cpu['threads_per_core']}, "
                                                   f"NUMA nodes: {cpu['numa_nodes']})"],
            ["caches", ", ".join(f"{level} {size}" for level, size in cpu["caches"].items()) or "unknown"],
            ["instructions", " ".join(cpu["instructions"]) or "none of those that matter here"],
            ["hypervisor", cpu["hypervisor"]], ["memory", f"{machine['memory_gib']} GiB"],
            ["frequency governor", machine["governor"]],
            ["GPU", "; ".join(", ".join(gpu.values()) for gpu in machine["gpus"]) or "none"],
            ["system", f"{machine['distribution']}, Linux {machine['kernel']}"],
            ["load average when begun", " ".join(f"{value:.2f}" for value in machine["load_average"])]]
    yield Table("The machine", ["what", "here"], rows, "lscpu; nvidia-smi", text_columns=2)
    rows = [["git commit", document["commit"]], ["dlaunch", build["dlaunch"]], ["compiler", build["compiler"]],
            ["build", f"{build['build_type']} {build['flags']}"],
            *sorted(machine["libraries"].items()), *machine["peers"].items(), *machine["tools"].items()]
    yield Table("Versions", ["what", "version"], [list(row) for row in rows], "dpkg-query -W", text_columns=2)
    command = command_of(document, NAME)
    yield table_of(entries, "at best", ["what"], "Peak rates of the cores, all at the same time; copied bytes count twice",
                   command)
    if "amx_bf16" in cpu["instructions"]:
        yield paragraph("The bf16 rate is that of AVX512-BF16. This processor also has AMX, which was not measured.")
    for measure, caption in (("copying", "Copying a buffer, each core; a copied byte counts once"),
                             ("round trip", "Round trip between two processes")):
        yield table_of(entries, measure, ["bytes"], caption, command)
