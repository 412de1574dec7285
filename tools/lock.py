"""Write the lock files from what the running environment holds; knows nothing of package indexes.

Run with `make lock`, in an environment that has the dev extra. What only the torch extra needs goes
to a second file: it is heavy, and only tests use it.
"""

from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = "rtscv-mlops"

# A distribution and one of its extras; "" stands for no extra.
Node = tuple[str, str]


def needs(node: Node) -> set[Node]:
    """What this distribution, with this extra, asks for on this machine."""
    name, extra = node
    nodes: set[Node] = set()
    for requirement in map(Requirement, requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            child = canonicalize_name(requirement.name)
            nodes |= {(child, wanted) for wanted in ("", *requirement.extras)}
    return nodes


def pins(start: set[Node]) -> dict[str, str]:
    """Name and version of `start` and all that it needs, directly or not."""
    seen: set[Node] = set()
    waiting = set(start)
    while waiting:
        node = waiting.pop()
        seen.add(node)
        waiting |= needs(node) - seen
    # A local part such as `+cpu` names a build that other machines may not have.
    return {name: version(name).partition("+")[0] for name in sorted({name for name, _ in seen})}


def write(file_name: str, locked: dict[str, str]) -> None:
    lines = [f"{name}=={pin}\n" for name, pin in locked.items()]
    (ROOT / file_name).write_text("".join(lines))
    print(f"{file_name}: {len(lines)} pins")


def main() -> None:
    torch = needs((PROJECT, "torch")) - needs((PROJECT, ""))
    light = pins(needs((PROJECT, "dev")) - torch)
    heavy = {name: pin for name, pin in pins(torch).items() if name not in light}
    write("requirements.lock", light)
    write("requirements-torch.lock", heavy)


if __name__ == "__main__":
    main()
