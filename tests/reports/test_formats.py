import csv
import io
import re

import pytest
from rich.console import Console

from unseen.errors import UnseenError
from unseen.reports.formats import to_csv, to_latex, to_markdown, write_tables
from unseen.reports.long_names import words
from unseen.reports.tables import Expected, build_tables
from unseen.reports.terminal import to_rich

HOSTILE = '[*x|y_&%#$~^\\{},"\n\x1b[31m✓é'


@pytest.fixture
def table(make_result):
    values = {"aggregate": (0.60, 0.64), "dmg": (0.5901, 0.6301)}
    return build_tables(
        [
            make_result(method, {"art_painting": value}, seed=seed)
            for method, by_seed in values.items()
            for seed, value in enumerate(by_seed)
        ],
        "source",
    )[0]


@pytest.fixture
def hostile_table(make_result):
    runs = [make_result(method, {HOSTILE: 0.5}) for method in ("aggregate", HOSTILE)]
    return build_tables(runs, "source")[0]


def on_terminal(table, width=100):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_rich(table, width))
    return console.file.getvalue()


def test_csv_has_every_number_at_full_precision(table):
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [(row["method"], row["quantity"], row["column"]) for row in rows] == [
        ("aggregate", "accuracy", "art_painting"),
        ("aggregate", "overall", "overall"),
        ("dmg", "accuracy", "art_painting"),
        ("dmg", "overall", "overall"),
        ("dmg", "difference", "difference to aggregate"),
        ("largest class", "accuracy", "art_painting"),
        ("largest class", "overall", "overall"),
    ]
    assert {row["metric"] for row in rows} == {"accuracy"}
    dmg = rows[2]
    assert float(dmg["mean"]) == pytest.approx(61.01, abs=1e-12)
    assert float(dmg["half_width"]) == pytest.approx(25.412409, abs=1e-6)
    assert (dmg["n"], dmg["planned"], dmg["rule"], dmg["view"]) == (
        "2",
        "2",
        "source",
        "out_of_domain",
    )


def test_csv_leaves_missing_numbers_empty(make_result):
    runs = [make_result("a", {"u": 0.5}), make_result("a", {"v": 0.5}, seed=1)]
    rows = list(csv.DictReader(io.StringIO(to_csv(build_tables(runs, "source")[0]))))
    overall = next(row for row in rows if row["quantity"] == "overall")
    assert (overall["mean"], overall["half_width"], overall["n"]) == ("", "", "0")
    assert (rows[0]["mean"], rows[0]["half_width"], rows[0]["n"]) == ("50.0", "", "1")
    assert rows[0]["planned"] == "2"


def test_markdown_in_full(table):
    assert to_markdown(table) == (
        "### Out-of-domain accuracy (%): pacs, resnet18\n"
        "\n"
        "| method        |    art_painting |         overall | difference to aggregate |\n"
        "| ------------- | --------------: | --------------: | ----------------------: |\n"
        "| aggregate     | **62.0 ± 25.4** | **62.0 ± 25.4** |                         |\n"
        "| dmg           |     61.0 ± 25.4 |     61.0 ± 25.4 |              -1.0 ± 0.0 |\n"
        "| largest class |           100.0 |           100.0 |                         |\n"
        "\n"
        "- Selection rule source: best mean validation accuracy over the training domains, "
        "lowest validation loss on ties.\n"
        "- Images of the unseen domain, which names the column.\n"
        "- Percent; mean ± 95 % t-interval over seeds 0, 1.\n"
        "- Largest class: what always answering with a domain's most frequent class would get, "
        "whatever the image.\n"
        "- Difference to aggregate: of the overall, in percentage points, paired by seed.\n"
    )


def test_markdown_of_a_column_with_a_short_name_and_no_numbers(make_result):
    expected = Expected(unseen_domains=(("u",), ("v",)))
    table = build_tables([make_result("dmg", {"u": 0.5})], "source", expected)[0]
    assert to_markdown(table).splitlines()[2:6] == [
        "| method        |     u |   v | overall |",
        "| ------------- | ----: | --: | ------: |",
        "| dmg           |  50.0 |   – |       – |",
        "| largest class | 100.0 |   – |       – |",
    ]


def test_latex_in_full(table):
    text = to_latex(table)
    assert r"\caption{Out-of-domain accuracy (\%): pacs, resnet18. Selection rule source: " in text
    assert r"mean $\pm$ 95 \% t-interval over seeds 0, 1." in text
    assert text[text.index(r"\begin{tabular}") :] == (
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "method & art\\_painting & overall & difference to aggregate \\\\\n"
        "\\midrule\n"
        "aggregate & \\textbf{62.0 $\\pm$ 25.4} & \\textbf{62.0 $\\pm$ 25.4} &  \\\\\n"
        "dmg & 61.0 $\\pm$ 25.4 & 61.0 $\\pm$ 25.4 & $-$1.0 $\\pm$ 0.0 \\\\\n"
        "largest class & 100.0 & 100.0 &  \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_hostile_names_come_back_from_csv_unchanged(hostile_table):
    rows = list(csv.DictReader(io.StringIO(to_csv(hostile_table), newline="")))
    assert rows[0]["column"] == HOSTILE
    assert [row["method"] for row in rows] == ["aggregate"] * 2 + [HOSTILE] * 3 + [
        "largest class"
    ] * 2


def test_hostile_names_in_markdown(hostile_table):
    lines = to_markdown(hostile_table).splitlines()
    pipes = [line for line in lines if line.startswith("|")]
    assert len(pipes) == 5
    assert {line.replace(r"\|", "").count("|") for line in pipes} == {5}
    assert r"\[\*x\|y\_\&%\#\$\~^\\{},\"  \[31m✓é".replace('\\"', '"') in pipes[0]


def test_hostile_names_in_latex(hostile_table):
    rows = [line for line in to_latex(hostile_table).splitlines() if line.endswith(r"\\")]
    assert len(rows) == 4
    assert rows[-2].startswith(
        r"{[}{*}x\textbar{}y\_\&\%\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}\{\},"
        '"  {[}31m✓é & '
    )
    assert {line.replace(r"\&", "").count("&") for line in rows} == {3}


def test_hostile_names_on_a_terminal(hostile_table):
    printed = on_terminal(hostile_table)
    assert "[*x|y_&%#$~^" in printed
    assert "\x1b" not in printed


def test_a_terminal_shows_bold_numbers_and_the_rule(table):
    rich_table = to_rich(table)
    best, other, largest = rich_table.columns[1]._cells
    assert (best.plain, best.style) == ("62.0 ± 25.4", "bold")
    assert (other.plain, other.style) == ("61.0 ± 25.4", "")
    assert (largest.plain, largest.style) == ("100.0", "")
    assert "Selection rule source" in on_terminal(table)


PACS = ("art_painting", "cartoon", "photo", "sketch")
DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


@pytest.mark.parametrize(
    ("domains", "value"), [(PACS, ["50.0 ± 12.4"]), (DOMAINNET, ["50.0", "±12.4"])]
)
def test_tables_fit_a_hundred_columns(make_result, domains, value):
    runs = [
        make_result(method, {domain: 0.45 + 0.05 * seed}, seed=seed)
        for method in ("aggregate", "multihead", "dmg")
        for domain in domains
        for seed in range(3)
    ]
    lines = on_terminal(build_tables(runs, "source")[0]).splitlines()
    assert max(map(len, lines)) <= 100
    header = next(line for line in lines if line.split()[:1] == ["method"])
    assert header.split() == ["method", *domains, "overall", "to", "aggregate"]
    assert all(any(part in line for line in lines) for part in value)


LABS = ("lab_cellavision", "lab_of_the_university_hospital", "Aufnahmegeraetehersteller", "ward-7")


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize(
    "methods", [("aggregate", "dmg"), ("aggregate", "dmg overlap_weight=0.05")]
)
def test_names_break_at_words_and_numbers_never(make_result, width, methods):
    """They used to be broken wherever a line was full: `lab_cellavisio` / `n`."""
    runs = [
        make_result(method, {domain: 0.45 + 0.05 * seed}, seed=seed)
        for method in methods
        for domain in LABS
        for seed in range(3)
    ]
    printed = on_terminal(build_tables(runs, "source")[0], width).partition("Selection rule")[0]
    assert max(map(len, printed.splitlines())) <= width
    texts = (*LABS, *methods, "difference to aggregate", "overall method", "largest class")
    names = [words(name) for name in texts]
    pieces = {
        "".join(parts[start:end]).strip()
        for parts in names
        for start in range(len(parts))
        for end in range(start + 1, len(parts) + 1)
    }
    body = printed[printed.index("lab_") :].replace("─", " ")
    for word in body.split():
        number = re.fullmatch(r"[+-]?\d+\.\d|±\d+\.\d|±", word)
        assert number or "…" in word or word in pieces
    assert body.count("50.0") == len(methods) * (len(LABS) + 1)
    assert "cellavision" in body


def test_files_are_whole_and_named_by_view(table, make_result, tmp_path):
    folder = tmp_path / "new" / "comparison"
    tables = build_tables([make_result("dmg", {"sketch": 0.5})], "last")
    written = write_tables(tables, folder)
    views = ("out_of_domain", "in_domain", "known_domain")
    assert [path.name for path in written] == [
        f"{view}{suffix}" for view in views for suffix in (".csv", ".md", ".tex")
    ]
    assert sorted(folder.iterdir()) == sorted(written)
    write_tables([table], folder)
    assert written[1].read_text(encoding="utf-8") == to_markdown(table)
    assert written[0].read_bytes() == to_csv(table).encode()


def test_a_failed_write_leaves_the_old_file(table, tmp_path, monkeypatch):
    paths = write_tables([table], tmp_path)
    before = [path.read_bytes() for path in paths]

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_tables([table], tmp_path)
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_tables_of_two_rules_do_not_overwrite_each_other(make_result, tmp_path):
    runs = [make_result("dmg", {"sketch": 0.5})]
    tables = [build_tables(runs, rule)[0] for rule in ("source", "last")]
    names = {path.name for path in write_tables(tables, tmp_path)}
    assert {"out_of_domain_source.csv", "out_of_domain_last.csv"} <= names
    with pytest.raises(UnseenError, match=r"two tables would be written to 'out_of_domain.csv'"):
        write_tables([tables[0], tables[0]], tmp_path)
