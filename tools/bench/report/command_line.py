"""The command line of tools/report, and the way of a run."""
import argparse
import os
import subprocess
import sys
import time

from compare.contenders import imports_torch

from . import batch_norm, collectives, comparison, context, drawing, gpu, infrastructure, launching, machine, printing
from . import training
from . import results as result_files
from .load import Watch
from .runner import ATTEMPTS, Interrupted, Interruption, Runner, expected_seconds, format_minutes, unfinished

SECTIONS = [infrastructure, printing, collectives, batch_norm, training, gpu, launching]
PROGRAMS = ["dlaunch", "dtrain", "dbench", "dbench_training", "sequential_print", "first_barrier"]
TEST = "sync_batch_norm_test"  # whose absence only leaves something out


def log(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def parse_arguments(description, root, words):
    parser = argparse.ArgumentParser(prog="report", description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="OUT_DIR", nargs="?",
                        help="folder of the report; an interrupted run continues there")
    names = ", ".join(section.NAME for section in SECTIONS)
    parser.add_argument("--only", metavar="SECTIONS", help=f"some of: {names}")
    parser.add_argument("--quick", action="store_true", help="under ten minutes: fewer rounds, shorter, smaller")
    parser.add_argument("--programs", help="folder of dlaunch, dbench, ...; without it, they are built if necessary")
    parser.add_argument("--torch-python", help="a Python that can import torch")
    parser.add_argument("--torchrun", help="path of torchrun; default: beside that Python, or in PATH")
    parser.add_argument("--data", default=os.path.join(root, "data", "cifar-100-binary"),
                        help="folder of CIFAR-100's binary files")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="measure nothing; show what differs between two reports")
    parser.add_argument("--draw", action="store_true", help="measure nothing; draw the page from the existing measurements")
    arguments = parser.parse_args(words)
    if (arguments.folder is None) == (arguments.compare is None):
        parser.error("either OUT_DIR or --compare A B")
    known = {section.NAME: section for section in SECTIONS}
    chosen = arguments.only.split(",") if arguments.only else list(known)
    for name in chosen:
        if name not in known:
            parser.error(f"--only: no section {name}, there are {names}")
    arguments.sections = [section for name, section in known.items() if name in chosen]
    return arguments


def built_programs(root, given):
    """The folder of the programs; builds them, as the sources are now, if none is given. Raises UnusableFolder."""
    if given:
        absent = [name for name in PROGRAMS if not os.path.exists(os.path.join(given, name))]
        if absent:
            raise result_files.UnusableFolder(f"{given} has no {', '.join(absent)}")
        return os.path.abspath(given)
    log("building what is not built yet")
    for command in (["tools/setup"], ["cmake", "--preset", "release"],
                    ["cmake", "--build", "--preset", "release", "--target", *PROGRAMS, TEST]):
        if subprocess.run(command, cwd=root, stdout=sys.stderr, check=False).returncode != 0:
            raise result_files.UnusableFolder(f"{' '.join(command)} failed")
    return os.path.join(root, "build", "bin")


def plan(results, sections, setting):
    """All steps. The document says what is planned, also what an earlier run did in other sections."""
    document, steps = results.document, []
    for section in sections:
        of_section, left_out = section.plan(setting)
        steps += of_section
        document["left_out"][section.NAME] = left_out
    kept = [entry for entry in document.get("planned", []) if all(entry["section"] != section.NAME
                                                                 for section in sections)]
    document["planned"] = kept + [{"id": step.id, "section": step.section, "about": step.about or step.key}
                                  for step in steps]
    return steps


def others_disturb(tell, watch=Watch, seconds=1):
    """Whether other programs use the cores now, and one line that says what they will cost."""
    looked = watch()
    time.sleep(seconds)
    load = looked.report()
    if load["disturbed"]:
        tell(f"other programs take {load['others'] + load['steal']:.0%} of the cores: while they do, every step that measures "
             f"times is run {ATTEMPTS} times and its figures are marked; stop them, or expect {ATTEMPTS} times as long")
    return load["disturbed"]


def measure(results, sections, setting):
    """Runs what is missing."""
    interruption = Interruption()
    interruption.catch_signals()
    steps = plan(results, sections, setting)
    results.document.pop("ended", None)
    results.save()
    todo = unfinished(steps, results)
    busy = any(step.timed for step in todo) and others_disturb(log)
    count = "1 step" if len(todo) == 1 else f"{len(todo)} steps"
    log(f"{count}, about {format_minutes(expected_seconds(todo, busy))}; what is done is kept in "
        f"{results.folder}: the same command goes on there")
    try:
        Runner(results, log, interruption, setting.shown, busy=busy).run(steps)
    except Interrupted as why:
        log(f"{why}: the report has what was measured until now")
        results.document["ended"] = str(why)
    finally:
        results.release_reserve()


def main(description, root, words):
    arguments = parse_arguments(description, root, words)
    try:
        if arguments.compare:
            both = [result_files.load(name) for name in arguments.compare]
            for results in both:
                drawing.update_figures(results, SECTIONS)  # an older one's may go by other names
            sys.stdout.write(comparison.compare(*(results.document for results in both)))
            return 0
        if arguments.draw:
            results = result_files.load(arguments.folder)
        else:
            torch_python = context.find_torch(arguments.torch_python, imports_torch)
            torchrun = context.find_torchrun(arguments.torchrun, torch_python)
            programs = built_programs(root, arguments.programs)
            setting = context.Context(root, programs, torch_python, torchrun, os.path.abspath(arguments.data),
                                      arguments.quick, bool(machine.gpus()))
            results = result_files.begin(arguments.folder, "quick" if arguments.quick else "full", machine.commit(root))
            results.reserve()
            results.document["machine"] = results.document["machine"] or machine.describe(
                root, programs, torch_python, torchrun)
            measure(results, arguments.sections, setting)
        # Of what draws now: it may have been installed since the measuring.
        results.document["machine"]["tools"] = machine.python_packages()
        drawing.update_figures(results, SECTIONS)
        results.save()
        complete = drawing.draw(results, SECTIONS, log)
    except result_files.UnusableFolder as problem:
        sys.exit(f"report: {problem}")
    except (OSError, ValueError) as error:
        sys.exit(f"report: {error}")
    return 0 if arguments.draw or complete else 1
