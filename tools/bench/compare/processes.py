"""Commands that leave nothing behind, however they end."""
import os
import signal
import subprocess
import sys

GRACE = 10  # seconds from SIGTERM to SIGKILL


def end_on_signals():
    """SIGTERM ends this program as SIGINT does: with an exception, so that run_whole() takes what it runs with it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


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
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", env={**os.environ, **environment}, start_new_session=True) as process:
        try:
            out, errors = process.communicate(timeout=limit)
        except BaseException:
            end(process)
            raise
    return process.returncode, out, errors
