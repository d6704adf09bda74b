"""From results.json to report.html, report.pdf and plots/."""
import os

from compare import launchers

from . import page, plots, summary
from .blocks import Code, Plot, Table, paragraph
from .runner import format_minutes

# What has to be installed for a contender, by the first word of its name, where it goes by another one.
PEER_OF = {"Gloo": "PyTorch", "torch": "PyTorch", "Hydra": "MPICH"}
STEPS_TITLE = "How it was run"


def update_figures(results, sections):
    """The figures that --compare sets side by side, from what has been measured."""
    results.document["figures"] = [entry for section in sections
                                   for entry in section.figures(results.data_of(section.NAME))]


def draw(results, sections, log):
    """Writes page, PDF and plots, and says so; returns whether all that was planned is there. Raises OSError if the page cannot be
    written."""
    document = results.document
    log(f"drawing in {results.folder}")
    parts, missing = parts_of(document, sections, log), document_missing(document, sections)

    def written(*names):
        log(f"wrote {', '.join(os.path.join(results.folder, name) for name in names)}")

    results.write("report.html", render(document, parts, missing, for_page=True).encode())
    written("report.html")
    try:
        results.write("report.pdf", page.pdf(lambda: render(document, parts, missing, for_page=False)))
        written("report.pdf")
    except (OSError, page.NoPdf) as why:
        log(f"no PDF: {why}")
    try:
        files = write_plots(results, parts)
        if files:
            log(f"wrote {len(files)} plots to {os.path.join(results.folder, 'plots')}")
    except OSError as why:
        log(f"no plots as files: {why}")
    planned = len(document["planned"])
    done = sum(document["steps"].get(step["id"], {}).get("state") == "done" for step in document["planned"])
    if done < planned:
        log(f"the report is not complete: {done} of {planned} steps have a result; the page says what is missing, and why")
    return done == planned and "ended" not in document


def write_plots(results, parts):
    """Every plot as a file of its own, to be shown elsewhere: plots/SECTION-NUMBER.png. Returns their names."""
    files = []
    for name, _, _, blocks in parts:
        for number, block in enumerate((block for block in blocks if isinstance(block, Plot)), 1):
            files.append(os.path.join("plots", f"{name}-{number}.png"))
            results.write(files[-1], plots.png(block.figure))
    return files


def parts_of(document, sections, log):
    """[(name, title, what is missing, blocks)]"""
    parts = [(summary.NAME, summary.TITLE, [], list(summary.blocks(document, log)))]
    for section, (_, lines) in zip(sections, section_missing(document, sections)):
        entries = [entry for entry in document["figures"] if entry["section"] == section.NAME]
        measured = any(step["section"] == section.NAME and step["state"] == "done" for step in document["steps"].values())
        parts.append((section.NAME, section.TITLE, lines + notes_of(document, section),
                      list(section.blocks(document, entries, log)) if measured or section.ALWAYS else []))
    parts.append(("steps", STEPS_TITLE, [], list(step_blocks(document))))
    return parts


def render(document, parts, missing, for_page):
    machine = document["machine"]
    subtitle = (f"{machine['cpu']['model']}, {machine['cpu']['cores']} cores, {machine['memory_gib']} GiB · "
                f"{machine['distribution']} · commit {document['commit']} · {document['begun']} to "
                f"{document['updated']} · {document['mode']} run")
    return page.render("dlaunch beside its peers", subtitle, missing, parts, for_page)


def document_missing(document, sections):
    lines = [f"{section.TITLE}: {len(of_section)} of its steps" if any(
        step["section"] == section.NAME for step in document["steps"].values()) else f"{section.TITLE}: all of it"
             for section, of_section in section_missing(document, sections) if of_section]
    if document.get("ended"):
        lines.insert(0, f"The run did not come to its end: {document['ended']}.")
    if document["machine"].get("tools", {}).get("matplotlib", "").startswith("missing"):
        lines.append("All plots: matplotlib is not installed (python3-matplotlib).")
    return lines


def section_missing(document, sections):
    """[(section, a line for each planned step without a result)]"""
    found = []
    for section in sections:
        lines = []
        for planned in document["planned"]:
            if planned["section"] != section.NAME:
                continue
            step = document["steps"].get(planned["id"])
            if step is None:
                lines.append(f"{planned['about']}: not run")
            elif step["state"] != "done":
                lines.append(f"{planned['about']}: {step['reason']}")
        if section.NAME not in document["left_out"]:
            lines.append("not asked for (--only)")
        found.append((section, lines))
    return found


def notes_of(document, section):
    """What was left out of a section, peers that are not there or failed, and steps that other load disturbed."""
    name, installed = section.NAME, document["machine"]["peers"]
    missing = [peer for peer in section.PEERS if installed[peer].startswith("missing")]
    lines = [f"{what}: {why}" for what, why in document["left_out"].get(name, {}).items()]
    lines += [f"{peer}: {installed[peer]}" for peer in missing]
    failures, disturbed = {}, []
    for key, step in document["steps"].items():
        if step["section"] != name or step["state"] != "done":
            continue
        for run in step["data"] if isinstance(step["data"], list) else []:
            if "failure" in run:
                who = run["contender"] if "contender" in run else launchers.SHOWN[run["launcher"]]
                if PEER_OF.get(who.split()[0], who) not in missing:
                    failures[(who, run.get("program"), run.get("ranks"), run["failure"])] = None
        if step["load"]["disturbed"]:
            disturbed.append(key.partition("/")[2])
    lines += [who + (f", {program}" if program else "") + (f", {ranks} ranks" if ranks else "") + f": {why}"
              for who, program, ranks, why in failures]
    if disturbed:
        lines.append(f"an undisturbed measurement of: {', '.join(disturbed)} (other programs took part of the cores each "
                     "time, see the last section)")
    return lines


def step_blocks(document):
    yield paragraph("Contenders take turns within a step, in an order that changes, and warm-up does not count. While "
                    "a step runs, the processor time that other programs and the hypervisor took is watched; a timed "
                    "step during which they took more than 4 % of the cores has up to three attempts in all, and the "
                    "one with the least other load is kept. $TORCH_PYTHON stands for a Python that can import torch.")
    rows = []
    for key, step in document["steps"].items():
        load = step.get("load")
        others = f"{load['others'] + load['steal']:.1%}" if load else "–"
        state = step["state"] + (", disturbed" if load and load["disturbed"] else "")
        rows.append([key, state, Code(step["command"]), format_minutes(step.get("seconds", 0)), others,
                     str(len(step["attempts"]))])
    yield Table("Every step; OUT is a folder to write to", ["step", "state", "command", "time", "other load", "attempts"],
                rows, "", text_columns=3)
