"""Section: training beside PyTorch's DistributedDataParallel: speed, memory, accuracy."""
import os

from compare import accuracy

from . import infrastructure, training_plots
from .blocks import Plot, command_of, figure, paragraph, quantile, table_of
from .context import read_lines
from .runner import Step

NAME, TITLE, PEERS = "training", "Training", ["PyTorch"]
ALWAYS = False
# Forward and backward, two for each multiply-add; the first layer needs no gradient of the images.
GFLOP_PER_IMAGE = {"small CNN": 0.0513, "ResNet-18": 3.33}
NETWORKS = {"small_cnn": "small CNN", "resnet18": "ResNet-18"}
SHOWN = {"dlaunch winograd": "dlaunch, Winograd", "torch": "PyTorch", "torch channels_last": "PyTorch channels_last"}
# network, batch, accumulation steps, precision, steps that count, seconds of a round
FULL = [("small_cnn", 32, 1, "fp32", 60, 30), ("small_cnn", 32, 2, "fp32", 30, 30), ("small_cnn", 32, 1, "bf16", 60, 25),
        ("small_cnn", 32, 2, "bf16", 30, 25), ("resnet18", 64, 1, "fp32", 3, 75), ("resnet18", 32, 2, "fp32", 3, 75),
        ("resnet18", 64, 1, "bf16", 3, 45)]
QUICK = [("small_cnn", 32, 1, "fp32", 20, 15), ("small_cnn", 32, 2, "fp32", 15, 15),
         ("resnet18", 32, 1, "bf16", 2, 18)]
# configuration, epochs, seeds, seconds of a seed
FULL_ACCURACY = [("cifar100_small_cnn", 4, (1, 2, 3), 220), ("cifar100_resnet20", 2, (1, 2), 330)]
QUICK_ACCURACY = [("cifar100_small_cnn", 1, (1, 2), 55)]


def plan(context):
    steps, left_out = [], {}
    rounds = "2" if context.quick else "3"
    for network, batch, accumulation, precision, count, seconds in QUICK if context.quick else FULL:
        workload = f"{network}:{batch}:{accumulation}:{count}"
        command = context.tool("compare_training", "train", "--workloads", workload, "--precisions", precision,
                               "--rounds", rounds, *context.torch())
        steps.append(Step(NAME, f"{network}-{batch}x{accumulation}-{precision}", command, seconds * int(rounds),
                          lambda folder, _: read_lines(folder, "train.jsonl"),
                          about=f"{network}, {batch} images × {accumulation} a step and rank, {precision}"))
    if not os.path.exists(os.path.join(context.data, "train.bin")):
        left_out["accuracy"] = "no CIFAR-100 images: tools/fetch_data cifar-100 data, or --data"
        return steps, left_out
    for name, epochs, seeds, seconds in QUICK_ACCURACY if context.quick else FULL_ACCURACY:
        for seed in seeds:
            config = os.path.join(context.root, "configs", name + ".json")
            command = context.tool("compare_training", "accuracy", "--config", config, "--epochs", str(epochs), "--seeds",
                                   str(seed), "--data", context.data, *context.torch())
            steps.append(Step(NAME, f"accuracy-{name}-{seed}", command, seconds,
                              lambda folder, _: read_lines(folder, "accuracy.jsonl"), limit=3600,
                              about=f"{name} on the real images, seed {seed}"))
    return steps, left_out


def results_of(data, keys, accuracies):
    """(values of `keys`, contender) -> the results of its runs."""
    found = {}
    for key, runs in data.items():
        if key.startswith(f"{NAME}/accuracy-") != accuracies:
            continue
        for run in runs:
            if "result" in run:
                found.setdefault((tuple(run[key] for key in keys), run["contender"]), []).append(run["result"])
    return found


def figures(data):
    found, keys = [], ("network", "precision", "batch", "accumulation")
    for ((network, precision, batch, accumulation), name), results in results_of(data, keys, False).items():
        case = {"network": NETWORKS.get(network, network), "type": precision, "images per rank": batch,
                "accumulation steps": accumulation}
        shown = SHOWN.get(name, name)
        found.append(figure(NAME, "speed", case, shown, "images/s", [result["images_per_second"] for result in results],
                            "higher"))
        found.append(figure(NAME, "step", case, shown, "ms", [result["ms"] for result in results],
                            low=min(result["ms_p10"] for result in results),
                            high=max(result["ms_p90"] for result in results)))
        found.append(figure(NAME, "memory", case, shown, "MiB", [result["peak_mib"] for result in results]))
    for ((config,), name), results in results_of(data, ("config",), True).items():
        shown, seconds = SHOWN.get(name, name), [value for result in results for value in result["epoch_seconds"]]
        # Not by the number of seeds: a contender of which one failed is set beside the others all the same.
        case = {"configuration": config, "epochs": len(results[0]["top1"])}
        low, high = quantile(seconds, 0.1), quantile(seconds, 0.9)
        found += [
            figure(NAME, "top-1", case, shown, "top-1", [result["top1"][-1] for result in results], "higher"),
            figure(NAME, "epoch", case, shown, "s", seconds, low=low, high=high),
            figure(NAME, "epoch mean", case, shown, "s", [accuracy.epoch_seconds(results)[1]], low=low, high=high),
            figure(NAME, "training memory", case, shown, "MiB", [result["peak_mib"] for result in results])]
    return found


def limits(document):
    """(network, precision) -> images per second that the cores' peak allows, where that is known."""
    found = {}
    for precision in ("fp32", "bf16"):
        peak = infrastructure.peak(document["figures"], precision)
        # Of AMX, which is taken for bf16 where there is one, no peak is measured.
        if peak and (precision == "fp32" or "amx_bf16" not in document["machine"]["cpu"]["instructions"]):
            found.update({(network, precision): peak / gflop for network, gflop in GFLOP_PER_IMAGE.items()})
    return found


def blocks(document, entries, log):
    data = {key: step["data"] for key, step in document["steps"].items()
            if step["section"] == NAME and step["state"] == "done"}
    yield paragraph("Two ranks of one thread each. Ours with SyncBatchNorm, PyTorch's DistributedDataParallel over Gloo "
                    "with plain batch normalisation, as nn.SyncBatchNorm refuses CPU tensors; in both layouts, of which the "
                    "better one is compared. The images stay in memory; a step consists of forward, backward, reduction and update.")
    drawn = training_plots.speed(entries, limits(document), log)
    if drawn:
        yield Plot("Images per second of both ranks together; right is better. Whiskers: least and greatest of the rounds. "
                   "Dashed: what the cores' measured peak allows if all multiplications of an image are done directly; "
                   "Winograd's algorithm needs fewer.", drawn)
    keys = ["network", "type", "images per rank", "accumulation steps"]
    command = command_of(document, NAME)
    yield table_of(entries, "speed", keys, "Speed", command)
    yield table_of(entries, "step", keys, "Time of a step", command)
    yield table_of(entries, "memory", keys, "Peak resident set of a rank", command)
    yield paragraph("Whole training on the real CIFAR-100 images, with the configuration's own recipe shortened to a few "
                    "epochs: the figures show agreement with PyTorch, not what the recipes finally reach. For validation "
                    "the test images are scattered: every rank evaluates its share.")
    drawn = training_plots.accuracy(results_of(data, ("config",), True), SHOWN, log)
    if drawn:
        yield Plot("Top-1 by epochs; up is better: median of the seeds, bands from the least to the greatest.", drawn)
    keys = ["configuration", "epochs"]
    seeds = max((entry["rounds"] for entry in entries if entry["measure"] == "top-1"), default=0)
    yield table_of(entries, "top-1", keys, f"Top-1 after the last epoch, of up to {seeds} seeds", command, ours=None)
    yield table_of(entries, "epoch", keys, "Time of an epoch without validation, of all epochs", command)
    yield table_of(entries, "epoch mean", keys, "The same: mean between the 10th and the 90th percentile", command)
    yield table_of(entries, "training memory", keys, "Peak resident set of a rank", command)
