"""infra/terraform as python-hcl2 reads it."""

from __future__ import annotations

import functools
import json
import re

from tests.infra.tools import INFRA, in_infra_tools

TERRAFORM = INFRA / "terraform"
PARSE = """
import hcl2, json, pathlib, sys
print(json.dumps({path.name: hcl2.load(path.open()) for path in map(pathlib.Path, sys.argv[1:])}))
"""


@functools.cache
def parsed():
    """What each file of the module holds, by its name; the example too."""
    paths = [*sorted(TERRAFORM.glob("*.tf")), TERRAFORM / "terraform.tfvars.example"]
    return _plain(json.loads(in_infra_tools(PARSE, *map(str, paths))))


def _plain(value):
    """Without the marks of the parser: quotes around strings, and what lies between two underscores."""
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items() if not name.startswith("__")}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value[1:-1] if isinstance(value, str) and value[:1] == value[-1:] == '"' else value


def blocks(kind):
    """The bodies of all blocks of a kind, such as variable or resource."""
    return [body for name, file in parsed().items() if name.endswith(".tf") for body in file.get(kind, [])]


def variables():
    return {name: body for block in blocks("variable") for name, body in block.items()}


def resource(type_, name):
    (body,) = [found[type_][name] for found in blocks("resource") if name in found.get(type_, {})]
    return body


def text_of_module():
    """All files without their comments."""
    text = "\n".join(path.read_text() for path in sorted(TERRAFORM.glob("*.tf")))
    return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


def dynamic(body, name):
    """The content of the dynamic blocks of a name within a body."""
    return [block[name]["content"][0] for block in body.get("dynamic", []) if name in block]
