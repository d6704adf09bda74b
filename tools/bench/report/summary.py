"""The first section: ours by the best peer, over all sections."""
import math

from . import plots
from .blocks import Plot, Table, paragraph, ratio, ratio_text

NAME, TITLE = "summary", "At a glance"
# (section, measure, contender of ours, what it is called)
SUBJECTS = [
    ("collectives", "sum: time", "dlaunch", "all-reduce: time"),
    ("collectives", "sum: memory", "dlaunch", "all-reduce: memory"),
    ("collectives", "mean: time", "dlaunch ring", "our ring by torch.distributed: time"),
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
    """[(what, [(ours by the best peer, the case)])], less than 1 where ours is better. A world of one is no comparison
    of collectives."""
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
                values.append((value if of_case[ours]["better"] == "lower" else 1 / value, case))
        if values:
            found.append((about, sorted(values, key=lambda pair: pair[0])))
    return found


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def blocks(entries, log):
    found = ratios(entries)
    if not found:
        return
    yield paragraph("Ours by the best of the peers in the same cell, both medians: 0.5 is half the time or memory, 2 twice. "
                    "Cells of one rank are left out of the collectives here, not below.")
    drawn = plots.ratios([(about, [value for value, _ in values]) for about, values in found], log)
    if drawn:
        yield Plot("Each dot is a cell, the bar their geometric mean. Left of the line ours is better.", drawn)
    rows = []
    for about, values in found:
        worst = ", ".join(f"{value:,} {key}" if isinstance(value, int) else str(value) for key, value in values[-1][1])
        rows.append([about, str(len(values)), ratio_text(geometric_mean([value for value, _ in values])),
                     ratio_text(values[0][0]), ratio_text(values[-1][0]), worst])
    yield Table("Ours by the best peer", ["", "cells", "geometric mean", "least", "greatest", "the greatest's cell"], rows,
                "tools/report OUT_DIR")
