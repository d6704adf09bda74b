"""What a section of the report is made of, before it is written as HTML: text, tables, pictures, and figures."""
import dataclasses
import html
import statistics


OURS = "dlaunch"  # what is chosen by default; others of ours have longer names that begin so


@dataclasses.dataclass
class Text:
    html: str


@dataclasses.dataclass
class Code:
    text: str


@dataclasses.dataclass
class Table:
    caption: str
    head: list
    rows: list  # of lists of text
    command: str = ""  # that makes it again
    text_columns: int = 1  # from the left; the others are numbers


@dataclasses.dataclass
class Plot:
    caption: str
    figure: object  # of matplotlib


def paragraph(text):
    return Text(f"<p>{html.escape(text)}</p>")


def figure(section, measure, case, contender, unit, values, better="lower", low=None, high=None):
    """A figure of results.json. `values`: one per round; the spread is theirs unless it is known better."""
    return {"section": section, "measure": measure, "case": case, "contender": contender, "unit": unit,
            "better": better, "value": statistics.median(values), "low": min(values) if low is None else low,
            "high": max(values) if high is None else high, "rounds": len(values)}


def quantile(values, fraction):
    ascending = sorted(values)
    position = fraction * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)


def short(value):
    """Three digits, as people read them."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def with_spread(entry):
    if entry["low"] == entry["high"]:
        return short(entry["value"])
    return f"{short(entry['value'])} ({short(entry['low'])}–{short(entry['high'])})"


def table_of(figures, measure, keys, caption, command, ours=OURS):
    """A row for each case, a column for each contender, and `ours` by the best of those that are not ours.
    `keys`: {key of a case: its heading}. None without figures of that measure."""
    here = [entry for entry in figures if entry["measure"] == measure]
    if not here:
        return None
    names = list(dict.fromkeys(entry["contender"] for entry in here))
    cells = {}
    for entry in here:
        cells.setdefault(tuple(entry["case"][key] for key in keys), {})[entry["contender"]] = entry
    compared = ours in names and here[0]["better"] and any(not name.startswith(OURS) for name in names)
    rows = []
    for case, of_case in sorted(cells.items()):
        row = [f"{value:,}" if isinstance(value, int) else str(value) for value in case]
        row += [with_spread(of_case[name]) if name in of_case else "–" for name in names]
        if compared:
            row.append(ratio_text(ratio(of_case, ours)))
        rows.append(row)
    head = [*keys.values(), *names] + (["ours / best peer"] if compared else [])
    units = {entry["unit"] for entry in here}
    unit = f"{units.pop()}; " if len(units) == 1 and "" not in units else ""
    return Table(f"{caption} ({unit}median and spread)", head, rows, command,
                 text_columns=sum(isinstance(value, str) for value in next(iter(cells))))


def ratio(of_case, ours=OURS):
    """The contender `ours` by the best of those that are not ours; None where there are not both."""
    peers = [entry for name, entry in of_case.items() if not name.startswith(OURS)]
    if ours not in of_case or not peers:
        return None
    best = (min if of_case[ours]["better"] == "lower" else max)(entry["value"] for entry in peers)
    return of_case[ours]["value"] / best if best else None


def command_of(document, section):
    """What measures a section again, and draws its tables."""
    return f"tools/report OUT_DIR --only {section}" + (" --quick" if document["mode"] == "quick" else "")


def ratio_text(value):
    """Two digits of a ratio, as people read them."""
    if value is None:
        return "–"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
