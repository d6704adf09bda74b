"""Section: SyncBatchNorm and a training step on a GPU beside PyTorch's, and what the device does at best."""
from . import gpu_plots
from .blocks import Plot, command_of, figure, paragraph, table_of
from .context import read_lines
from .runner import Step

NAME, TITLE, PEERS = "gpu", "On a GPU", ["PyTorch"]
ALWAYS = False
SHOWN = {"torch": "PyTorch", "torch DDP": "PyTorch DDP", "torch compiled": "PyTorch compiled",
         "torch compiled, graphs": "PyTorch compiled, graphs"}


def plan(context):
    if not context.has_gpu:
        return [], {"all of it": "there is no NVIDIA GPU here"}
    rounds, seconds = ("1", "0.1") if context.quick else ("3", "0.3")
    steps = [step(context, "device", ["device", "--rounds", rounds, "--seconds", seconds], 30, "copies and products")]
    for ranks in ("1", "2"):
        words = ["syncbn", "--ranks", ranks, "--rounds", rounds, "--seconds", seconds]
        steps.append(step(context, f"syncbn-{ranks}", words, 60 * int(rounds), f"SyncBatchNorm, {ranks} ranks"))
    words = ["train", "--rounds", rounds, "--steps", "50" if context.quick else "100"]
    steps.append(step(context, "train", words, 120 * int(rounds), "a training step of ResNet-18"))
    return steps, {}


def step(context, key, words, seconds, about):
    return Step(NAME, key, context.tool("compare_gpu", *words, *context.torch()), seconds,
                lambda folder, _: read_lines(folder, f"gpu-{words[0]}.jsonl"), limit=1800, about=about)


def results_of(data, what):
    """(ranks, contender) -> the results of its rounds."""
    found = {}
    for runs in data.values():
        for run in runs:
            if run["what"] == what and "result" in run:
                found.setdefault((run["ranks"], SHOWN.get(run["contender"], run["contender"])), []).append(run["result"])
    return found


def figures(data):
    return [*device_figures(data), *norm_figures(data), *train_figures(data)]


def device_figures(data):
    for (_, name), results in results_of(data, "device").items():
        for index, cell in enumerate(results[0]["cells"]):
            case = {"what": f"{cell['what']}, {cell['how']}"}
            rates = [result["cells"][index]["rate"] for result in results]
            yield figure(NAME, f"device, {cell['unit']}", case, name, cell["unit"], rates, "higher")


def norm_figures(data):
    found = results_of(data, "syncbn")
    # Contenders write shapes in different ways, but have the same cells in the same order.
    shapes = next(([cell["shape"] for cell in results[0]["cells"]] for (_, name), results in found.items()
                   if name == "dlaunch"), [])
    for (ranks, name), results in found.items():
        for index, shape in enumerate(shapes):
            case, cells = {"ranks": ranks, "shape": shape}, [result["cells"][index] for result in results]
            yield figure(NAME, "syncbn", case, name, "µs", [cell["us"] for cell in cells])
            yield figure(NAME, "syncbn memory", case, name, "MiB", [cell["peak_mib"] for cell in cells])
            bounds = [cell["bound_us"] for cell in cells if "bound_us" in cell]
            if bounds:
                yield figure(NAME, "syncbn bound", case, gpu_plots.BOUND, "µs", bounds)


def train_figures(data):
    for (ranks, name), results in results_of(data, "train").items():
        case = {"network": "ResNet-18, bf16", "ranks": ranks}
        for measure, key, unit, better in (("speed", "images_per_second", "images/s", "higher"), ("step", "ms", "ms", "lower"),
                                           ("memory", "tensor_mib", "MiB", "lower")):
            yield figure(NAME, measure, case, name, unit, [result[key] for result in results], better)


def blocks(document, entries, log):
    command = command_of(document, NAME)
    yield paragraph("Ranks beyond the number of GPUs share them. Times of SyncBatchNorm are of forward and backward, by CUDA "
                    "events; a training step is of ResNet-18 with batches of 512 in bf16, PyTorch's in channels_last under "
                    "autocast, eager, compiled, and compiled into CUDA graphs as ours is.")
    drawn = gpu_plots.batch_norm([entry for entry in entries if entry["measure"] in ("syncbn", "syncbn bound")], log)
    if drawn:
        yield Plot("SyncBatchNorm by shape (batch, height × width for images, features). Grey: what moving its bytes takes at "
                   "the copy bandwidth that was measured.", drawn)
    keys = ["ranks", "shape"]
    yield table_of(entries, "syncbn", keys, "SyncBatchNorm, forward and backward", command)
    yield table_of(entries, "syncbn bound", keys, "What moving its bytes takes", command)
    yield table_of(entries, "syncbn memory", keys, "SyncBatchNorm, peak memory of a rank", command)
    keys = ["network", "ranks"]
    for measure, caption in (("speed", "Training speed"), ("step", "Time of a step"), ("memory", "Peak memory of tensors")):
        yield table_of(entries, measure, keys, caption, command)
    for unit in ("GB/s", "GFLOP/s"):
        yield table_of(entries, f"device, {unit}", ["what"], "The device at its best", command)
