"""The page at ``/docs``: it shows ``/openapi.json``, and loads nothing from elsewhere."""

from __future__ import annotations

DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Headrace</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre, input { font-family: ui-monospace, monospace; font-size: 13px; }
details { border: 1px solid #8884; border-radius: 6px; margin: .5rem 0; padding: .5rem .8rem; }
summary { cursor: pointer; }
summary b { display: inline-block; width: 3.5rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .15rem .6rem .15rem 0; vertical-align: top; }
pre { background: #8882; padding: .6rem; overflow: auto; max-height: 30rem; }
textarea { width: 100%; min-height: 6rem; font-family: ui-monospace, monospace; }
</style></head><body>
<h1>Headrace</h1>
<p><a href="/openapi.json">openapi.json</a></p>
<p><label>Token <input id="token" type="password" autocomplete="off"></label></p>
<main id="routes"></main>
<script>
"use strict";
const make = (tag, text, parent) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
};
const ask = async (method, path, inputs, body, shown) => {
  const query = new URLSearchParams();
  let url = path;
  for (const [parameter, input] of inputs) {
    if (parameter.in === "path")
      url = url.replace("{" + parameter.name + "}", encodeURIComponent(input.value));
    else if (parameter.in === "query" && input.value !== "") query.set(parameter.name, input.value);
  }
  const headers = {};
  const token = document.getElementById("token").value;
  if (token) headers.Authorization = "Bearer " + token;
  if (body) headers["Content-Type"] = "application/json";
  const text = query.toString();
  const options = { method, headers, body: body ? body.value : undefined };
  const answer = await fetch(url + (text ? "?" + text : ""), options);
  const lines = [answer.status + " " + answer.statusText];
  answer.headers.forEach((value, name) => lines.push(name + ": " + value));
  shown.textContent = lines.join("\\n") + "\\n\\n" + await answer.text();
};
const show = (path, method, operation) => {
  const box = make("details", undefined, document.getElementById("routes"));
  const title = make("summary", undefined, box);
  make("b", method.toUpperCase(), title);
  make("code", path, title);
  make("span", " " + (operation.summary || ""), title);
  make("p", operation.description || "", box);
  const inputs = [];
  const table = make("table", undefined, box);
  for (const parameter of operation.parameters || []) {
    const row = make("tr", undefined, table);
    make("code", parameter.name, make("td", undefined, row));
    const input = make("input", undefined, make("td", undefined, row));
    make("td", parameter.description || "", row);
    inputs.push([parameter, input]);
  }
  const body = operation.requestBody ? make("textarea", undefined, box) : null;
  const answers = make("table", undefined, box);
  for (const [status, answer] of Object.entries(operation.responses || {})) {
    const row = make("tr", undefined, answers);
    make("td", status, row);
    make("td", answer.description, row);
  }
  if (path.endsWith("/changes")) return;
  const button = make("button", "Send", box);
  const shown = make("pre", undefined, box);
  button.onclick = () => ask(method.toUpperCase(), path, inputs, body, shown)
    .catch((error) => { shown.textContent = String(error); });
};
fetch("/openapi.json").then((answer) => answer.json()).then((schema) => {
  for (const [path, methods] of Object.entries(schema.paths))
    for (const [method, operation] of Object.entries(methods)) show(path, method, operation);
});
</script></body></html>
"""
"""The page, as HTML."""
