"""Section: how long launchers take to start jobs, and to end or restart one in which a rank was killed."""
from compare import launchers

from . import plots
from .blocks import Plot, command_of, figure, paragraph, quantile, table_of
from .context import read_lines
from .runner import Step

NAME, TITLE, PEERS = "launchers", "Launchers", ["Open MPI", "MPICH", "torchrun"]
ALWAYS = False
RANKS = {"true": [1, 16, 64], "barrier": [1, 4, 16], "kill": [4], "restart": [4]}


def plan(context):
    steps = []
    for what, worlds in RANKS.items():
        for ranks in worlds:
            rounds = 3 if context.quick else 9
            command = context.tool("compare_launchers", what, "--ranks", str(ranks), "--rounds", str(rounds))
            if context.torchrun:
                command += ["--torchrun", context.torchrun]
            seconds = (rounds + 1) * (3 if what != "barrier" else 1 + ranks / 10)
            steps.append(Step(NAME, f"{what}-{ranks}", command, seconds,
                              lambda folder, _: read_lines(folder, "launchers.jsonl"),
                              about=f"{what}, ranks: {ranks}"))
    return steps, {}


def figures(data):
    found = []
    for key, runs in data.items():
        for run in runs:
            if key.startswith(NAME + "/") and run.get("ms"):
                found.append(figure(NAME, run["program"], {"ranks": run["ranks"]}, launchers.SHOWN[run["launcher"]], "ms",
                                    run["ms"], low=quantile(run["ms"], 0.1), high=quantile(run["ms"], 0.9)))
    return found


def blocks(document, entries, log):
    yield paragraph("Whole jobs. dlaunch, Open MPI's mpirun, MPICH's Hydra and torchrun take turns.")
    drawn = plots.launchers(entries, log)
    if drawn:
        yield Plot("Whole jobs by number of ranks, and what follows the death of a rank; left is better. Dots are medians, "
                   "lines 10–90 % of the rounds.", drawn)
    for what, about in launchers.SUBJECTS.items():
        yield table_of(entries, what, ["ranks"], about[0].upper() + about[1:],
                       command_of(document, NAME))
