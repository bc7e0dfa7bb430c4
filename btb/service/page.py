"""The page under `/docs`: the API as one HTML table, with nothing loaded from elsewhere."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td, th { border-top: 1px solid #ccc; padding: .5rem; text-align: left; vertical-align: top }
code, pre { font: 13px/1.4 ui-monospace, monospace; margin: 0; white-space: pre-wrap }
"""


def docs_page(openapi: Mapping[str, Any]) -> str:
    """Return the page for an OpenAPI document: each address, what it does, what it takes."""
    info = openapi["info"]
    rows = "\n".join(_rows(openapi))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])} API</title>
<style>{STYLE}</style></head><body>
<h1>{escape(info["title"])} {escape(info["version"])}</h1>
<p>{escape(info.get("summary", ""))} The whole contract, for programs, is
<a href="/openapi.json">/openapi.json</a>.</p>
<table><thead><tr><th>Address</th><th>What it does</th><th>Takes</th><th>Example</th></tr></thead>
<tbody>
{rows}
</tbody></table></body></html>
"""


def _rows(openapi: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            body = _body(operation, openapi)
            cells = (
                f"<code>{method.upper()} {escape(path)}</code>",
                escape(operation.get("description", "")),
                "<br>".join(_takes(operation, body)) or "nothing",
                f"<pre>{escape(_example(body))}</pre>",
            )
            yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _takes(operation: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    for one in operation.get("parameters", []):
        yield f"<code>{escape(one['name'])}</code> in the {escape(one['in'])}"
    needed = body.get("required", [])
    for name in body.get("properties", {}):
        yield f"<code>{escape(name)}</code>{', needed' if name in needed else ''}"


def _example(body: Mapping[str, Any]) -> str:
    examples = body.get("examples", [])
    return json.dumps(examples[0], indent=1) if examples else ""


def _body(operation: Mapping[str, Any], openapi: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a request body, the first where there are several; empty for none."""
    content = operation.get("requestBody", {}).get("content", {})
    schema: Mapping[str, Any] = content.get("application/json", {}).get("schema", {})
    for several in ("anyOf", "oneOf"):
        schema = schema.get(several, [schema])[0]
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = openapi["components"]["schemas"].get(name, schema)
    return found
