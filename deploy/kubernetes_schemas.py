"""Write JSON schemas of Kubernetes' kinds for kubeconform, from the OpenAPI documents in Go modules of Kubernetes.

    python deploy/kubernetes_schemas.py OUTPUT DOCUMENT...

Of a kind in several documents the first one counts. Unknown fields are errors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KINDS = "x-kubernetes-group-version-kind"


def definitions(document: Any) -> dict[str, Any]:
    """Return the types of an OpenAPI document, version 2 or 3."""
    found: dict[str, Any] = document.get("definitions") or document["components"]["schemas"]
    return found


def strict(schema: Any) -> Any:
    """Return a schema without fields that it does not name, whose references are those of one file."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(found.get("$ref"), str):
        found["$ref"] = "#/definitions/" + found["$ref"].rpartition("/")[2]
    if isinstance(found.get("properties"), dict) and "type" in found and "additionalProperties" not in found:
        found["additionalProperties"] = False
    if found.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    return found


def write(output: Path, document: Any) -> None:
    """Write a file for each kind that has none yet, named as kubeconform looks for it: kind-group-version.json."""
    types = definitions(document)
    shared = {name: strict(schema) for name, schema in types.items()}
    for name, schema in types.items():
        for kind in schema.get(KINDS, ()):
            group = kind["group"].partition(".")[0]
            file = output / "-".join(filter(None, (kind["kind"].lower(), group, f"{kind['version']}.json")))
            if len(schema[KINDS]) == 1 and not file.exists():
                file.write_text(json.dumps({"$ref": f"#/definitions/{name}", "definitions": shared}))


def main() -> None:
    """Read the command line and write the files."""
    output, *documents = map(Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    for document in documents:
        write(output, json.loads(document.read_text()))


if __name__ == "__main__":
    main()
