"""Section: SyncBatchNorm beside one written on torch.distributed, and its agreement with BatchNorm."""
import json
import os

from . import training_plots
from .blocks import Plot, Table, command_of, figure, paragraph, table_of
from .context import read_lines
from .runner import Step

NAME, TITLE, PEERS = "syncbn", "SyncBatchNorm", ["PyTorch"]
ALWAYS = False
OURS, PYTHON = "dlaunch", "Python on Gloo"
LOCAL = {OURS: "dlaunch", "torch": "PyTorch BatchNorm1d"}


def plan(context):
    rounds, seconds = ("2", "0.1") if context.quick else ("3", "0.4")
    steps = [Step(NAME, f"ranks-{ranks}",
                  context.tool("compare_training", "syncbn", "--ranks", str(ranks), "--rounds", rounds, "--seconds",
                               seconds, *context.torch()),
                  20 if context.quick else 60, lambda folder, _: read_lines(folder, "syncbn.jsonl"),
                  about=f"forward and backward, {ranks} ranks") for ranks in (2, 4)]
    left_out = {}
    test = os.path.join(context.programs, "tests", "sync_batch_norm_test")
    if os.path.exists(test):
        command = [test, "--gtest_filter=*SyncBatchNormGrid*", "--gtest_output=json:{out}/test.json"]
        steps.append(Step(NAME, "agreement", command, 10, read_test, about="agreement with BatchNorm", timed=False))
    else:
        left_out["agreement with BatchNorm"] = "sync_batch_norm_test is not built"
    return steps, left_out


def read_test(folder, _):
    with open(os.path.join(folder, "test.json"), encoding="utf-8") as file:
        document = json.load(file)
    cases = [case for suite in document["testsuites"] for case in suite["testsuite"]]
    return {"cases": len(cases), "failed": [case["name"] for case in cases if "failures" in case]}


def figures(data):
    cells = {}
    for runs in data.values():
        for run in runs if isinstance(runs, list) else []:
            for cell in run.get("result", {}).get("cells", []):
                case = (run["ranks"], cell["rows"], cell["channels"])
                cells.setdefault((case, run["contender"]), []).append(cell)
    found = []
    for (case, name), of_rounds in cells.items():
        case = dict(zip(("ranks", "rows", "features"), case))
        shown = OURS if name == OURS else PYTHON
        found.append(figure(NAME, "time", case, shown, "µs", [cell["us"] for cell in of_rounds],
                            low=min(cell["us_p10"] for cell in of_rounds),
                            high=max(cell["us_p90"] for cell in of_rounds)))
        found.append(figure(NAME, "memory", case, shown, "MiB", [cell["peak_mib"] for cell in of_rounds]))
        found.append(figure(NAME, "local", case, LOCAL[name], "µs", [cell["batch_norm_us"] for cell in of_rounds]))
    return found


def blocks(document, entries, log):
    yield paragraph("Forward and backward of synchronised batch normalisation, rows on each rank × features: ours, "
                    "with one all-reduce each way, and the same written in Python on torch.distributed over Gloo "
                    "(nn.SyncBatchNorm refuses CPU tensors). With more ranks than cores they wait for each other's turn.")
    drawn = training_plots.batch_norm(entries, log)
    if drawn:
        yield Plot("Time of the slowest rank; bands: 10–90 % of the repetitions. Dashed: of 32 rows. Dotted: BatchNorm of 64 "
                   "rows alone, without any communication.", drawn)
    keys = ["ranks", "features", "rows"]
    command = command_of(document, NAME)
    yield table_of(entries, "time", keys, "SyncBatchNorm, forward and backward", command)
    yield table_of(entries, "memory", keys, "SyncBatchNorm, peak resident set of a rank", command)
    yield table_of(entries, "local", keys, "BatchNorm of a rank's own rows while the others do the same", command)
    step = document["steps"].get(f"{NAME}/agreement", {})
    if step.get("state") == "done":
        data = step["data"]
        rows = [["cases (1, 2, 4 ranks × 128 … 1024 features × 32, 64 rows)", str(data["cases"])],
                ["of which agree within 1e-5", str(data["cases"] - len(data["failed"]))]]
        yield Table("Outputs and input gradients against batch normalisation of the joined batch in double precision",
                    ["what", "number"], rows, step["command"])
