"""Whole training on the real CIFAR-100 images: how each contender is run, and what it reached."""
import json
import os
import statistics
import tempfile

from .contenders import PEERS_FOLDER, Failure, json_lines, run_command

PEER = os.path.join(PEERS_FOLDER, "torch_accuracy.py")


def reached(lines, peak_mib):
    """The result of a run from the lines of its epochs."""
    epochs = [line for line in lines if line.get("event") == "epoch"]
    if not epochs:
        raise Failure("it told nothing of any epoch")
    return {"epoch_seconds": [line["seconds"] for line in epochs], "top1": [line["top1"] for line in epochs],
            "validation_loss": [line["validation_loss"] for line in epochs], "peak_mib": peak_mib}


def run_ours(arguments, seed):
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"train.epochs={arguments.epochs}", f"train.seed={seed}", f"data.directory={arguments.data}",
                f"output.directory={folder}", "output.progress=none", "output.tensorboard="]
        dlaunch, dtrain = (os.path.join(arguments.programs, name) for name in ("dlaunch", "dtrain"))
        run_command([dlaunch, "--nproc", "2", dtrain, arguments.config,
                     *[word for text in sets for word in ("--set", text)]], arguments.limit, {"OMP_NUM_THREADS": "1"})
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    summary = next(line for line in lines if line["event"] == "summary")
    return reached(lines, summary["peak_resident_bytes"] / (1 << 20))


def run_peer(arguments, seed):
    if not arguments.torch_python:
        raise Failure("there is no Python with torch")
    text = run_command([arguments.torch_python, PEER, arguments.config, "--data", arguments.data, "--epochs",
                        str(arguments.epochs), "--seed", str(seed)], arguments.limit)
    lines = json_lines(text)
    summary = next(line for line in lines if line["event"] == "summary")
    return {**reached(lines, summary["peak_mib"]), "torch": summary["torch"]}


def epoch_seconds(results):
    """(median, mean between the 10th and the 90th percentile) of all epochs of several runs."""
    ascending = sorted(seconds for result in results for seconds in result["epoch_seconds"])
    cut = len(ascending) // 10
    return statistics.median(ascending), statistics.fmean(ascending[cut:len(ascending) - cut])


def table(runs):
    lines = [f"{'configuration':22} {'contender':10} {'seeds':>5} {'epochs':>6} {'top-1':>7} {'least':>7} {'most':>7}"
             f" {'s/epoch':>8} {'mean':>7} {'MiB/rank':>9}"]
    for config, name in dict.fromkeys((run["config"], run["contender"]) for run in runs):
        results = [run["result"] for run in runs if run["config"] == config and run["contender"] == name
                   and "result" in run]
        if not results:
            continue
        final = [result["top1"][-1] for result in results]
        median, mean = epoch_seconds(results)
        lines.append(f"{config:22} {name:10} {len(results):5} {len(results[0]['top1']):6} {statistics.median(final):7.4f}"
                     f" {min(final):7.4f} {max(final):7.4f} {median:8.1f} {mean:7.1f}"
                     f" {statistics.median(result['peak_mib'] for result in results):9.0f}")
    return lines + ["top-1 after the last epoch: median, least and most of the seeds; s/epoch: median, and the mean between"
                    " the 10th and 90th percentile"]
