"""`headrace describe`, and the pictures of topologies."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest

from headrace import StreamsBuilder, Topology
from headrace.examples.orders.app import app as orders
from headrace.topology.pictures import (
    graphviz_from,
    mermaid_from,
    picture_from,
    svg_from,
)
from headrace.topology.pictures.layout import Layout, lay_out
from tests.cli.conftest import Cli

SVG = "{http://www.w3.org/2000/svg}"


def test_the_text_is_kafkas(cli: Cli, program: str) -> None:
    done = cli("describe", program)

    assert done.code == 0
    assert done.out.startswith("Topologies:\n   Sub-topology: 0\n    Source: KSTREAM-SOURCE")


def test_the_extended_text_has_lines_serdes_and_stores(cli: Cli, program: str) -> None:
    done = cli("describe", program, "--extended")

    assert "KSTREAM-SOURCE-0000000000 (topics: [lines])  # words.py:6, key string" in done.out
    assert "counts-repartition-source (topics: [counts-repartition])  # words.py:7" in done.out
    assert "counts: timestamped key value, key string, value long" in done.out
    assert "changelog word-count-counts-changelog" in done.out


def test_a_topology_without_serdes_can_be_described(cli: Cli, folder: Path) -> None:
    (folder / "bare.py").write_text(
        "from headrace import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in').map(lambda k, v: (v, k)).to('out')\n"
    )

    done = cli("describe", "bare.py", "--extended")

    assert done.code == 0
    assert "key ?, value ?" in done.out


def test_settings_decide_what_is_shown(cli: Cli, folder: Path) -> None:
    (folder / "two.py").write_text(
        "from headrace import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "s = builder.stream('in', key=str, value=str).select_key(lambda k, v: v, key=str)\n"
        "s.group_by_key().count()\n"
        "s.group_by_key().reduce(lambda a, b: b)\n"
    )

    plain = cli("describe", "two.py")
    merged = cli("describe", "two.py", "-s", "topology.optimization=all")

    assert (plain.out.count("Sub-topology"), merged.out.count("Sub-topology")) == (3, 2)


def test_json_has_the_same_as_data(cli: Cli, program: str) -> None:
    by_format = cli("describe", program, "--format", "json")
    by_output = cli("describe", program, "--output", "json")

    assert by_format.out == by_output.out
    nodes = json.loads(by_format.out)["subtopologies"][1]["nodes"]
    assert [node["type"] for node in nodes] == ["source", "processor", "processor", "sink"]
    assert nodes[1]["stores"] == ["counts"]
    assert nodes[1]["origin"] == "words.py:8"


def test_a_picture_can_be_written_to_a_file(cli: Cli, program: str, folder: Path) -> None:
    done = cli("describe", program, "--format", "svg", "-o", "picture.svg")

    assert done.out == "Written to picture.svg.\n"
    assert (folder / "picture.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        ("picture.svg", "<svg"),
        ("PICTURE.SVG", "<svg"),
        ("picture.mmd", "flowchart"),
        ("picture.mermaid", "flowchart"),
        ("picture.dot", "digraph"),
        ("picture.gv", "digraph"),
        ("topology.json", "{"),
        ("topology.txt", "Topologies:"),
        ("topology", "Topologies:"),
    ],
)
def test_a_file_is_written_as_its_name_ends(
    cli: Cli, program: str, folder: Path, file: str, begins: str
) -> None:
    cli("describe", program, "-o", file)

    assert (folder / file).read_text().startswith(begins)


def test_a_format_that_is_named_wins_over_the_end_of_the_file(
    cli: Cli, program: str, folder: Path
) -> None:
    cli("describe", program, "--format", "json", "-o", "topology.txt")

    assert (folder / "topology.txt").read_text().startswith("{")


@pytest.mark.parametrize("ending", [".png", ".pdf", ".jpg"])
def test_a_picture_that_cannot_be_drawn_is_refused(
    cli: Cli, program: str, folder: Path, ending: str
) -> None:
    done = cli("describe", program, "-o", f"picture{ending}")

    assert done.code == 2
    assert done.err == (
        f"Error: A topology cannot be written as {ending!r}. Use a file that ends in "
        ".txt, .mmd, .mermaid, .dot, .gv, .svg, .json; the picture is .svg.\n"
    )
    assert not (folder / f"picture{ending}").exists()


def test_a_file_that_cannot_be_written_is_named(cli: Cli, program: str) -> None:
    done = cli("describe", program, "-o", "no/such/folder.txt")

    assert done.code == 1
    assert "'no/such/folder.txt' cannot be written" in done.err


def test_mermaid_has_boxes_shapes_and_arrows(cli: Cli, program: str) -> None:
    done = cli("describe", program, "-f", "mermaid")

    assert done.out.startswith("flowchart TD\n")
    assert '(["lines"])' in done.out
    assert 'subgraph box1["Sub-topology 1"]' in done.out
    assert '[("counts")]' in done.out
    assert '["KSTREAM-AGGREGATE-0000000002<br/>words.py:8"]' in done.out


@pytest.mark.parametrize("word", ["dot", "graphviz"])
def test_graphviz_has_clusters_shapes_and_arrows(cli: Cli, program: str, word: str) -> None:
    done = cli("describe", program, "-f", word)

    assert done.out.startswith("digraph topology {")
    assert "subgraph cluster_1 {" in done.out
    assert '[label="counts", shape=cylinder];' in done.out
    assert done.out.count("{") == done.out.count("}")


def awkward() -> Topology:
    """A topology with a pattern, a chosen topic, a global table and topics read back."""
    builder = StreamsBuilder()
    builder.global_table("names", key=str, value=str)
    pattern = re.compile(r'a&<b>"\w+"')
    stream = builder.stream(pattern, key=str, value=str)
    stream.to(lambda _k, v, _c: v)
    stream.to("back")
    builder.stream("back", key=str, value=str).filter(lambda _k, v: bool(v)).to("front")
    builder.stream("front", key=str, value=str).to("back-again")
    return builder.build()


def words() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("lines", key=str, value=str)
        .flat_map_values(str.split, value=str)
        .group_by(lambda _, word: word, key=str)
        .count(materialized="counts")
        .to_stream()
        .to("word-counts")
    )
    return builder.build()


TOPOLOGIES = {
    "orders": orders.topology,
    "words": words(),
    "awkward": awkward(),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_picture_shows_every_step_once(name: str) -> None:
    description = TOPOLOGIES[name].describe()
    steps = [node.name for subtopology in description.subtopologies for node in subtopology.nodes]

    drawn = ET.fromstring(svg_from(picture_from(description)))

    labels = [text.text for text in drawn.iter(f"{SVG}text")]
    assert [step for step in steps if labels.count(step) != 1] == []


def test_every_item_of_a_picture_says_what_it_is() -> None:
    drawn = ET.fromstring(svg_from(picture_from(words().describe())))

    titles = [title.text for title in drawn.iter(f"{SVG}title")]
    assert "topic lines" in titles
    assert "store counts" in titles
    assert "processor KSTREAM-AGGREGATE-0000000003" in titles
    assert drawn.attrib["role"] == "img"
    assert drawn.find(f"{SVG}script") is None


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_nothing_overlaps_and_everything_is_inside(name: str) -> None:
    layout = lay_out(picture_from(TOPOLOGIES[name].describe()))
    shown = [at for at in layout.coordinates.values() if at.item is not None]

    overlapping = [
        (a.item, b.item)
        for a, b in combinations(shown, 2)
        if abs(a.x - b.x) < (a.width + b.width) / 2 and abs(a.y - b.y) < (a.height + b.height) / 2
    ]
    assert overlapping == []
    assert all(p.x - p.width / 2 >= 0 and p.x + p.width / 2 <= layout.width for p in shown)
    assert all(p.y - p.height / 2 >= 0 and p.y + p.height / 2 <= layout.height for p in shown)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_boxes_hold_their_own_steps_alone(name: str) -> None:
    layout = lay_out(picture_from(TOPOLOGIES[name].describe()))

    assert _strangers(layout) == []


def _strangers(layout: Layout) -> list[tuple[str, str]]:
    found = []
    for frame in layout.frames:
        number = int(frame.title.rpartition(" ")[2])
        for at in layout.coordinates.values():
            inside = frame.left <= at.x <= frame.right and frame.top <= at.y <= frame.bottom
            if at.item is not None and inside and at.item.box != number:
                found.append((frame.title, at.item.label))
    return found


@pytest.mark.parametrize("name", ["orders", "words"])
def test_records_flow_downwards(name: str) -> None:
    layout = lay_out(picture_from(TOPOLOGIES[name].describe()))

    upwards = [
        arrow for arrow, places in layout.paths if not arrow.uses and places[0].y >= places[-1].y
    ]
    assert upwards == []


def test_names_are_escaped_in_every_language() -> None:
    picture = picture_from(awkward().describe())

    assert "topics like a#amp;#lt;b#gt;#quot;" in mermaid_from(picture)
    assert 'label="topics like a&<b>\\"\\\\w+\\""' in graphviz_from(picture)
    assert ET.fromstring(svg_from(picture)).tag == f"{SVG}svg"


def test_a_notebook_shows_a_picture_and_the_text() -> None:
    bundle = words()._repr_mimebundle_(include=None, exclude=None)

    assert set(bundle) == {"image/svg+xml", "text/plain"}
    assert bundle["text/plain"] == str(words().describe())
    assert re.search(r"test_describe\.py:\d+<", bundle["image/svg+xml"])


def test_an_empty_topology_has_a_picture() -> None:
    assert ET.fromstring(Topology()._repr_mimebundle_()["image/svg+xml"]) is not None
