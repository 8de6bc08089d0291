"""Makes the tables of a page of docs/ from the JSON files of the lab, and checks what its text says about them.

The files that the pages show are in docs/measurements. A table stands between two marks, which name it and the program that
makes it. A claim is a piece of the page's text with its figures, and whether the rows bear it out. Each sentence that compares
must have a claim, or be listed as one about something else.
"""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEASUREMENTS = ROOT / "docs" / "measurements"
COMPARES = re.compile(r"\b(below|above|less|more|fewer|smaller|smallest|larger|largest|faster|slower|exceeds?|at most|at least|within)\b")


def number(value, digits=0):
    """A number, from 10 000 on in groups of three digits, or nothing."""
    if value is None:
        return ""
    group = "," if abs(value) >= 10_000 else ""
    text = f"{value:{group}.{digits}f}".replace(",", " ")
    # Without the sign of a zero.
    return text.replace("-", "−" if text.strip("-0.") else "")


def percent(value, digits=1):
    """A saving in percent, as a change."""
    return "" if value is None else f"{number(-value, digits)} %"


def table(head, rows, left=1):
    """A table whose first `left` columns are words."""
    def line(cells):
        return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"

    rule = "| " + " | ".join(["---"] * left + ["---:"] * (len(head) - left)) + " |"
    return "\n".join([line(head), rule, *map(line, rows)]) + "\n"


def compact(report):
    """The report with a line for each row. Means are left out, and extremes that are equal to their median."""
    def kept(row):
        def is_needed(name):
            base, _, what = name.rpartition("_")
            return base not in row or what not in ("mean", "min", "max") or what != "mean" and row[name] != row[base]

        return {name: row[name] for name in row if is_needed(name)}

    head = {name: value for name, value in report.items() if name != "rows"}
    lines = ",\n".join(json.dumps(kept(row), ensure_ascii=False) for row in report["rows"])
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ',\n "rows": [\n' + lines + "\n]}\n"


def loaded(name):
    """A report of docs/measurements, with the extremes that `compact` has left out."""
    report = json.loads((MEASUREMENTS / name).read_text())
    for row in report["rows"]:
        for figure, value in list(row.items()):
            if isinstance(value, (int, float)) and not figure.endswith(("_min", "_max")):
                row.setdefault(f"{figure}_min", value)
                row.setdefault(f"{figure}_max", value)
    return report


def command(report):
    """The command of a report, by its present name: earlier reports have `dunlin lab`."""
    return re.sub(r"^dunlin lab\b", "dunlin-lab", report["command"])


def marks(name, program):
    """The marks of a table in a page."""
    return f"<!-- table {name}: tools/{program} -->\n", "<!-- end of table -->\n"


class Page:
    """A page, and what its tables and its text should be."""

    def __init__(self, name, program):
        self.name, self.program = name, program
        self.path = ROOT / "docs" / name
        self.text = self.path.read_text()
        self.problems = []
        self.covered = []

    def put(self, name, made, is_new):
        """Replaces a table, and unless it `is_new`, says if it was another one."""
        begin, end = marks(name, self.program)
        start = self.text.find(begin)
        stop = self.text.find(end, start)
        if min(start, stop) < 0:
            self.problems.append(f"no marks of the table {name}")
            return
        old = self.text[start + len(begin) : stop].strip("\n") + "\n"
        if old != made and not is_new:
            self.problems.append(f"the table {name} is not that of the measurements")
        self.text = f"{self.text[: start + len(begin)]}\n{made}\n{self.text[stop:]}"

    def says(self, words, holds=True):
        """A claim: the page has these words, and they are true."""
        words = " ".join(words.split())
        self.covered.append(words)
        if words not in self.prose():
            self.problems.append(f"the text does not say: {words}")
        if not holds:
            self.problems.append(f"the measurements do not say: {words}")

    def says_of_others(self, *all_words):
        """Comparisons of something that the rows do not have: goals, settings, the paper's own figures."""
        for words in all_words:
            self.says(words)

    def readme_says(self, words):
        """README.md has this cell of its table, or these words."""
        if " ".join(words.split()) not in " ".join((ROOT / "README.md").read_text().split()):
            self.problems.append(f"README.md does not say: {words}")

    def prose(self):
        text = re.sub(r"<!-- table .*?<!-- end of table -->|```.*?```", "\n¶\n", self.text, flags=re.S)
        lines = [line for line in text.splitlines() if not line.startswith(("|", "#"))]
        return " ".join(" ".join(lines).replace("below: the paper", "").split())

    def check_sentences(self):
        for sentence in re.split(r"(?<=[.!?])\)?\s+(?=[A-Z(*`])|¶", self.prose()):
            sentence = sentence.strip()
            if COMPARES.search(sentence) and not any(words in sentence or sentence in words for words in self.covered):
                self.problems.append(f"no claim for: {sentence}")


def main(page, program, files, tables, claims, read=json.loads):
    """Runs a program of a page, whose reports docs/measurements keeps under the names `files`.

    `tables(*reports)` makes the tables by name, `claims(page, *reports)` checks the text, and `read(text)` makes a report of what
    a measurement has written.
    """
    parser = argparse.ArgumentParser(description=f"""Makes the tables of docs/{page} from the lab's JSON. Without files, it checks that the page
        has those of docs/measurements, and that its text says what they say. With files, it prints their tables.""")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"a report of the lab, in this order: {', '.join(files)}")
    parser.add_argument("--write", action="store_true", help="keep the files in docs/measurements, and replace the tables of the page")
    args = parser.parse_args()
    if args.files and not args.write:
        reports = [read(pathlib.Path(file).read_text()) for file in args.files]
        for name, made in tables(*reports).items():
            print(marks(name, program)[0] + "\n" + made)
        return
    if args.files and len(args.files) != len(files):
        parser.error(f"{len(files)} files are needed: {', '.join(files)}")
    MEASUREMENTS.mkdir(exist_ok=True)
    for source, name in zip(args.files, files):
        (MEASUREMENTS / name).write_text(compact(read(pathlib.Path(source).read_text())))
    page = Page(page, program)
    reports = [loaded(name) for name in files]
    for name, made in tables(*reports).items():
        page.put(name, made, args.write)
    claims(page, *reports)
    page.check_sentences()
    if args.write:
        page.path.write_text(page.text)
    for problem in page.problems:
        print(f"docs/{page.name}: {problem}")
    sys.exit(1 if page.problems else 0)
