"""What sections need to know to plan their steps."""
import dataclasses
import json
import os
import shutil
import sys


@dataclasses.dataclass
class Context:
    root: str  # of the repository
    programs: str
    torch_python: str  # or empty
    torchrun: str  # or empty
    data: str  # folder of CIFAR-100's binary files
    quick: bool
    has_gpu: bool
    cores: int = len(os.sched_getaffinity(0))  # that may be used here, as in a container with fewer than the machine

    def tool(self, name, *words):
        """A command line of one of tools/bench."""
        return [os.path.join(self.root, "tools", "bench", name), *words, "--programs", self.programs, "--out", "{out}"]

    def torch(self):
        return ["--torch-python", self.torch_python]  # if empty, others need not look for one

    def program(self, name):
        return os.path.join(self.programs, name)

    def shown(self, text):
        """A command as it is typed in the root of a clone, without this machine's folders."""
        for path, name in ((self.torch_python, "$TORCH_PYTHON"), (self.torchrun, "$TORCHRUN"),
                           (self.programs, "build/bin"), (self.data, "data/cifar-100-binary")):
            if path and os.path.isabs(path) and not path.startswith("/usr/bin"):
                text = text.replace(path, name)
        return text.replace(self.root + os.sep, "")


def find_torch(given, imports_torch):
    """A Python that can import torch, or nothing. Raises ValueError if the given one cannot."""
    if given and not imports_torch(given):
        raise ValueError(f"--torch-python: {given} cannot import torch")
    if given:
        return given
    return next(filter(imports_torch, ["/usr/bin/python3", "python3", sys.executable]), "")


def find_torchrun(given, torch_python):
    """Its path, or nothing. Raises ValueError if the given one is no program."""
    if given and not shutil.which(given):
        raise ValueError(f"--torchrun: {given} is no program")
    beside = os.path.join(os.path.dirname(torch_python), "torchrun") if torch_python else ""
    return given or (beside if os.path.exists(beside) else shutil.which("torchrun") or "")


def read_lines(folder, name):
    """The JSON lines that a tool has written into its folder."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return [json.loads(line) for line in file]
