"""Section: what was measured on, and with; what memory does by itself."""
import json
import os

from .blocks import Table, figure, paragraph
from .runner import Step

NAME, TITLE, PEERS = "infrastructure", "Infrastructure", []
ALWAYS = True  # there is something to tell when nothing was measured
SIZES = [1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26]
WAYS = {"memcpy": "one core copies", "memcpy_both": "both of two ranks copy", "shared_flag": "a flag in shared memory",
        "socket_spinning": "TCP on loopback, polled", "socket_blocking": "TCP on loopback, blocking"}


def plan(context):
    def read(folder, _):
        with open(os.path.join(folder, "p2p.json"), encoding="utf-8") as file:
            return json.load(file)

    sizes = ",".join(map(str, [8, *SIZES]))
    command = [context.program("dbench"), "p2p", "--nproc", "2", "--references", "--dtype", "u8", "--counts", sizes,
               "--seconds", "0.1" if context.quick else "0.3", "--json", "{out}/p2p.json"]
    left_out = {"GPU": "nvidia-smi names no device"} if not context.has_gpu else {
        "copies to and from the GPU": "no tool here measures them yet"}
    return [Step(NAME, "memory", command, 8 if context.quick else 20, read, about="memory and sockets")], left_out


def figures(data):
    found = []
    for cell in data.get("infrastructure/memory", {}).get("cells", []):
        way, size, seconds = cell["way"], cell["bytes"], cell["one_way_us"] * 1e-6
        if way.startswith("memcpy"):
            found.append(figure(NAME, "copying", {"bytes": size}, WAYS[way], "GB/s", [size / seconds * 1e-9], "higher"))
        elif size == 8 and "round_trip_us" in cell:
            found.append(figure(NAME, "round trip", {"bytes": size}, WAYS[way], "µs", [cell["round_trip_us"]]))
    return found


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
    yield Table("The machine", ["", ""], rows, "lscpu; nvidia-smi", text_columns=2)
    rows = [["git commit", document["commit"]], ["dlaunch", build["dlaunch"]], ["compiler", build["compiler"]],
            ["build", f"{build['build_type']} {build['flags']}"],
            *sorted(machine["libraries"].items()), *machine["peers"].items(), *machine["tools"].items()]
    yield Table("Versions", ["", ""], [list(row) for row in rows], "dpkg-query -W", text_columns=2)
    yield paragraph("Memory as programs see it: copied bytes per second, of buffers of a size. Each copied byte is read "
                    "once and written once.")
    yield from tables(document, entries)


def tables(document, entries):
    command = document["steps"].get("infrastructure/memory", {}).get("command", "")
    copies = {}
    for entry in entries:
        if entry["measure"] == "copying":
            copies.setdefault(entry["case"]["bytes"], {})[entry["contender"]] = entry
    if copies:
        names = [WAYS["memcpy"], WAYS["memcpy_both"]]
        rows = [[f"{size:,}"] + [f"{of_size[name]['value']:.1f}" if name in of_size else "–" for name in names]
                for size, of_size in sorted(copies.items()) if size >= SIZES[0]]
        yield Table("Copying memory, GB/s of each core", ["bytes", *names], rows, command, text_columns=0)
    trips = [[entry["contender"], f"{entry['value']:.2f}"] for entry in entries if entry["measure"] == "round trip"]
    if trips:
        yield Table("8 bytes there and back between two processes, µs", ["way", "µs"], trips, command)
