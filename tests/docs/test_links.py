"""Links between the Markdown files lead somewhere, in the repository as it is read."""

from pathlib import Path

import pytest
from tests.docs.markdown_files import FILES, ROOT, anchors, links


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    broken = []
    for link in links(file):
        path, _, anchor = link.partition("#")
        target = file if not path else file.parent / path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
