"""The first section: ours by the best peer, over all sections."""
import math

from . import plots
from .blocks import Plot, Table, case_text, paragraph, ratio, ratio_texts

NAME, TITLE = "summary", "At a glance"
# (section, measure, contender of ours, what it is called)
SUBJECTS = [
    ("collectives", "sum: time", "dlaunch", "all-reduce: time"),
    ("collectives", "sum: memory", "dlaunch", "all-reduce: memory"),
    ("collectives", "mean: time", "dlaunch ring", "ring all-reduce by messages: time"),
    ("syncbn", "time", "dlaunch", "SyncBatchNorm: time"),
    ("syncbn", "memory", "dlaunch", "SyncBatchNorm: memory"),
    ("training", "speed", "dlaunch", "training: time of an image"),
    ("training", "memory", "dlaunch", "training: memory"),
    ("training", "epoch", "dlaunch", "training on real images: time of an epoch"),
    ("gpu", "syncbn", "dlaunch", "SyncBatchNorm on a GPU: time"),
    ("gpu", "syncbn memory", "dlaunch", "SyncBatchNorm on a GPU: memory"),
    ("gpu", "speed", "dlaunch", "training on a GPU: time of an image"),
    ("launchers", "true", "dlaunch", "starting /bin/true"),
    ("launchers", "barrier", "dlaunch", "start, connect, barrier, end"),
    ("launchers", "kill", "dlaunch", "ending a job after a rank's death"),
    ("launchers", "restart", "dlaunch", "restarting a job after a rank's death"),
]


def ratios(entries):
    """[(section, what, [(ours by the best peer, the case)])], less than 1 where ours is better. A world of one is no
    comparison of collectives."""
    found = []
    for section, measure, ours, about in SUBJECTS:
        cells = {}
        for entry in entries:
            if entry["section"] != section or entry["measure"] != measure:
                continue
            if section == "collectives" and entry["case"]["ranks"] == 1:
                continue
            cells.setdefault(tuple(entry["case"].items()), {})[entry["contender"]] = entry
        values = []
        for case, of_case in cells.items():
            value = ratio(of_case, ours)
            if value:
                values.append((value, case))
        if values:
            found.append((section, about, sorted(values, key=lambda pair: pair[0])))
    return found


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def blocks(document, log):
    found = ratios(document["figures"])
    if not found:
        return
    yield paragraph("Our median divided by that of the best peer in the same cell: 0.5 means half the time or memory, 2 twice as much. "
                    "For collectives, cells of one rank are left out here, but shown below.")
    disturbed = {step["section"] for step in document["steps"].values() if step.get("load", {}).get("disturbed")}
    subjects = [(about + " *" * (section in disturbed), values) for section, about, values in found]
    if any(section in disturbed for section, _, _ in found):
        yield paragraph("* Other programs took part of the cores during steps of this section, which it names: they may have "
                        "changed the ratios.")
    drawn = plots.ratios([(about, [value for value, _ in values]) for about, values in subjects], log)
    if drawn:
        yield Plot("Each dot is a cell; the bar is their geometric mean. Left of the line ours is better.", drawn)
    shown = iter(ratio_texts([value for _, values in subjects for value in (
        geometric_mean([value for value, _ in values]), values[0][0], values[-1][0])]))
    rows = []
    for about, values in subjects:
        rows.append([about, str(len(values)), next(shown), next(shown), next(shown), case_text(values[-1][1])])
    yield Table("Ours by the best peer; less is better", ["what", "cells", "geometric mean", "least", "greatest",
                                                          "cell of the greatest"], rows, "tools/report OUT_DIR")
