#!/usr/bin/python3
"""tools/report as its users run it, with programs that answer at once: what a run leaves behind that ends well, is
interrupted, fills the disk, or finds no peers."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "tools", "bench")]

import fake_programs  # noqa: E402
from page_reader import Page  # noqa: E402

DEADLINE = 120
# tools/report on a machine without peers: no Python has torch, and PATH has no launchers. Load is nothing to these tests.
WITHOUT_TORCH = """
import sys
sys.path.insert(0, sys.argv[1] + "/tools/bench")
from report import collectives, command_line, load
load.DISTURBED = 9
collectives.COURSE_RANKS, collectives.GRID_RANKS = [1, 2], [2]
command_line.imports_torch = lambda python: False
sys.exit(command_line.main("", sys.argv[1], sys.argv[2:]))
"""
WITHOUT_MATPLOTLIB = "import sys\nsys.modules['matplotlib'] = None\n" + WITHOUT_TORCH
COMMANDS = ["bash", "sh", "cat", "dirname", "find", "mkdir", "sleep", "date", "ls", "grep", "rm", "dd", "mount"]


def path_without_peers(folder):
    os.makedirs(folder)
    for name in COMMANDS:
        for place in ("/usr/bin", "/bin"):
            if os.path.exists(os.path.join(place, name)):
                os.symlink(os.path.join(place, name), os.path.join(folder, name))
                break
    return folder


def soon(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class ReportTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.out = os.path.join(self.folder, "out")
        self.programs = fake_programs.write(os.path.join(self.folder, "bin"))
        self.environment = {**os.environ, "PATH": path_without_peers(os.path.join(self.folder, "path"))}

    def command(self, *options, script=WITHOUT_TORCH, out=None):
        return ["/usr/bin/python3", "-c", script, ROOT, out or self.out, "--quick", "--programs", self.programs, *options]

    def run_report(self, *options, **others):
        return subprocess.run(self.command(*options, **others), env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE, check=False)

    def page(self):
        page = Page(os.path.join(self.out, "report.html"))
        self.assertEqual(page.open_tags, [], "a page that is not well-formed")
        self.assertEqual(page.outside, [], "a page that needs the network")
        return page

    def results(self):
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_a_run_without_peers_says_who_is_missing(self):
        done = self.run_report("--only", "printing,collectives")
        page = self.page()
        self.assertIn("Process 0", page.text)
        self.assertTrue(any("no Python with torch" in line for line in page.missing), page.missing)
        self.assertTrue(any("no mpirun.openmpi" in line for line in page.missing), page.missing)
        contenders = {entry["contender"] for entry in self.results()["figures"]}
        self.assertEqual(contenders, {"dlaunch", "dlaunch ring", "dlaunch butterfly"}, done.stderr)
        if importlib.util.find_spec("matplotlib"):
            with open(os.path.join(self.out, "plots", "collectives-1.png"), "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def test_what_is_written_is_announced(self):
        with open(os.path.join(self.folder, "path", "weasyprint"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\n[ \"$1\" = --version ] || echo %PDF-1.7\n")
        os.chmod(file.name, 0o755)
        errors = self.run_report("--only", "collectives").stderr
        for name in ("report.html", "report.pdf"):
            self.assertIn(f"wrote {os.path.join(self.out, name)}\n", errors)
            self.assertTrue(os.path.getsize(os.path.join(self.out, name)))
        if importlib.util.find_spec("matplotlib"):
            self.assertIn(f"wrote {len(os.listdir(os.path.join(self.out, 'plots')))} plots to {self.out}/plots\n", errors)

    def test_the_exit_code_is_that_of_what_was_asked_for(self):
        self.assertEqual(self.run_report("--only", "printing").returncode, 0, "other sections were not asked for")
        fake_programs.write(self.programs, dbench="#!/bin/sh\nexit 3\n")
        done = self.run_report("--only", "infrastructure")
        self.assertEqual(done.returncode, 1)
        count = len(self.results()["planned"])
        reason = f"the report is not complete: 1 of {count} steps have a result; the page says what is missing, and why\n"
        self.assertIn(reason, done.stderr)
        done = self.run_report("--draw")
        self.assertEqual(done.returncode, 0, "all that was asked for is to draw")
        self.assertIn(reason, done.stderr)

    def test_results_are_compared_under_the_names_of_today(self):
        self.run_report("--only", "infrastructure")
        document, older = self.results(), os.path.join(self.folder, "older.json")
        for entry in document["figures"]:
            entry["contender"] = "a name of old"
        with open(older, "w", encoding="utf-8") as file:
            json.dump(document, file)
        done = subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tools", "report"), "--compare", older, self.out],
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.assertIn("better in B: 0 of ", done.stdout, done.stderr)
        self.assertNotIn("only in", done.stdout)

    def test_sections_that_were_not_asked_for_are_said_to_be_missing(self):
        done = self.run_report("--only", "printing")
        self.assertIn(" 1 step, about ", done.stderr)
        self.assertIn("Launchers: all of it", self.page().missing)

    def test_a_run_that_is_interrupted_leaves_a_page_and_no_process_and_is_gone_on_with(self):
        pid_file = os.path.join(self.folder, "pid")
        fake_programs.write(self.programs, sequential_print=f"#!/bin/sh\necho $$ >{pid_file}\nexec sleep {DEADLINE}\n")
        with subprocess.Popen(self.command("--only", "infrastructure,printing"), env=self.environment,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertTrue(soon(lambda: os.path.exists(pid_file) and os.path.getsize(pid_file)))
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("The run did not come to its end: interrupted by SIGINT.", self.page().missing)
        self.assertIn("4 ranks: interrupted", self.page().missing)
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read())
        self.assertTrue(soon(lambda: not os.path.exists(f"/proc/{pid}")), "its program runs on")
        measured = self.results()["steps"]["infrastructure/memory"]
        self.assertEqual(measured["state"], "done")

        fake_programs.write(self.programs)
        self.run_report("--only", "infrastructure,printing")
        self.assertEqual(self.results()["steps"]["infrastructure/memory"], measured, "it was measured again")
        self.assertEqual(self.results()["steps"]["printing/run"]["state"], "done")
        self.assertNotIn("did not come to its end", self.page().text)

    def test_what_the_tools_of_a_report_have_started_ends_with_it(self):
        pid_file = os.path.join(self.folder, "pid")
        fake_programs.write(self.programs, dbench=f"#!/bin/sh\necho $$ >{pid_file}\nexec sleep {DEADLINE}\n")
        with subprocess.Popen(self.command("--only", "collectives"), env=self.environment, stderr=subprocess.DEVNULL) as process:
            self.assertTrue(soon(lambda: os.path.exists(pid_file) and os.path.getsize(pid_file)))
            process.terminate()
            self.assertEqual(process.wait(timeout=DEADLINE), 1)
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read())
        self.assertTrue(soon(lambda: not os.path.exists(f"/proc/{pid}")), "its program runs on")
        self.assertIn("The run did not come to its end: interrupted by SIGTERM.", self.page().missing)

    def test_a_full_disk_ends_in_a_page_that_says_so(self):
        if subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
                          capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted in a namespace of one's own here")
        fake_programs.write(self.programs, sequential_print=f"#!/bin/sh\ncat /dev/zero >{self.out}/filler\ntrue\n")
        os.makedirs(self.out)
        kept = os.path.join(self.folder, "kept")
        script = ('mount -t tmpfs -o size=12m none "$1" || exit 99\nout=$1 kept=$2\nshift 2\n"$@"\ncode=$?\n'
                  'rm "$out/filler"; cp -r "$out" "$kept"; exit $code')
        done = subprocess.run(["/usr/bin/unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh",
                               self.out, kept, *self.command("--only", "printing,collectives")],
                              env={**self.environment, "PATH": self.environment["PATH"] + ":/usr/bin:/bin"},
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.out = kept
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("The run did not come to its end: the disk is full.", self.page().missing)
        self.assertEqual(self.results()["steps"]["printing/run"]["state"], "done")
        self.assertIn("all-reduce beside the peers, ranks: 2: not run", self.page().missing)

    def test_without_matplotlib_there_are_tables(self):
        done = self.run_report("--only", "collectives", script=WITHOUT_MATPLOTLIB)
        self.assertEqual((done.stdout + done.stderr).count("no plots: install"), 1)
        page = self.page()
        self.assertTrue(any("matplotlib" in line for line in page.missing), page.missing)
        self.assertIn("dlaunch butterfly", page.text)
        self.assertNotIn("<svg", page.text)
        self.run_report("--draw")  # by whoever has it, or not
        self.assertEqual(any("matplotlib" in line for line in self.page().missing),
                         not importlib.util.find_spec("matplotlib"))

    def test_a_program_that_fails_is_named_with_its_reason(self):
        fake_programs.write(self.programs, sequential_print="#!/bin/sh\necho 'the cable is out' >&2\nexit 3\n")
        done = self.run_report("--only", "printing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("4 ranks: exit code 3: the cable is out", self.page().missing)

    def test_what_cannot_be_is_refused_in_one_line(self):
        for options, reason in ((["--only", "weather"], "no section weather"),
                                (["--programs", "/nowhere"], "/nowhere has no dlaunch"),
                                (["--torch-python", "/bin/false"], "/bin/false cannot import torch")):
            done = self.run_report(*options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(reason, done.stderr.splitlines()[-1])
        self.assertFalse(os.path.exists(os.path.join(self.out, "report.html")))

    def test_the_report_of_another_commit_is_not_mixed_in(self):
        self.run_report("--only", "printing")
        document = self.results()
        document["commit"] = "0123456789"
        with open(os.path.join(self.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)
        done = self.run_report("--only", "printing")
        self.assertIn("holds a report of commit 0123456789", done.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
