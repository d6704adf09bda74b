"""Commands that leave nothing behind, however they end."""
import os
import signal
import subprocess
import sys

GRACE = 10  # seconds from SIGTERM to SIGKILL


def telling_line(errors):
    """The line of standard error that says why a command failed: what dlaunch takes for the cause, else the last one that is
    not about the other ranks; or nothing."""
    lines = errors.strip().splitlines()
    causes = [line.partition(": ")[2] for line in lines if line.startswith("dlaunch: ") and "probable cause: " in line]
    if causes:
        return causes[-1].removeprefix("probable cause: ")
    own = [line for line in lines if not line.startswith("dlaunch: the other ranks: ")]
    return own[-1].removeprefix("  | ") if own else ""


class Ending:
    """SIGTERM ends this program as SIGINT does: with an exception, so that run_whole() takes what it runs with it. It waits
    while a command is being started, which nobody could end."""

    def __init__(self):
        self.held, self.number = False, None

    def on_signal(self, number, _frame):
        self.number = number
        self.end_if_wanted()

    def end_if_wanted(self):
        if self.number and not self.held:
            sys.exit(128 + self.number)


ENDING = Ending()


def end_on_signals():
    signal.signal(signal.SIGTERM, ENDING.on_signal)


def end(process):
    """Ends a command that has a session of its own, and all that it started there: first kindly, as launchers then take
    their ranks with them."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            continue


def run_whole(command, limit, environment):
    """(exit code, output, errors) of a command that ends in time, else subprocess.TimeoutExpired."""
    ENDING.held = True
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", env={**os.environ, **environment}, start_new_session=True) as process:
            try:
                ENDING.held = False
                ENDING.end_if_wanted()
                out, errors = process.communicate(timeout=limit)
            except BaseException:
                end(process)
                raise
    finally:
        ENDING.held = False
    return process.returncode, out, errors
