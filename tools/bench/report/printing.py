"""Section: ranks that print in turn, as it was run."""
from .blocks import Code, paragraph
from .runner import Step

NAME, TITLE, PEERS = "printing", "Sequential printing", []
ALWAYS = False


def plan(context):
    command = [context.program("dlaunch"), "--nproc", "4", context.program("sequential_print"), "--iterations", "2"]
    return [Step(NAME, "run", command, 1, lambda folder, output: output, limit=60, about="4 ranks", timed=False)], {}


def figures(_data):
    return []


def blocks(document, _entries, _plots):
    step = document["steps"].get("printing/run", {})
    if step.get("state") != "done":
        return
    yield paragraph("The smallest distributed program: each rank waits for its turn.")
    yield Code(f"$ {step['command']}\n{step['data'].rstrip()}")
