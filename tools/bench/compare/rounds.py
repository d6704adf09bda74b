"""Runs contenders in turn, round after round, and keeps what each run gave as JSON lines."""
import json
import sys
import time

from . import contenders as who

# The two cores of a virtual machine may be near each other or not, and that changes within minutes. A round in which
# a flag's round trip between them changed by more than this is not used.
SETTLED = 1.6
HOPELESS = 20  # a contender so many times slower than the best in every cell of a round is not run again there


def flag_ns(programs):
    """Nanoseconds that 8 bytes take there and back between two processes through shared memory."""
    return who.memory_figures(programs, [8], 0.02)[("shared_flag", 8)]["round_trip_us"] * 1e3


class Comparison:
    def __init__(self, programs, seconds, limit_seconds, log):
        self.programs, self.seconds, self.limit_seconds, self.log = programs, seconds, limit_seconds, log
        self.runs = []

    def flag_ns(self):
        """0 if it cannot be measured: then the round is not used, and what else it gave is kept."""
        try:
            return flag_ns(self.programs)
        except who.Failure as failure:
            self.log(f"a flag's round trip: {failure}")
            return 0

    def round(self, entries, operation, ranks, counts, number):
        """One run of every contender; the runs, with the state of the machine before and after."""
        before, runs = self.flag_ns(), []
        # The order changes from round to round, so that nobody always comes first.
        shift = number % len(entries)
        for entry in entries[shift:] + entries[:shift]:
            run = {"contender": entry.name, "operation": operation, "ranks": ranks, "round": number, "cells": []}
            start = time.monotonic()
            try:
                run["cells"] = entry.run(operation, ranks, counts, self.seconds, self.limit_seconds)
            except who.Failure as failure:
                run["failure"] = str(failure)
                self.log(f"{entry.name}, {operation}, {ranks} ranks: {failure}")
            run["wall_s"] = round(time.monotonic() - start, 2)
            runs.append(run)
        after = self.flag_ns()
        settled = 0 < max(before, after) <= SETTLED * min(before, after)
        for run in runs:
            run.update(flag_ns=[round(before), round(after)], settled=settled)
        self.log(f"{operation}, {ranks} ranks, round {number + 1}: flag {before:.0f} to {after:.0f} ns"
                 + ("" if settled else ", not used"))
        return runs, settled

    def rounds(self, entries, operation, ranks, counts, wanted):
        """So many settled rounds, with three more at most to make up for others."""
        entries, settled_rounds = list(entries), 0
        for number in range(wanted + 3):
            if not entries:
                return
            runs, settled = self.round(entries, operation, ranks, counts, number)
            self.runs += runs
            settled_rounds += settled
            if settled_rounds == wanted:
                return
            if settled:
                entries = [entry for entry in entries if not self.is_hopeless(entry.name, runs)]

    def is_hopeless(self, name, runs):
        times = {run["contender"]: {cell["count"]: cell["us"] for cell in run["cells"]} for run in runs}
        own = times.get(name, {})
        if not own:
            return True  # it failed
        best = {count: min(cells[count] for cells in times.values() if count in cells) for count in own}
        return all(own[count] > HOPELESS * best[count] for count in own)


def save(runs, path, append):
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        for run in runs:
            file.write(json.dumps(run) + "\n")


def load(path):
    """What save() has written there; ends this program if that is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}: nothing has been measured into that folder yet")
