"""Section: ring against butterfly, and all-reduce beside the peers."""
from compare import plots as bench_plots
from compare import tables

from .blocks import Plot, command_of, figure, paragraph, table_of
from .context import read_lines
from .runner import Step

NAME, TITLE, PEERS = "collectives", "Collectives", ["Open MPI", "MPICH", "PyTorch"]
ALWAYS = False
COURSE_RANKS, GRID_RANKS = [1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16]
COURSE_NAMES = ["ring", "butterfly", "Gloo"]
GRID_NAMES = ["dlaunch", "dlaunch ring", "Open MPI", "MPICH", "Gloo"]


def plan(context):
    rounds, seconds = ("2", "0.1") if context.quick else ("3", "0.4")
    common = ["--rounds", rounds, "--seconds", seconds, *context.torch()]
    counts = "1000,10000,100000" if context.quick else "1000,10000,100000,1000000"
    steps = []
    for ranks in COURSE_RANKS:
        command = context.tool("compare_collectives", "course", "--ranks", str(ranks), *common)
        steps.append(Step(NAME, f"course-{ranks}", command, (8 if context.quick else 20) + ranks / 2,
                          lambda folder, _: read_lines(folder, "course.jsonl"),
                          about=f"ring against butterfly, ranks: {ranks}"))
    for ranks in GRID_RANKS:
        command = context.tool("compare_collectives", "allreduce", "--ring", "--ranks", str(ranks), "--counts", counts,
                               *common)
        steps.append(Step(NAME, f"peers-{ranks}", command, (12 if context.quick else 40) + 3 * ranks,
                          lambda folder, _: read_lines(folder, "allreduce.jsonl"),
                          about=f"all-reduce beside the peers, ranks: {ranks}"))
    return steps, {}


def runs_of(data, part):
    return [run for key, runs in data.items() if key.startswith(f"{NAME}/{part}-") for run in runs]


def figures(data):
    found = []
    for part, prefix in (("course", "mean: "), ("peers", "sum: ")):
        for (ranks, count), of_cell in tables.figures(runs_of(data, part), "allreduce").items():
            case = {"ranks": ranks, "elements": count}
            for name, cells in of_cell.items():
                shown = tables.SHOWN.get(name, name)
                low, high = tables.spread(cells)
                found.append(figure(NAME, prefix + "time", case, shown, "µs", [cell["us"] for _, cell in cells],
                                    low=low, high=high))
                found.append(figure(NAME, prefix + "memory", case, shown, "MiB",
                                    [cell["peak_mib"] for _, cell in cells]))
                found.append(figure(NAME, prefix + "error", case, shown, "",
                                    [max(cell["error"] for _, cell in cells)], better=None))
    return found


def blocks(document, entries, log):
    data = {key: step["data"] for key, step in document["steps"].items()
            if step["section"] == NAME and step["state"] == "done"}
    keys, command = ["ranks", "elements"], command_of(document, NAME)
    yield paragraph("Ring against butterfly, both by messages, and torch.distributed over Gloo: the mean of float32 "
                    "vectors over all ranks. Times are of the slowest rank, from a barrier, on fresh values.")
    drawn = bench_plots.course(runs_of(data, "course"), COURSE_NAMES, log)
    captions = {"time": "Time by ranks. Beyond the number of cores they wait for each other's turn.",
                "memory": "Peak resident set of the largest rank, libraries included.",
                "error": "Greatest relative error of any element against double precision."}
    for measure, caption in captions.items():
        if measure in drawn:
            yield Plot(caption, drawn[measure])
        yield table_of(entries, "mean: " + measure, keys, f"Ring and butterfly: {measure}",
                       command, ours="dlaunch ring")
    yield paragraph("All-reduce through shared memory beside the peers: what is chosen by default and the ring, both of "
                    "ours, Open MPI, MPICH and torch.distributed over Gloo, each with its best known setting, in turns.")
    all_reduce = bench_plots.collective(runs_of(data, "peers"), "allreduce", GRID_NAMES, log)
    if all_reduce:
        yield Plot("Time by elements; above each panel the geometric mean of its cells. Memory's limit, on a machine of two "
                   "cores: every rank's buffer read and written once by both cores.", all_reduce)
    for measure in captions:
        yield table_of(entries, "sum: " + measure, keys, f"All-reduce: {measure}", command)
