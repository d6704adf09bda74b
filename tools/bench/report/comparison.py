"""Two reports side by side: what got faster or slower, smaller or larger, beyond the noise."""
from .blocks import case_text, column_texts

LEAST = 0.03  # of the older value; less is not worth a line even if the spreads do not touch


def key_of(entry):
    return entry["section"], entry["measure"], tuple(sorted(entry["case"].items())), entry["contender"], entry["unit"]


def judge(older, newer):
    """"better", "worse" or "same": the medians differ by more than LEAST and the spreads do not touch. One round has
    the spread of its repetitions."""
    if any(entry["rounds"] == 1 and entry["low"] == entry["high"] for entry in (older, newer)):
        return "same"  # nobody knows their spread
    apart = newer["low"] > older["high"] or newer["high"] < older["low"]
    if not apart or abs(newer["value"] - older["value"]) <= LEAST * abs(older["value"]):
        return "same"
    return "better" if (newer["value"] < older["value"]) == (newer["better"] == "lower") else "worse"


def line(older, newer):
    change = f"{newer['value'] / older['value']:.2f}×" if older["value"] else "from 0"
    return (f"  {change:>8}  {older['section']}, {older['measure']}: {older['contender']}, {case_text(older['case'].items())}: "
            f"{column_texts([older])[0]} -> {column_texts([newer])[0]} {older['unit']}")


def differing_machines(first, second):
    """Lines on what may explain differences other than the code."""
    found = []
    for name in ("cpu", "memory_gib", "gpus", "distribution", "kernel", "build", "libraries", "peers"):
        older, newer = first["machine"].get(name), second["machine"].get(name)
        if older == newer:
            continue
        if isinstance(older, dict) and isinstance(newer, dict):
            found += [f"  {name}, {key}: {older.get(key)} -> {newer.get(key)}" for key in sorted({*older, *newer})
                      if older.get(key) != newer.get(key)]
        else:
            found.append(f"  {name}: {older} -> {newer}")
    if first["mode"] != second["mode"]:
        found.append(f"  mode: {first['mode']} -> {second['mode']}")
    return found


def compare(first, second):
    """The comparison as text."""
    older, newer = ({key_of(entry): entry for entry in document["figures"] if entry["better"]}
                    for document in (first, second))
    both = [key for key in older if key in newer]
    verdicts = {key: judge(older[key], newer[key]) for key in both}
    lines = [f"A: commit {first['commit']}, {first['begun']}", f"B: commit {second['commit']}, {second['begun']}"]
    differences = differing_machines(first, second)
    if differences:
        lines += ["not measured alike:", *differences]
    for verdict, heading in (("worse", "worse in B"), ("better", "better in B")):
        found = [key for key in both if verdicts[key] == verdict]
        lines.append(f"{heading}: {len(found)} of {len(both)} figures" + (", A -> B, median and spread:" if found else ""))
        lines += [line(older[key], newer[key]) for key in
                  sorted(found, key=lambda key: -distance(older[key]["value"], newer[key]["value"]))]
    lines.append(f"the same within the noise: {sum(verdict == 'same' for verdict in verdicts.values())}")
    for name, only in (("A", len(older) - len(both)), ("B", len(newer) - len(both))):
        if only:
            lines.append(f"only in {name}: {only} figures")
    lines.append(f"Beyond the noise: medians differ by more than {LEAST * 100:g} % and the spreads do not touch.")
    return "\n".join(lines) + "\n"


def distance(first, second):
    """How far apart, whichever is greater."""
    least, most = sorted((abs(first), abs(second)))
    return most / least if least else float("inf")
