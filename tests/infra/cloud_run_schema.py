"""JSON Schema from Google's discovery document of the Cloud Run Admin API, which google-api-python-client carries."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tests.infra.tools import in_infra_tools

WHERE = "import googleapiclient, os; print(os.path.dirname(googleapiclient.__file__))"


@functools.cache
def document(name="run.v1.json"):
    """A discovery document."""
    package = Path(in_infra_tools(WHERE).strip())
    return json.loads((package / "discovery_cache/documents" / name).read_text())


def schema(root):
    """The JSON Schema of one resource; members that the document does not know are errors, as they are to the API."""
    definitions = {name: _closed(body) for name, body in document()["schemas"].items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": f"#/$defs/{root}", "$defs": definitions}


def _closed(body):
    made = {}
    for name, value in body.items():
        match name:
            case "$ref":
                made["$ref"] = f"#/$defs/{value}"
            case "type":
                made["type"] = value if value != "any" else ["object", "array", "string", "number", "boolean", "null"]
            case "properties":
                made["properties"] = {member: _closed(of) for member, of in value.items()}
                made.setdefault("additionalProperties", False)
            case "items" | "additionalProperties":
                made[name] = _closed(value)
            case "enum" | "pattern":
                made[name] = value
    return made
