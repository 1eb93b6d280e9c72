"""Writes what is generated: tables of settings, the page of commands, results, and the types of
settings.

make docs
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.generators import typed_settings  # noqa: E402
from docs.generators.command_page import command_page  # noqa: E402
from docs.generators.published_page import published_pages  # noqa: E402
from docs.generators.result_tables import result_pages  # noqa: E402
from docs.generators.setting_tables import method_pages, methods_page, settings_page  # noqa: E402

DOCS = ROOT / "docs"


def generated_pages() -> dict[Path, str]:
    """The text of every page that is generated in whole or in part."""
    methods, settings = DOCS / "methods.md", DOCS / "settings.md"
    return {
        **method_pages(DOCS / "methods"),
        **result_pages(ROOT),
        **published_pages(DOCS),
        methods: methods_page(methods.read_text(encoding="utf-8"), DOCS / "methods"),
        settings: settings_page(settings.read_text(encoding="utf-8")),
        DOCS / "commands.md": command_page(),
        ROOT / typed_settings.FILE: typed_settings.typed_settings(),
    }


def main() -> None:
    for path, text in generated_pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
