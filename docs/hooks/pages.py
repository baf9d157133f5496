"""Pages of the site that are made, not typed: the command line's reference and the gallery.

MkDocs calls `on_files` before it builds (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import ast
import html
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent.parent
GALLERY = (
    "photograph",
    "scan",
    "enlarge",
    "microscopy",
    "astronomy",
    "own_pictures",
    "settings",
)  # scripts in examples/
DESCRIBED = {
    "photograph-shaken": "A cat, shaken, restored, and the truth",
    "photograph-shaken-near": "The same from near",
    "photograph-focus": "A cup, out of focus, restored, and the truth",
    "photograph-night": "A rocket at night, noisy, denoised, and the truth",
    "scan-whole": "A scratched scan, the mask made by thresholds, and the restored picture",
    "scan-near": "The same from near, with the truth",
    "enlarge-by-2": "A portrait enlarged twice: small, interpolated, by slir, and the truth",
    "enlarge-by-2-near": "The same from near",
    "enlarge-by-3": "A cup enlarged three times: small, interpolated, by slir, and the truth",
    "enlarge-by-3-near": "The same from near",
    "microscopy-whole": "Filaments as the camera saw them, restored, and the truth",
    "microscopy-near": "From near: camera, denoised, deblurred, Richardson–Lucy, and the truth",
    "astronomy-whole": "Galaxies as the telescope saw them, restored, and the truth",
    "astronomy-near": "The same from near",
    "own_pictures-whole": "A page out of focus, by the shipped model, by one fitted to six pages, and the truth",
    "own_pictures-near": "The same from near",
    "settings-denoise": "Noisy; denoised with half of the true sigma, the true one, and twice of it",
    "settings-deblur": "Blurred; deblurred with a third of the true sigma, the true one, and three times of it",
    "settings-psf": "Blurred by a disk of radius 2.5; deblurred as if it were 1.8, 2.5 and 3.2",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages to those in docs/."""
    pages = {"cli.md": command_line(), "gallery/index.md": overview()}
    pages |= {f"gallery/{name}.md": example(name) for name in GALLERY}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def command_line() -> str:
    """Every command with its arguments and options, from the commands themselves."""
    command = [sys.executable, "-m", "typer", "slir.cli.app", "utils", "docs", "--name", "slir"]
    text = subprocess.run([*command, "--title", "Command line"], capture_output=True, check=True).stdout.decode()
    text = text.replace("$ slir", "slir").replace("```console", "```text")
    return whole_summaries(shown_examples(text))


def shown_examples(text: str) -> str:
    """`Example: slir …` and the like, one command a line, as a block to copy."""

    def block(found: re.Match[str]) -> str:
        commands = [html.unescape(line.strip()) for line in found[1].strip().splitlines()]
        return "\n".join(["```sh", *commands, "```", ""])

    return re.sub(r"^Examples?:\s+((?:slir .*(?:\n|$))+)", block, text, flags=re.MULTILINE)


def whole_summaries(text: str) -> str:
    """Lists of commands with links, and with the first paragraph of their help, which typer cuts short."""
    first = dict(re.findall(r"^#+ `slir ([\w ]+)`\n\n(.+)$", text, flags=re.MULTILINE))
    parts = re.split(r"^(#+ `slir(?: [\w ]+)?`)$", text, flags=re.MULTILINE)  # text, heading, text, heading, ...
    for place in range(0, len(parts), 2):
        own = "" if place == 0 else parts[place - 1].split("`")[1].removeprefix("slir").strip() + " "
        before, listed, commands = parts[place].partition("**Commands**:")
        for name in re.findall(r"^\* `([\w-]+)`: ", commands, flags=re.MULTILINE):
            path = f"{own}{name}".strip()
            line = f"* [`slir {path}`](#slir-{path.replace(' ', '-')}): {first[path]}"
            commands = re.sub(rf"^\* `{name}`: .*$", lambda _, line=line: line, commands, flags=re.MULTILINE)
        parts[place] = before + listed + commands
    return "".join(parts)


def overview() -> str:
    """The gallery's first page: a figure and a link for each script."""
    parts = [
        "# Gallery",
        "Each of these is a script in `examples/` that degrades a picture, restores it and measures what was gained. "
        "No model was learnt from any of the pictures. `make gallery` makes the figures anew; `python "
        "examples/photograph.py --out DIR` runs one of them.",
    ]
    for name in GALLERY:
        first = figures(name)[0]
        parts += [f"## [{title(name)}]({name}.md)", picture(first), summary(name)]
    return "\n\n".join(parts) + "\n"


def example(name: str) -> str:
    """A script as a page: its story, figures, what it printed, and the code."""
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    told = (ROOT / "docs" / "images" / f"{name}.txt").read_text(encoding="utf-8")
    story = about(name).split("\n", 1)[1].strip()
    parts = [f"# {title(name)}", story, *(picture(path) for path in figures(name)), "It prints:"]
    parts += [f"```text\n{told}```", f"`examples/{name}.py`:", f"```python\n{code}```"]
    return "\n\n".join(parts) + "\n"


def about(name: str) -> str:
    """The docstring of a script."""
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(code)) or name


def title(name: str) -> str:
    return about(name).split("\n", 1)[0].rstrip(".")


def summary(name: str) -> str:
    """The first paragraph of the story."""
    return about(name).split("\n\n")[1]


def figures(name: str) -> list[Path]:
    """Those that `make gallery` has left in docs/images, in the order of DESCRIBED."""
    order = list(DESCRIBED)
    found = (ROOT / "docs" / "images").glob(f"{name}-*.jpg")
    return sorted(found, key=lambda path: order.index(path.stem))


def picture(path: Path) -> str:
    text = DESCRIBED[path.stem]
    return f"![{text}](../images/{path.name})\n\n*{text}.*"
