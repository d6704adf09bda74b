"""From runs to figures and text."""
import math
import statistics

OURS = "dlaunch"  # what is chosen by default; others of ours have longer names that begin so
SHOWN = {"ring": "dlaunch ring", "butterfly": "dlaunch butterfly"}  # contenders of the course, by their algorithms


def usable(runs):
    """Settled runs; and all of a contender that has no settled one of an operation and number of ranks."""
    def key(run):
        return run["contender"], run["operation"], run["ranks"]

    settled = {key(run) for run in runs if run["settled"] and run["cells"]}
    return [run for run in runs if run["settled"] or key(run) not in settled]


def figures(runs, operation):
    """{(ranks, count): {contender: [(round id, cell), ...]}} of an operation."""
    table = {}
    for run in usable(runs):
        if run["operation"] != operation:
            continue
        for cell in run["cells"]:
            of_cell = table.setdefault((run["ranks"], cell["count"]), {})
            of_cell.setdefault(run["contender"], []).append(((*run["flag_ns"], run["round"]), cell))
    return dict(sorted(table.items()))


def median_us(cells, key="us"):
    return statistics.median(cell[key] for _, cell in cells)


def spread(cells):
    """The least p10 and the greatest p90 of the rounds."""
    return min(cell["us_p10"] for _, cell in cells), max(cell["us_p90"] for _, cell in cells)


def ratio_to_best(of_cell, ours=OURS):
    """(median over rounds of our time by the best peer's of the same round, the best peer's name)."""
    peers = {name: cells for name, cells in of_cell.items() if not name.startswith(OURS)}
    if not peers or ours not in of_cell:
        return None, None
    best = min(peers, key=lambda name: median_us(peers[name]))
    own = dict(of_cell[ours])
    ratios = [own[flags]["us"] / min(dict(cells)[flags]["us"] for cells in peers.values() if flags in dict(cells))
              for flags in own if any(flags in dict(cells) for cells in peers.values())]
    return (statistics.median(ratios), best) if ratios else (None, best)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ratio(value, other):
    return value / other if value is not None and other else None


def text_of(value, width, digits):
    """Of a fixed width, also where there is no value."""
    return f"{value:{width}.{digits}f}" if value is not None else " " * (width - 1) + "-"


def show_us(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def comparison_table(runs, operation, names):
    """Text: a line per cell, our time beside everybody's, the ratio to the best peer."""
    table = figures(runs, operation)
    names = [name for name in names if any(name in of_cell for of_cell in table.values())]
    lines = [f"{operation}, median µs of the slowest rank" if operation == "barrier"
             else f"{operation}, float32, median µs of the slowest rank"]
    head = f"{'ranks':>5} {'count':>10} " + " ".join(f"{name:>13}" for name in names)
    lines.append(head + f" {'10-90 % of ours':>17} {'ratio':>6}  best peer")
    ratios = {}
    for (ranks, count), of_cell in table.items():
        line = f"{ranks:>5} {count:>10,} " + " ".join(
            f"{show_us(median_us(of_cell[name]) if name in of_cell else None):>13}" for name in names)
        if OURS in of_cell:
            low, high = spread(of_cell[OURS])
            line += f" {show_us(low) + ' - ' + show_us(high):>17}"
        ratio, best = ratio_to_best(of_cell)
        if ratio is not None:
            ratios[(ranks, count)] = ratio
            line += f" {ratio:>6.2f}  {best}"
        lines.append(line)
    if ratios:
        worst = max(ratios, key=ratios.get)
        lines.append(f"geometric mean of the ratios {geometric_mean(list(ratios.values())):.2f}; "
                     f"greatest {ratios[worst]:.2f} ({worst[0]} ranks, {worst[1]:,} elements)")
    flags = [value for run in usable(runs) if run["operation"] == operation for value in run["flag_ns"]]
    if flags:
        lines.append(f"a flag went there and back between two cores in {min(flags)} to {max(flags)} ns meanwhile")
    lines += failures(runs, operation)
    return "\n".join(lines) + "\n"


def failures(runs, operation):
    found = {(run["contender"], run["ranks"], run["failure"]) for run in runs
             if run["operation"] == operation and "failure" in run}
    return [f"no figure of {name}" + (f", {ranks} ranks" if ranks else "") + f": {why}"
            for name, ranks, why in sorted(found, key=str)]


def course_table(runs, names):
    """Text: time, peak memory and error by ranks and elements, for each contender."""
    table = figures(runs, "allreduce")
    lines = ["Mean of float32 vectors over all ranks: median µs (slowest rank), peak resident MiB of a rank, greatest relative "
             "error against double"]
    lines.append(f"{'ranks':>5} {'elements':>9} " + "   ".join(f"{SHOWN.get(name, name):>30}" for name in names))
    for (ranks, count), of_cell in table.items():
        parts = []
        for name in names:
            if name not in of_cell:
                parts.append(f"{'-':>30}")
                continue
            cells = of_cell[name]
            peak, error = max(cell["peak_mib"] for _, cell in cells), max(cell["error"] for _, cell in cells)
            parts.append(f"{show_us(median_us(cells)):>10} {peak:>8.1f} {error:>10.1e}")
        lines.append(f"{ranks:>5} {count:>9,} " + "   ".join(parts))
    lines += failures(runs, "allreduce")
    return "\n".join(lines) + "\n"
