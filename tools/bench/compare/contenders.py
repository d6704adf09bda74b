"""Who is compared: how each is run, and how its output is read. All follow the protocol of tools/bench/measure."""
import json
import os
import re
import shutil
import subprocess
import tempfile

from .processes import run_whole, telling_line

PEERS_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers")
BUILD_ERRORS = []  # what the build of the MPI drivers said: lines


def siblings(core):
    """The hardware threads that share a core with this one, itself among them."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(core)


# Those of vectors, of which every contender knows all, and how a title calls them; a barrier has no elements.
COLLECTIVES = {"allreduce": "All-reduce", "broadcast": "Broadcast", "reduce": "Reduce", "allgather": "All-gather",
               "reducescatter": "Reduce-scatter", "alltoall": "All-to-all", "gather": "Gather", "scatter": "Scatter"}
REDUCTIONS = ["allreduce", "reduce", "reducescatter"]

CORES = len(os.sched_getaffinity(0))  # that ranks may use, hardware threads counted singly
WHOLE_CORES = len({siblings(core) for core in os.sched_getaffinity(0)})


class Failure(Exception):
    """A run that gave no result, and why."""


def run_command(command, limit_seconds, environment=None):
    """Output of a command that ends in time and well, else a Failure with the line that says why."""
    try:
        code, out, errors = run_whole(command, limit_seconds, environment or {})
    except subprocess.TimeoutExpired:
        raise Failure(f"not done after {limit_seconds:.0f} s") from None
    except OSError as error:
        raise Failure(str(error)) from None
    if code != 0:
        raise Failure(f"exit code {code}: {telling_line(errors or out) or 'no message'}")
    return out


def json_lines(text):
    """What the peers' drivers print, an object on each line, else a Failure."""
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    except ValueError as error:
        raise Failure(f"it printed what is no JSON: {error}") from None
    if not lines:
        raise Failure("it printed no result")
    return lines


def load_json(file):
    """What dbench wrote, else a Failure."""
    try:
        return json.load(file)
    except ValueError as error:
        raise Failure(f"it wrote what is no JSON: {error}") from None


class Contender:
    """name; missing(): why it cannot run here, or None; run(...): its cells, a dict per count."""

    name = ""

    def missing(self):
        return None

    def run(self, operation, ranks, counts, seconds, limit_seconds):
        raise NotImplementedError


class Dlaunch(Contender):
    def __init__(self, programs, transport, algorithm="auto", op="sum", name="dlaunch", extra=()):
        self.name = name
        self.dbench = os.path.join(programs, "dbench")
        self.options = ["--transport", transport, *extra]
        self.algorithm, self.op = algorithm, op

    def missing(self):
        return None if os.path.exists(self.dbench) else f"no {self.dbench}: build it first (tools/setup, cmake)"

    def run(self, operation, ranks, counts, seconds, limit_seconds):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [self.dbench, operation, "--nproc", str(ranks), "--seconds", str(seconds),
                       "--json", file.name, *self.options]
            if operation != "barrier":
                command += ["--counts", ",".join(map(str, counts)), "--algorithm", self.algorithm]
            if operation in REDUCTIONS:
                command += ["--op", self.op]
            run_command(command, limit_seconds)
            return [{**cell, "ranks": ranks} for cell in load_json(file)["cells"]]


def driver_missing(driver):
    """Why a driver of MPI's is not there, as its build said; None if it is."""
    if os.path.exists(driver):
        return None
    of_compiler = []
    for line in BUILD_ERRORS:
        name, _, reason = line.partition(": ")
        if name == os.path.basename(driver):
            return "its driver does not build: " + next((said for said in of_compiler if "error" in said), reason)
        of_compiler = [] if re.match(r"mpi_bench\.\w+: ", line) else [*of_compiler, line]
    return f"no {driver}: {BUILD_ERRORS[-1] if BUILD_ERRORS else 'it was not built'}"


class OpenMpi(Contender):
    def __init__(self, programs, transport):
        self.name = "Open MPI tcp" if transport == "tcp" else "Open MPI"
        self.driver = os.path.join(programs, "peers", "mpi_bench.openmpi")
        self.settings = ["--mca", "btl", "tcp,self"] if transport == "tcp" else []

    def missing(self):
        if not shutil.which("mpirun.openmpi"):
            return "no mpirun.openmpi: install openmpi-bin and libopenmpi-dev"
        return driver_missing(self.driver)

    def run(self, operation, ranks, counts, seconds, limit_seconds):
        command = ["mpirun.openmpi", "-n", str(ranks), *self.settings]
        if ranks > CORES:  # its best setting there
            command += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        elif ranks > WHOLE_CORES:  # it takes a core for one slot, however many hardware threads it has
            command += ["--use-hwthread-cpus", "--bind-to", "hwthread"]
        else:  # without being told, it leaves more than two ranks all the cores of a NUMA node
            command += ["--bind-to", "core"]
        command += [self.driver, operation, ",".join(map(str, counts)), str(seconds)]
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return json_lines(run_command(command, limit_seconds, root))


class Mpich(Contender):
    name = "MPICH"

    def __init__(self, programs):
        self.driver = os.path.join(programs, "peers", "mpi_bench.mpich")

    def missing(self):
        if not shutil.which("mpirun.mpich"):
            return "no mpirun.mpich: install mpich and libmpich-dev"
        return driver_missing(self.driver)

    def run(self, operation, ranks, counts, seconds, limit_seconds):
        command = ["mpirun.mpich", "-n", str(ranks)]
        if ranks <= CORES:  # without being told, it binds none
            command += ["-bind-to", "core" if ranks <= WHOLE_CORES else "hwthread"]
        command += [self.driver, operation, ",".join(map(str, counts)), str(seconds)]
        return json_lines(run_command(command, limit_seconds))


class Gloo(Contender):
    name = "Gloo"

    def __init__(self, python, op="sum"):
        """`python`: one with torch; None: whichever there is; empty: there is none."""
        self.op = op
        self.python = next(filter(imports_torch, ["/usr/bin/python3", "python3"]), "") if python is None else python
        self.driver = os.path.join(PEERS_FOLDER, "torch_bench.py")

    def missing(self):
        return None if self.python else "no Python with torch: install python3-torch, or name one with --torch-python"

    def run(self, operation, ranks, counts, seconds, limit_seconds):
        command = [self.python, self.driver, "--ranks", str(ranks), "--seconds", str(seconds), "--op", self.op, operation]
        return json_lines(run_command(command + [",".join(map(str, counts))], limit_seconds))


def imports_torch(python):
    if not shutil.which(python):
        return False
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def build_drivers(programs):
    """Compiles the MPI drivers, as far as MPI is there; what is missing shows in missing() and BUILD_ERRORS."""
    done = subprocess.run([os.path.join(PEERS_FOLDER, "build"), os.path.join(programs, "peers")],
                          capture_output=True, text=True, errors="replace", check=False)
    BUILD_ERRORS[:] = done.stderr.splitlines()


def memory_figures(programs, sizes, seconds):
    """What memory does by itself, from dbench p2p: the cells by (way, bytes)."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run_command([os.path.join(programs, "dbench"), "p2p", "--nproc", "2", "--references",
                     "--counts", ",".join(map(str, sizes)), "--seconds", str(seconds), "--json", file.name], 60)
        return {(cell["way"], cell["bytes"]): cell for cell in load_json(file)["cells"]}
