"""The site of the documents: pages that come from elsewhere, and links that leave the folder.

`make docs` builds it by mkdocs, which calls the two hooks below. `python -m tools.docs` writes
docs/cli.md from the commands themselves.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
"""Pages of the site that are files of the repository's own folder."""

LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#:]+)(?P<anchor>#[^)]*)?\)")
"""A link or picture of Markdown whose target is a file."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in the folder of documents."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        text = as_on_site((ROOT / source).read_text(), ROOT)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links that leave the folder of documents."""
    return as_on_site(markdown, DOCS)


def as_on_site(text: str, folder: Path) -> str:
    """Return a text of a folder with links as on the site; of those that lead nowhere, the text."""
    pages = {ROOT / source: page for page, source in PAGES.items()}

    def turned(link: re.Match[str]) -> str:
        file = (folder / link["target"]).resolve()
        if not (file in pages or file.is_relative_to(DOCS)):
            return link["text"]
        target = pages.get(file) or file.relative_to(DOCS).as_posix()
        return f"[{link['text']}]({target}{link['anchor'] or ''})"

    return LINK.sub(turned, text)


def commands() -> str:
    """Return the page of all commands, from their own help."""
    import typer
    from typer.cli import get_docs_for_click

    from rtscv_mlops.cli.commands import app

    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="rtscv-mlops")
    text = text.replace("&#x27;", "'").replace("&quot;", '"').rstrip() + "\n"
    return "# Commands\n" + text.partition("\n")[2]


def main() -> None:
    (DOCS / "cli.md").write_text(commands())


if __name__ == "__main__":
    main()
