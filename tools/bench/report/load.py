"""Who else used the processor while something was measured.

/proc/stat has what all processes of the machine used, and getrusage what our own children did, once they have ended
and been waited for. What is left was used by others. Time that a hypervisor gave to other machines (steal) counts too.
"""
import os
import resource
import time

# Of all cores' time. A core taken away entirely from one of two would be 0.5; the kernel's own threads and the
# sampling of /proc/stat make up to 0.02 on an idle machine.
DISTURBED = 0.04
TICK = os.sysconf("SC_CLK_TCK")


def machine_seconds():
    """(used by processes, stolen), of all cores since boot. Interrupts are not of processes, and left out."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:]]
    user, nice, system, steal = fields[0], fields[1], fields[2], fields[7]
    return (user + nice + system) / TICK, steal / TICK


def own_seconds():
    total = 0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


class Watch:
    """Watches from its making until report()."""

    def __init__(self):
        self.begun, self.own = time.monotonic(), own_seconds()
        self.used, self.stolen = machine_seconds()

    def report(self):
        used, stolen = machine_seconds()
        core_seconds = max(time.monotonic() - self.begun, 1e-3) * (os.cpu_count() or 1)
        others = max(0.0, used - self.used - (own_seconds() - self.own)) / core_seconds
        steal = (stolen - self.stolen) / core_seconds
        return {"others": round(others, 4), "steal": round(steal, 4), "load_average": list(os.getloadavg()),
                # A tick more or less says nothing about a step that takes a moment.
                "disturbed": (others + steal) * core_seconds > 0.1 and others + steal > DISTURBED}
