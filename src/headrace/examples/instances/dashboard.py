"""A page that shows the instances and the store, and reads both again every second."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

PAGE = """<!doctype html>
<title>Instances</title>
<style>body { font-family: sans-serif; margin: 2em } td { padding-right: 2em }</style>
<h1>Instances</h1>
<table id="shards"></table>
<h1>key-counts</h1>
<table id="counts"></table>
<script>
const fill = (id, names, rows) => {
  const table = document.getElementById(id);
  table.replaceChildren();
  for (const cells of [names, ...rows]) {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
};
const read = async (path) => (await (await fetch(path)).json()).data;
const show = async () => {
  try {
    const shards = await read("/v1/metadata");
    const names = Object.keys(shards[0] ?? {});
    fill("shards", names, shards.map((each) => names.map((name) => JSON.stringify(each[name]))));
    const found = await read("/v1/stores/key-counts/entries");
    fill("counts", ["key", "count"], found.map((each) => [each.key, each.value]));
  } finally {
    setTimeout(show, 1000);
  }
};
show();
</script>
"""


def add_routes(web: FastAPI) -> None:
    """Add the page to the routes of an instance."""

    @web.get("/dashboard", include_in_schema=False)
    async def dashboard() -> HTMLResponse:
        return HTMLResponse(PAGE)
