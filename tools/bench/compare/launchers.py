"""Who starts jobs: the command lines of each launcher, and what is timed of a job."""
import glob
import os
import shutil
import statistics
import subprocess
import tempfile
import time

from . import contenders as who

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
KILLED_RANK = os.path.join(who.PEERS_FOLDER, "killed_rank")
SHOWN = {"dlaunch": "dlaunch", "openmpi": "Open MPI", "hydra": "Hydra", "torchrun": "torchrun"}
SUBJECTS = {
    "true": "/bin/true: from start to end",
    "barrier": "connect, one barrier, end: from start to end",
    "kill": "the last rank is killed: until the launcher has ended the others and itself",
    "restart": "the last rank is killed: until all ranks of the next attempt have begun",
}
MOST_TORCHRUN_RANKS = 16  # unless others are asked for
NEVER = {("barrier", "torchrun"): "has no barrier of its own", ("restart", "openmpi"): "does not restart jobs",
         ("restart", "hydra"): "does not restart jobs"}
# From 32 ranks on Open MPI 4.1 starts them with several threads, and then misses the end of some that end at once: its
# mpirun waits for ever.
OPEN_MPI = ["--oversubscribe", "--mca", "odls_base_num_threads", "0"]


def why_none(what, name, ranks):
    """Why a launcher has no figure, as far as it never has one; else None."""
    if name == "torchrun" and ranks > MOST_TORCHRUN_RANKS:
        return f"not run beyond {MOST_TORCHRUN_RANKS} ranks"
    return NEVER.get((what, name))


def compiled(compiler, out):
    """The program of one barrier for an MPI, or why there is none."""
    program = os.path.join(out, "first_barrier." + compiler)
    if not shutil.which(compiler):
        return None, compiler + " is not installed"
    done = subprocess.run([compiler, "-O2", "-o", program, os.path.join(who.PEERS_FOLDER, "first_barrier.c")],
                          capture_output=True, text=True, check=False)
    return (program, None) if done.returncode == 0 else (None, compiler + " failed: " + done.stderr[-200:])


def launchers(what, arguments):
    """({name: a function of the number of ranks and the program's words to the command line}, {name: its program of one
    barrier}, {name: why it cannot run here}), of those that do such a thing."""
    again = ["--max-restarts", "1"] if what == "restart" else []
    # torchrun neither waits before a restart nor refuses one to a job that has only begun.
    at_once = ["--restart-delay", "0", "--ready-after", "0"] if what == "restart" else []
    dlaunch = os.path.join(arguments.programs, "dlaunch")
    table = {"dlaunch": lambda n, words: [dlaunch, "--nproc", str(n), *again, *at_once, *words]}
    barriers = {"dlaunch": os.path.join(arguments.programs, "first_barrier")}
    missing = {}
    for name, launcher, options, compiler in [("openmpi", "mpirun.openmpi", OPEN_MPI, "mpicc.openmpi"),
                                              ("hydra", "mpiexec.hydra", [], "mpicc.mpich")]:
        if (what, name) in NEVER:
            continue
        if not shutil.which(launcher):
            missing[name] = launcher + " is not installed"
        else:
            table[name] = lambda n, words, launcher=launcher, options=options: [launcher, *options, "-n", str(n), *words]
            if what == "barrier":
                barriers[name], why = compiled(compiler, arguments.out)
                if why:
                    missing[name] = why
                    del table[name]
    if not arguments.torchrun:
        missing["torchrun"] = "it is not installed"
    elif (what, "torchrun") not in NEVER:
        table["torchrun"] = lambda n, words: None if n > arguments.most_torchrun_ranks else [
            arguments.torchrun, "--nproc_per_node", str(n), *again, "--no_python", *words]
    return table, barriers, missing


def run_job(command, limit, may_fail=False):
    """Seconds of a whole job, and when it ended."""
    begun = time.perf_counter()
    try:
        who.run_command(command, limit, AS_ROOT)
    except who.Failure as failure:
        if not may_fail or not str(failure).startswith("exit code"):
            raise
    return time.perf_counter() - begun, time.time()


def nanoseconds(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def seconds_of(what, name, table, barriers, ranks, limit):
    """Of one job: what SUBJECTS says. Raises who.Failure."""
    if what in ("true", "barrier"):
        return run_job(table[name](ranks, ["/bin/true" if what == "true" else barriers[name]]), limit)[0]
    with tempfile.TemporaryDirectory() as folder:
        _, ended = run_job(table[name](ranks, [KILLED_RANK, folder, str(ranks)]), limit, may_fail=True)
        try:
            killed = nanoseconds(os.path.join(folder, "killed")) * 1e-9
            if what == "kill":
                return ended - killed
            again = [nanoseconds(path) * 1e-9 for path in glob.glob(os.path.join(folder, "again.*"))]
        except (OSError, ValueError):
            raise who.Failure("its last rank did not come as far as to be killed") from None
        if len(again) != ranks:
            raise who.Failure(f"{len(again)} of {ranks} ranks were restarted")
        return max(again) - killed


def measure(what, ranks, launchers_of, rounds, limit):
    """A dict for each launcher, with the milliseconds of every round; "failure" says why one was not run to the end. The
    launchers take turns."""
    table, barriers = launchers_of
    times = {name: [] for name, command in table.items() if command(ranks, [])}
    failures = {}
    for number in range(rounds + 1):  # the first round warms caches and is not counted
        names = [name for name in times if name not in failures]
        shift = number % max(len(names), 1)
        for name in names[shift:] + names[:shift]:
            try:
                took = seconds_of(what, name, table, barriers, ranks, limit)
            except who.Failure as failure:
                failures[name] = str(failure)
                continue
            if number > 0:
                times[name].append(round(took * 1000, 2))
    runs = []
    for name, values in times.items():
        run = {"program": what, "ranks": ranks, "launcher": name, "rounds": len(values), "ms": values}
        if values:
            run.update(median_ms=round(statistics.median(values), 2), least_ms=min(values), most_ms=max(values))
        if name in failures:
            run["failure"] = failures[name]
        runs.append(run)
    return runs
