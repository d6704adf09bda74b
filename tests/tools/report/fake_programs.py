"""Programs that say at once what dlaunch's would after a while."""
import os
import stat

# Any of dbench's subjects, from the options that the report's tools give it.
DBENCH = '''#!/usr/bin/python3
import json, sys
words = sys.argv[1:]
value = lambda name, default="": words[words.index(name) + 1] if name in words else default
counts, subject = [int(count) for count in value("--counts", "0").split(",")], words[0]
if subject == "p2p":
    ways = ["memcpy", "memcpy_both", "shared_flag", "socket_spinning", "socket_blocking"]
    document = {"operation": "p2p", "ranks": 2, "cells": [{"way": way, "bytes": count, "one_way_us": 0.05 + count * 1e-4,
                           "one_way_us_p10": 0.04 + count * 1e-4, "one_way_us_p90": 0.06 + count * 1e-4,
                           "round_trip_us": 0.1, "round_trip_us_p10": 0.1, "round_trip_us_p90": 0.2}
                          for way in ways for count in counts]}
elif subject == "machine":
    document = {"operation": "machine", "ranks": int(value("--nproc")), "cells": [
        {"what": what, "how": "somehow", "unit": "GB/s", "rate": 20, "rate_p10": 19, "rate_p90": 21} for what in ("fp32", "copy")]}
else:
    scale = 2 if value("--algorithm") == "ring" else 1
    document = {"cells": [{"count": count, "bytes": 4 * count, "us": count * 0.01 * scale, "us_p10": count * 0.009 * scale,
                           "us_p90": count * 0.012 * scale, "error": 1e-7, "peak_mib": 7.5} for count in counts]}
with open(value("--json"), "w") as file:
    json.dump(document, file)
'''
DLAUNCH = '''#!/bin/sh
# The program after --nproc N and options, once.
while [ $# -gt 0 ]; do
  case $1 in
    --version) echo "dlaunch 9.8.7"; exit ;;
    --nproc | --max-restarts | --restart-delay | --ready-after) shift 2 ;;
    *) break ;;
  esac
done
exec "$@"
'''
PRINTS = '''#!/bin/sh
echo "Process 0"
'''
NOTHING = "#!/bin/sh\n"


def write(folder, **others):
    """Makes the programs in `folder`; `others`: texts of programs instead of these."""
    programs = {"dbench": DBENCH, "dlaunch": DLAUNCH, "sequential_print": PRINTS, "first_barrier": NOTHING, "dtrain": NOTHING,
                "dbench_training": NOTHING, **others}
    os.makedirs(folder, exist_ok=True)
    for name, text in programs.items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return folder
