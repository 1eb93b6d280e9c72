"""One table in every format: numbers at full precision, names that break nothing, whole files."""

import csv
import io
import re
from typing import Any

import pytest
from rich.console import Console
from tests.made_results import made_result

from unseen.errors import UnseenError
from unseen.reports.formats import (
    PREDICTIONS,
    PredictedColumns,
    PredictedImage,
    to_csv,
    to_latex,
    to_markdown,
    write_tables,
)
from unseen.reports.tables import Expected, Table, build_tables
from unseen.reports.terminal import show_run, show_tables, to_rich
from unseen.reports.text import words

HOSTILE = '[*x|y_&%#$~^\\{},"\n\x1b[31m✓é'


def made_table(
    methods: tuple[str, ...], domains: tuple[str, ...], lead: float = 0.0, seeds: int = 3
) -> Table:
    """50 % over three seeds, 45, 50 and 55; each method leads the one before."""
    runs = [
        made_result(method, {domain: 0.45 + 0.05 * seed + lead * place}, seed=seed)
        for place, method in enumerate(methods)
        for domain in domains
        for seed in range(seeds)
    ]
    return build_tables(runs, "source")[0]


@pytest.fixture
def table() -> Table:
    """45 and 50 % against 46.01 and 51.01 %: the second is always a point ahead."""
    return made_table(("aggregate", "dmg"), ("art_painting",), 0.0101, seeds=2)


def on_terminal(table: Table, width: int = 100, **options: Any) -> str:
    console = Console(width=width, file=io.StringIO(), **options)
    console.print(to_rich(table, width))
    return console.file.getvalue()  # type: ignore[attr-defined]


def records(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(table), newline="")))


def test_csv_has_every_number_at_full_precision(table: Table) -> None:
    rows = records(table)
    assert [(row["method"], row["quantity"], row["column"]) for row in rows] == [
        ("aggregate", "accuracy", "art_painting"),
        ("aggregate", "overall", "overall"),
        ("dmg", "accuracy", "art_painting"),
        ("dmg", "overall", "overall"),
        ("dmg", "difference", "difference to aggregate"),
        ("largest class", "accuracy", "art_painting"),
        ("largest class", "overall", "overall"),
    ]
    dmg = rows[2]
    assert float(dmg["mean"]) == pytest.approx(48.51, abs=1e-12)
    assert float(dmg["half_width"]) == pytest.approx(31.765512, abs=1e-6)
    about = ("n", "planned", "rule", "view", "metric")
    assert [dmg[key] for key in about] == ["2", "2", "source", "out_of_domain", "accuracy"]
    runs = [made_result("a", {"u": 0.5}), made_result("a", {"v": 0.5}, seed=1)]
    first, _, overall, *_ = records(build_tables(runs, "source")[0])
    place = ("mean", "half_width", "n", "planned")
    assert [[row[key] for key in place] for row in (first, overall)] == [
        *(["50.0", "", "1", "2"], ["", "", "0", "2"])
    ]


def test_markdown_in_full(table: Table) -> None:
    assert to_markdown(table) == (
        "### Out-of-domain accuracy (%): pacs, resnet18\n"
        "\n"
        "| method        |    art_painting |         overall | difference to aggregate |\n"
        "| ------------- | --------------: | --------------: | ----------------------: |\n"
        "| aggregate     |     47.5 ± 31.8 |     47.5 ± 31.8 |                         |\n"
        "| dmg           | **48.5 ± 31.8** | **48.5 ± 31.8** |          **+1.0 ± 0.0** |\n"
        "| largest class |           100.0 |           100.0 |                         |\n"
        "\n"
        "- Selection rule source: best mean validation accuracy over the training domains, "
        "lowest validation loss on ties.\n"
        "- Images of the unseen domain, which names the column.\n"
        "- Percent; mean ± 95 % t-interval over seeds 0, 1.\n"
        "- Largest class: what always answering with a domain's most frequent class would get, "
        "whatever the image.\n"
        "- Difference to aggregate: of the overall, in percentage points, paired by seed.\n"
        "- Bold: ahead of every other row beyond noise (the paired 95 % interval is above zero).\n"
    )
    expected = Expected(unseen_domains=(("u",), ("v",)))
    short = build_tables([made_result("dmg", {"u": 0.5})], "source", expected)[0]
    assert to_markdown(short).splitlines()[2:6] == [
        "| method        |     u |   v | overall |",
        "| ------------- | ----: | --: | ------: |",
        "| dmg           |  50.0 |   – |       – |",
        "| largest class | 100.0 |   – |       – |",
    ]


def test_latex_in_full(table: Table) -> None:
    text = to_latex(table)
    assert text.startswith(
        "% needs \\usepackage{booktabs}\n\\begin{table}\n\\centering\n\\caption{"
    )
    assert r"\caption{Out-of-domain accuracy (\%): pacs, resnet18. Selection rule source: " in text
    assert r"mean $\pm$ 95 \% t-interval over seeds 0, 1." in text
    assert text[text.index(r"\begin{tabular}") :] == (
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "method & art\\_painting & overall & difference to aggregate \\\\\n"
        "\\midrule\n"
        "aggregate & 47.5 $\\pm$ 31.8 & 47.5 $\\pm$ 31.8 &  \\\\\n"
        "dmg & \\textbf{48.5 $\\pm$ 31.8} & \\textbf{48.5 $\\pm$ 31.8} & "
        "\\textbf{+1.0 $\\pm$ 0.0} \\\\\n"
        "largest class & 100.0 & 100.0 &  \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )
    worse = made_table(("aggregate", "dmg"), ("u",), -0.0101, seeds=2)
    assert r"& $-$1.0 $\pm$ 0.0 \\" in to_latex(worse)


def test_hostile_names_break_no_format() -> None:
    hostile_table = made_table(("aggregate", HOSTILE), (HOSTILE,), seeds=1)
    rows = records(hostile_table)
    assert rows[0]["column"] == HOSTILE
    assert [row["method"] for row in rows[2:5]] == [HOSTILE] * 3
    pipes = [line for line in to_markdown(hostile_table).splitlines() if line.startswith("|")]
    assert len(pipes) == 5
    assert {line.replace(r"\|", "").count("|") for line in pipes} == {5}
    assert r"\[\*x\|y\_\&%\#\$\~^\\{},\"  \[31m✓é".replace('\\"', '"') in pipes[0]
    lines = [line for line in to_latex(hostile_table).splitlines() if line.endswith(r"\\")]
    assert len(lines) == 4
    assert lines[-2].startswith(
        r"{[}{*}x\textbar{}y\_\&\%\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}\{\},"
        '"  {[}31m✓é & '
    )
    assert {line.replace(r"\&", "").count("&") for line in lines} == {3}
    printed = on_terminal(hostile_table)
    assert "[*x|y_&%#$~^" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t=", "\r="])
def test_no_spreadsheet_takes_a_name_for_a_formula(first: str) -> None:
    name = f"{first}cmd|' /C calc'!A1"
    rows = records(made_table(("aggregate", name), (name,), -0.01, seeds=1))
    texts = {cell for row in rows for key, cell in row.items() if key != "mean"}
    safe = "'" + name.replace("\r", " ")
    assert safe in texts
    assert not [text for text in texts if text.lstrip().startswith(tuple("=+-@"))]
    assert any(row["mean"].startswith("-") for row in rows), "numbers are left alone"
    shown = [PredictedImage(name, [(name, 0.75)], {name: [(name, 0.75)]}, 0.1)]
    columns = PredictedColumns(1, [name], 20, 20)
    header, line = csv.reader(io.StringIO("".join(PREDICTIONS["csv"](shown, columns)), newline=""))
    assert header[3:5] == [f"{safe}_class", f"{safe}_probability"]
    assert line == [safe, safe, "0.750000", safe, "0.750000", "0.100000"]


def test_names_do_not_steer_a_terminal() -> None:
    """A file or a recipe may be called by an escape code."""
    name = "\x1b]0;title\x07\x1b[2J"
    file = io.StringIO()
    run = made_result("dmg", {name: 0.5}, recipe=name, dataset=name)
    for terminal in (True, False):
        show_run(run, Console(file=file, force_terminal=terminal, color_system=None))
        show_tables(build_tables([run], "source"), Console(file=file, force_terminal=terminal))
    shown = [PredictedImage(name, [(name, 0.75)], {name: [(name, 0.75)]}, 0.1)]
    table = "".join(PREDICTIONS["table"](shown, PredictedColumns(1, [name], 20, 20)))
    assert "\x07" not in file.getvalue() + table
    assert "\x1b[2J" not in file.getvalue() + table


def test_a_terminal_shows_bold_numbers_and_the_rule(table: Table) -> None:
    printed = on_terminal(table, force_terminal=True, no_color=True)
    in_bold = " ".join(re.findall(r"\x1b\[1m([^\x1b]*)", printed))
    assert re.findall(r"[\d.+]+ ±", in_bold) == ["48.5 ±", "48.5 ±", "+1.0 ±"]
    assert "Selection rule source" in printed


PACS = ("art_painting", "cartoon", "photo", "sketch")
DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("domains", [PACS, DOMAINNET])
def test_a_row_for_each_method_has_overall_and_difference(
    domains: tuple[str, ...], width: int
) -> None:
    """Where there is no room for all domains, some of them move below."""
    methods = ("aggregate_views", "multihead", "dmg")
    lines = on_terminal(made_table(methods, domains), width).splitlines()
    assert max(map(len, lines)) <= width
    words = [line.split() or [""] for line in lines]
    headers = [place for place, line in enumerate(words) if line[0] == "method"]
    assert {"overall", "difference"} < set(words[headers[0]])
    assert len(headers) == (2 if domains == DOMAINNET or width == 80 else 1)
    names = [line[0] for line in words[headers[0] : (*headers, None)[1]]]
    assert all(names.count(method) == 1 for method in methods)


def test_notes_stand_once_and_elsewhere_than_a_terminal_a_method_is_a_line() -> None:
    runs = [made_result("dmg", {"sketch": 0.5, "photo": 0.6}, seed=seed) for seed in (0, 1)]
    for options in ({"force_terminal": True}, {}):
        console = Console(width=40, file=io.StringIO(), color_system=None, **options)
        show_tables(build_tables(runs, "source"), console)
        shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
        assert shown.count("Percent; mean ±") == shown.count("whatever the image") == 1
        assert shown.count("is not told the domain") == 1
    assert "| dmg | 55.0 ± 0.0 | 55.0 ± 0.0 |" in shown


LABS = ("lab_cellavision", "lab_of_the_university_hospital", "Aufnahmegeraetehersteller", "ward-7")


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize(
    "methods", [("aggregate", "dmg"), ("aggregate", "dmg overlap_weight=0.05")]
)
def test_names_break_at_words_and_numbers_never(width: int, methods: tuple[str, ...]) -> None:
    """They used to be broken wherever a line was full: `lab_cellavisio` / `n`."""
    printed = on_terminal(made_table(methods, LABS), width).partition("Selection rule")[0]
    assert max(map(len, printed.splitlines())) <= width
    names = [words(name) for name in (*LABS, *methods, "difference", "overall method")]
    names.append(words("largest class"))
    pieces = {
        "".join(parts[start:end]).strip()
        for parts in names
        for start in range(len(parts))
        for end in range(start + 1, len(parts) + 1)
    }
    body = printed.partition("resnet18")[2].replace("─", " ")
    for word in body.split():
        number = re.fullmatch(r"[+-]?\d+\.\d(±\d+\.\d)?|±\d+\.\d|±", word)
        assert number or "…" in word or word in pieces
    assert body.count("50.0") == len(methods) * (len(LABS) + 1)
    assert "cellavision" in body


def test_what_was_measured_of_one_run_fits_eighty_columns() -> None:
    run = made_result("dmg", {LABS[1]: 0.5}, metric="balanced")
    for terminal in (True, False):
        file = io.StringIO()
        show_run(run, Console(width=80, file=file, force_terminal=terminal, color_system=None))
        lines = file.getvalue().splitlines()
        assert "dmg on pacs (resnet18, seed 0), selection: source, step 200" in lines[0]
        row = next(line for line in lines if "out of domain" in line)
        assert re.findall(r"[\d.]+%", row) == ["50.0%", "50.0%", "100.0%", "0.0%"]
        assert (max(map(len, lines)) <= 80) == terminal
        assert (LABS[1] in row) != terminal  # a line that other programs can search


def test_files_are_whole_and_named_by_view(table: Table, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "new" / "comparison"
    tables = build_tables([made_result("dmg", {"sketch": 0.5})], "last")
    written = write_tables(tables, folder)
    views = ("out_of_domain", "in_domain", "known_domain")
    assert [path.name for path in written] == [
        f"{view}{suffix}" for view in views for suffix in (".csv", ".md", ".tex")
    ]
    write_tables([table], folder)
    assert written[1].read_text(encoding="utf-8") == to_markdown(table)
    assert written[0].read_bytes() == to_csv(table).encode()

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_tables(tables, folder)
    assert written[0].read_bytes() == to_csv(table).encode()
    assert sorted(folder.iterdir()) == sorted(written)
    monkeypatch.undo()
    by_rule = [tables[0], build_tables([made_result("dmg", {"sketch": 0.5})], "source")[0]]
    names = {path.name for path in write_tables(by_rule, tmp_path)}
    assert {"out_of_domain_source.csv", "out_of_domain_last.csv"} <= names
    with pytest.raises(UnseenError, match=r"two tables would be written to 'out_of_domain.csv'"):
        write_tables([tables[0], tables[0]], tmp_path)
