"""The figures of the house: `python -m tests.house [--trace] [ROOT ...]`, one column for each tree.

`BUDGETS` is what `tests/test_house_style.py` holds the package to. With `--trace`, a few tiny
commands are run as well, and the files and functions are counted that each of them passes.
"""

import argparse
import ast
import re
import statistics
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
BUDGETS = {
    "files": 152,
    "code lines": 21_010,
    "classes": 285,
    "modules with one importer": 16,
    "recipes": 26,
    "lines of tests": 24_650,
}
"""What the house had when they were set, and little more. A budget makes growth a decision: who
needs more room first looks for what can go, then raises the number in the same commit and says why;
who made the house smaller lowers it."""
LONGEST_FUNCTION = 60
FEW = 5  # lines of settings in a recipe that says next to nothing
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def source_files(root: Path) -> list[Path]:
    """All files of the package that are not empty."""
    return sorted(f for f in (root / "src/unseen").rglob("*.py") if f.stat().st_size)


@cache
def syntax(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def code_lines(file: Path) -> int:
    """Lines that are neither blank, nor comments, nor docstrings."""
    texts = [n for n in syntax(file) if isinstance(n, ast.Expr) and _is_text(n.value)]
    docs = {line for n in texts for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
    return sum(bool(re.match(r"\s*[^\s#]", line)) and n not in docs for n, line in lines)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def function_lengths(file: Path) -> dict[str, int]:
    found = [n for n in syntax(file) if isinstance(n, FUNCTIONS)]
    return {f"{f.name}:{f.lineno}": (f.end_lineno or f.lineno) - f.lineno + 1 for f in found}


def single_importer(root: Path) -> list[Path]:
    """Files that exactly one other file of the package imports."""
    names = {_module(root, file): file for file in source_files(root)}
    importers = defaultdict(set)
    for file in source_files(root):
        for name in _imported(file) & names.keys():
            importers[names[name]].add(file)
    return [file for file in names.values() if len(importers[file] - {file}) == 1]


def _module(root: Path, file: Path) -> str:
    parts = file.relative_to(root / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(file: Path) -> set[str]:
    names = set[str]()
    for node in syntax(file):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return names


def counts(root: Path) -> dict[str, int]:
    """The figures that have a budget."""
    files = source_files(root)
    classes = sum(isinstance(node, ast.ClassDef) for file in files for node in syntax(file))
    tests = (root / "tests").rglob("*.py")
    return {
        "files": len(files),
        "code lines": sum(map(code_lines, files)),
        "classes": classes,
        "modules with one importer": len(single_importer(root)),
        "recipes": len(_recipes(root)),
        "lines of tests": sum(len(f.read_text(encoding="utf-8").splitlines()) for f in tests),
    }


def _recipes(root: Path) -> list[Path]:
    return list((root / "src/unseen/recipes").rglob("*.yaml"))


def figures(root: Path) -> dict[str, Any]:
    """Everything that can be counted without running anything."""
    package, files = root / "src/unseen", source_files(root)
    lines = {file.relative_to(package): code_lines(file) for file in files}
    rooms = Counter[str]()
    for file, number in lines.items():
        rooms[file.parts[0] if len(file.parts) > 1 else "(top level)"] += number
    total = sum(lines.values())
    alone = sum(map(code_lines, single_importer(root))) / total
    recipes = [file.read_text(encoding="utf-8") for file in _recipes(root)]
    short = sum(len(re.findall(r"^\s*[^\s#]", text, re.MULTILINE)) <= FEW for text in recipes)
    lengths = [n for file in files for n in function_lengths(file).values()]
    settings = [number for file, number in lines.items() if file.parts[0] == "settings"]
    return {
        **counts(root),
        "code lines per file, median": statistics.median(lines.values()),
        "code lines in modules with one importer": f"{alone:.0%}",
        f"recipes with at most {FEW} lines of settings": short,
        "lines of a function, median / max": f"{statistics.median(lengths):g} / {max(lengths)}",
        "settings machinery, code lines": f"{sum(settings)} in {len(settings)} files",
        **{f"code lines in {room}": number for room, number in rooms.most_common()},
    }


def table(names: list[str], columns: list[dict[str, Any]]) -> str:
    """Markdown: a row for each figure, a column for each tree, and the budget."""
    rows = dict.fromkeys(name for column in columns for name in column)
    lines = [["figure", *names, "budget"], ["---", *("---:" for _ in names), "---:"]]
    for name in rows:
        found = [column.get(name, "–") for column in columns]
        lines.append([name, *found, BUDGETS.get(name, "")])
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in ln] for ln in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("roots", nargs="*", type=Path, default=[HERE], metavar="ROOT")
    parser.add_argument("--trace", action="store_true", help="run commands, about a minute a tree")
    chosen = parser.parse_args()
    roots = [root.resolve() for root in chosen.roots]
    columns = [figures(root) for root in roots]
    if chosen.trace:
        from tests.house_trace import trace  # needs torch

        columns = [column | trace(root) for root, column in zip(roots, columns, strict=True)]
    print(table([root.name for root in roots], columns))


if __name__ == "__main__":
    main()
