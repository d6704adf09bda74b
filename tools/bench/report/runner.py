"""Runs the steps of a report one after the other, repeats those that other load disturbed, and keeps what they gave."""
import dataclasses
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Callable

from compare.processes import end, telling_line

from . import results as result_files
from .load import Watch

ATTEMPTS = 3  # of a step, until one is not disturbed
GUESSED = 60  # seconds of steps that weigh as much as all that have been run, for how long the others will take
LEAST_FREE = 1 << 20  # bytes of a disk that is not full


class Interrupted(Exception):
    """Why the run ends here: the user wants it, or the disk is full."""


class Interruption:
    """Turns SIGINT, SIGTERM and SIGHUP into Interrupted, but only while a command runs: nothing that is being written
    is cut short by them."""

    def __init__(self):
        self.wanted, self.waiting = None, False

    def catch_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.on_signal)

    def on_signal(self, number, _frame):
        self.wanted = self.wanted or f"interrupted by {signal.Signals(number).name}"
        if self.waiting:
            self.waiting = False
            raise Interrupted(self.wanted)

    def __enter__(self):
        self.waiting = True
        if self.wanted:
            self.waiting = False
            raise Interrupted(self.wanted)

    def __exit__(self, *_):
        self.waiting = False


@dataclasses.dataclass
class Step:
    """One command. `{out}` in it stands for a folder of its own, which is removed afterwards."""
    section: str
    key: str
    command: list
    seconds: float  # that it takes on two cores, about
    read: Callable  # (folder, stdout) -> the data to keep, which JSON can hold
    limit: float = 900
    about: str = ""  # for the progress line
    timed: bool = True  # else other load does not disturb it

    @property
    def id(self):
        return f"{self.section}/{self.key}"

    def shown(self):
        """As it would be typed."""
        return shlex.join(self.command).replace("'{out}'", "OUT").replace("{out}", "OUT")


def unfinished(steps, results):
    """Those without a result."""
    return [step for step in steps if results.steps.get(step.id, {}).get("state") != "done"]


def expected_seconds(steps, busy):
    """Of all steps; on a busy machine those that are timed take all their attempts."""
    return sum(step.seconds * (ATTEMPTS if busy and step.timed else 1) for step in steps)


class Runner:
    """`shown`: a command line as the report prints it; `busy`: whether other programs use the cores now."""

    def __init__(self, results, log, interruption, shown=lambda text: text, watch=Watch, busy=False):
        self.results, self.log, self.interruption, self.shown, self.watch = results, log, interruption, shown, watch
        self.busy, self.disk_full = busy, False

    def run(self, steps):
        """Runs what has no result yet. Raises Interrupted, with the results as they are by then."""
        todo = unfinished(steps, self.results)
        done_before, begun = len(steps) - len(todo), time.monotonic()
        if done_before:
            self.log(f"{done_before} of {len(steps)} steps were done before")
        for number, step in enumerate(todo):
            ran, left = (expected_seconds(some, self.busy) for some in (todo[:number], todo[number:]))
            pace = (GUESSED + time.monotonic() - begun) / (GUESSED + ran)
            self.log(f"[{done_before + number + 1}/{len(steps)}] {step.section}: {step.about or step.key}"
                     f" (about {format_minutes(left * pace)} left)")
            self.run_step(step)
            if self.disk_full:
                raise Interrupted("the disk is full")

    def run_step(self, step):
        """The first attempt that nothing disturbed counts, else the one that was disturbed least: load decides, never
        the result."""
        kept, attempts = None, []
        try:
            for attempt in range(ATTEMPTS):
                record = self.attempt(step)
                attempts.append(record["load"])
                if kept is None or preference(record) < preference(kept):
                    kept = record
                if record["state"] != "done" or not record["load"]["disturbed"]:
                    break
                self.log(f"  other load took {strain(record):.0%} of the cores: "
                         + ("once more" if attempt + 1 < ATTEMPTS else "kept, and marked"))
        except Interrupted:
            # What an earlier attempt gave is not lost.
            kept = kept or {**self.fresh_record(step), "state": "interrupted", "reason": "interrupted"}
            self.keep(step, kept, attempts)
            raise
        self.keep(step, kept, attempts)

    def keep(self, step, record, attempts):
        record["attempts"] = attempts
        self.results.steps[step.id] = record
        self.results.document["updated"] = result_files.now()
        gave_up_reserve = self.results.save()
        self.disk_full = gave_up_reserve or any(shutil.disk_usage(folder).free < LEAST_FREE
                                                for folder in (self.results.folder, tempfile.gettempdir()))

    def fresh_record(self, step):
        return {"section": step.section, "command": self.shown(step.shown()), "begun": result_files.now()}

    def attempt(self, step):
        record = self.fresh_record(step)
        watch, begun = self.watch(), time.monotonic()
        try:
            # Not in the report's own folder: programs make sockets there, whose paths must be short.
            with tempfile.TemporaryDirectory(prefix="report-") as folder:
                command = [word.replace("{out}", folder) for word in step.command]
                output = run_command(command, step.limit, folder, self.interruption)
                record.update(state="done", data=step.read(folder, output))
        except (StepFailure, OSError, ValueError, KeyError, IndexError, TypeError) as failure:
            record.update(state="failed", reason=one_line(failure))
            self.log(f"  failed: {record['reason']}")
        record.update(seconds=round(time.monotonic() - begun, 2), load=watch.report())
        record["load"]["disturbed"] &= step.timed
        return record


class StepFailure(Exception):
    """Why a command gave no result."""


def one_line(failure):
    if isinstance(failure, (StepFailure, OSError)):
        return str(failure)
    return f"its results cannot be read: {type(failure).__name__}: {failure}"


def preference(record):
    """Least for the best: a figure is better than none, whatever the load."""
    return record["state"] != "done", strain(record)


def strain(record):
    return record["load"]["others"] + record["load"]["steal"]


def run_command(command, limit, folder, interruption):
    """stdout of a command that ends well. Whatever ends it early takes its children with it. Its temporary files go to
    `folder`, so that nothing stays behind."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", env={**os.environ, "TMPDIR": folder}, start_new_session=True) as process:
        try:
            with interruption:
                out, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process)
            raise StepFailure(f"not done after {limit:.0f} s") from None
        except BaseException:
            end(process)
            raise
    if process.returncode != 0:
        raise StepFailure(f"exit code {process.returncode}: {telling_line(errors or out) or 'no message'}")
    return out


def format_minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
