"""results.json: what has been measured so far. It is all that a report is drawn from, and where a run goes on.

It is written anew after every step, under another name and then renamed, so that there is never half a file. A file
of some MiB beside it is given up when the disk is full, so that what was measured can still be written down.
docs/report.md describes the fields.
"""
import json
import os
import time

SCHEMA = 1
NAME = "results.json"
# What every report has from its first step on.
KEYS = {"mode": str, "commit": str, "begun": str, "updated": str, "machine": dict, "planned": list, "steps": dict,
        "left_out": dict, "figures": list}
RESERVE_NAME = ".reserve"
RESERVE_BYTES = 8 << 20


class UnusableFolder(Exception):
    """Why results cannot be kept there, or not read."""


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_whole(path, data):
    """Puts `data` (bytes) there as a whole or not at all."""
    part = path + ".part"
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise


class Results:
    """The document of one folder. Not for several processes at once."""

    def __init__(self, folder, document):
        self.folder, self.document = folder, document

    @property
    def steps(self):
        return self.document["steps"]

    def data_of(self, section):
        """Step id -> data, of what a section has measured."""
        return {key: step["data"] for key, step in self.steps.items()
                if step["section"] == section and step["state"] == "done"}

    def save(self):
        """Writes the document; gives up the reserve if the disk is full. True if it had to."""
        data = json.dumps(self.document, indent=1).encode()
        path = os.path.join(self.folder, NAME)
        try:
            write_whole(path, data)
            return False
        except OSError:
            if not self.release_reserve():
                raise
            write_whole(path, data)
            return True

    def write(self, name, data):
        """A file of the report, beside the results or in a folder there."""
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, data)

    def reserve(self):
        """Sets disk space aside."""
        path = os.path.join(self.folder, RESERVE_NAME)
        try:
            with open(path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            self.release_reserve()
            raise UnusableFolder(f"{self.folder}: a report needs {RESERVE_BYTES >> 20} MiB of disk space: "
                                 f"{error.strerror}") from None

    def release_reserve(self):
        """True if there was one."""
        try:
            os.unlink(os.path.join(self.folder, RESERVE_NAME))
            return True
        except FileNotFoundError:
            return False


def begin(folder, mode, commit):
    """The results in `folder` to go on with, or new ones. Those of another commit or mode are refused: a report's
    figures belong together."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UnusableFolder(f"{folder}: {error.strerror}") from None
    if not os.path.exists(os.path.join(folder, NAME)):
        return Results(folder, {"schema": SCHEMA, "mode": mode, "commit": commit, "begun": now(), "updated": now(),
                                "machine": {}, "steps": {}, "left_out": {}, "figures": []})
    results = load(folder)
    for key, value in (("mode", mode), ("commit", commit)):
        found = results.document[key]
        if found != value:
            raise UnusableFolder(f"{folder} holds a report of {key} {found}, and this is {value}: choose another "
                                 "folder, or remove that one")
    return results


def load(folder):
    path = os.path.join(folder, NAME) if os.path.isdir(folder) else folder
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise UnusableFolder(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UnusableFolder(f"{path} is no JSON: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnusableFolder(f"{path} is no report of schema {SCHEMA}")
    absent = [key for key in KEYS if not isinstance(document.get(key), KEYS[key])]
    if absent:
        raise UnusableFolder(f"{path} has no {', '.join(absent)}")
    return Results(os.path.dirname(path) or ".", document)
