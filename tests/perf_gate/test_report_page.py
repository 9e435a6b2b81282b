from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from perf_gate.metric import Exact
from perf_gate.reporting.page import difference, plots, render
from perf_gate.reporting.report_data import Outcome, ReportData, ReportSide
from perf_gate.session.output import is_page
from perf_gate.verdict import Row, Verdict
from tests.perf_gate import report_data_samples, samples
from tests.perf_gate.report_data_samples import HOSTILE

VOID = {"meta", "link", "br", "img", "hr", "input"}
# What HTML lets a page fetch or run.
FETCHING = {"script", "iframe", "object", "embed", "img", "audio", "video", "source", "base", "form", "image"}


class Page(HTMLParser):
    """Collects what a reader, a screen reader and a network would notice."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: dict[str, list[str]] = {}
        self.unbalanced: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(" ".join(each).split()) for tag, each in self.words.items() if tag != "style")


@pytest.fixture(scope="module", params=list(report_data_samples.ALL))
def parsed(request, pages):
    return Page(pages[request.param])


def test_the_page_is_well_formed(parsed):
    assert parsed.unbalanced == []
    assert parsed.open == []


def test_the_page_is_known_again(pages):
    assert all(map(is_page, pages.values()))


def test_the_page_fetches_and_runs_nothing(parsed):
    assert not FETCHING & {tag for tag, _ in parsed.tags}
    for tag, attributes in parsed.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "action", "data", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, attributes)
        assert not re.search(r"url\((?!#)", attributes.get("style") or "")
    (policy,) = [each["content"] for each in parsed.named("meta") if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert "@import" not in "".join(parsed.words["style"])


def test_ids_are_unique_and_every_reference_has_its_target(parsed):
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in parsed.tags:
        wanted = (attributes.get("aria-labelledby") or "").split()
        wanted += re.findall(r"url\(#([^)]*)\)", (attributes.get("style") or "") + (attributes.get("clip-path") or ""))
        if (attributes.get("href") or "").startswith("#"):
            wanted.append(attributes["href"][1:])
        assert set(wanted) <= set(ids)


def test_every_drawing_is_named_and_described_and_every_table_has_its_caption_and_headings(parsed):
    drawings, tables = parsed.named("svg"), parsed.named("table")
    assert drawings
    assert all(each["role"] == "img" and len(each["aria-labelledby"].split()) == 2 for each in drawings)
    assert len(parsed.words["desc"]) >= len(drawings)
    assert len(parsed.named("caption")) == len(tables) == len(parsed.named("thead"))
    assert all(each.get("scope") in ("col", "row") for each in parsed.named("th"))
    regions = [attributes for _, attributes in parsed.tags if attributes.get("role") == "region"]
    assert len(regions) == len(tables)
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in regions)


def test_every_plot_has_its_data_as_a_table(pages):
    for name, make in report_data_samples.ALL.items():
        if name == "hostile":
            continue
        text = " ".join(Page(pages[name]).text.split())
        for _, plot in plots(make()).all():
            assert plot.data_table.rows
            assert plot.data_table.caption in text


def test_headings_are_nested(parsed):
    levels = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize(("name", "word"), [("green", "Pass"), ("red", "Regressed"), ("undecided", "Cannot judge")])
def test_the_verdict_comes_first(pages, name, word):
    body = Page(pages[name])
    assert "".join(body.words["title"]).startswith(word.lower())
    first = pages[name].split("<h1>", 1)[1].split("</h1>", 1)[0]
    assert f'<span class="word">{word}</span>' in first
    assert "<svg" not in pages[name].split("</header>", 1)[0]


def test_names_cannot_break_out(pages):
    text = pages["hostile"]
    assert "<script" not in text
    assert "\u202e" not in text
    body = Page(text)
    assert "alert(1)" in body.text
    assert len("".join(body.words["title"])) > len(HOSTILE) - 5


def test_both_schemes_have_every_colour(pages):
    style = "".join(Page(pages["red"]).words["style"])
    light, dark = (set(re.findall(r"--([a-z]+): #", part)) for part in style.split("prefers-color-scheme: dark"))
    assert light == dark
    used = set(re.findall(r"var\(--([a-z]+)\)", pages["red"]))
    assert used - {"tone"} <= light
    # A colour that is written out would not change with the scheme.
    assert not re.findall(r"(?:fill|stroke|color): #[0-9a-f]{6}", pages["red"].split("</style>", 1)[1])


def test_the_same_data_gives_the_same_page(pages):
    assert render(report_data_samples.red()) == pages["red"]


def test_the_difference_of_a_count_is_a_number_with_its_unit(pages):
    assert "+4 KiB" in Page(pages["red"]).text
    calls, tokens = Exact("calls", "calls"), Exact("tokens", "tokens")
    assert difference(Row("a", tokens, Verdict.REGRESSED, 20, 21)) == "+1 token"
    assert difference(Row("a", calls, Verdict.IMPROVED, 20, 17)) == "−3 calls"
    assert difference(Row("a", calls, Verdict.MISSING)) == "-"


def test_what_was_not_judged_is_shown_with_its_reason():
    body = Page(render(report_data_samples.data(machine=samples.ELSEWHERE)))
    assert "What was not judged" in body.text
    assert f"recorded on {samples.MACHINE}, this is {samples.ELSEWHERE}" in body.text
    assert "4 metrics:" in body.text


def test_a_counted_run_has_no_empty_plots():
    found = report_data_samples.data(sampled=False)
    assert [type(plot).__name__ for _, plot in plots(found).all()] == []
    body = Page(render(found))
    assert body.named("svg") == []
    assert "nothing timed" in body.text
    assert "judges exact metrics only" in body.text


def test_a_run_that_was_held_against_nothing_says_so():
    alone = replace(report_data_samples.green(), reference=None, rows=(), history=())
    body = Page(render(alone))
    assert "Not compared" in body.text
    assert "not compared with anything" in body.text
    assert "bytes copied" in body.text
    assert body.unbalanced == []


def test_captions_fit_a_base_as_well_as_a_record():
    text = render(replace(report_data_samples.red(), history=(), paired=True))
    for word in ("Recorded", "recorded mean", "the record's", "the record’s", "than recorded"):
        assert word not in text


def test_a_run_in_which_nothing_was_measured_is_a_page_too():
    empty = ReportData(ReportSide("this run", "", samples.provenance(), ()), status=10, faults=("no record: make one",))
    body = Page(render(empty))
    assert "Cannot judge" in body.text
    assert "no record: make one" in body.text


def test_an_invalid_scenario_is_told_and_not_drawn():
    found = report_data_samples.data(invalid="warm reused 0 of 200 tokens")
    text = Page(render(found)).text
    assert "warm reused 0 of 200 tokens" in text
    assert len(plots(found).visits) == 1


@pytest.mark.parametrize(
    ("status", "rows", "faults", "compared", "outcome"),
    [
        (0, "green", (), True, Outcome.PASS),
        (1, "red", (), True, Outcome.REGRESSED),
        (1, "green", ("test_x failed",), True, Outcome.FAILED),
        (1, "red", ("test_x failed",), True, Outcome.REGRESSED),
        (10, "undecided", (), True, Outcome.CANNOT_JUDGE),
        (10, "green", ("nothing was measured",), True, Outcome.CANNOT_JUDGE),
        (0, "green", ("the disk is full",), True, Outcome.CANNOT_JUDGE),
        (5, "green", (), True, Outcome.CANNOT_JUDGE),
        (0, "green", (), False, Outcome.NOT_COMPARED),
        (10, "green", (), False, Outcome.CANNOT_JUDGE),
    ],
)
def test_the_page_is_never_greener_than_the_exit_status(status, rows, faults, compared, outcome):
    found = replace(report_data_samples.ALL[rows](), status=status, faults=faults)
    found = found if compared else replace(found, reference=None)
    assert found.outcome is outcome
    assert found.summary


def test_counts_add_up_to_all_rows():
    for make in report_data_samples.ALL.values():
        found = make()
        assert sum(number for _, number in found.counts) == len(found.rows)


def test_the_title_of_the_forest_counts_what_its_table_shows():
    found = report_data_samples.red()
    forest_plot = plots(found).forest_plot
    assert forest_plot is not None
    shown = [row[-1] for row in forest_plot.data_table.rows]
    assert f": {shown.count('regressed')} of {len(shown)} changes" in forest_plot.title


def test_a_reference_that_asks_for_something_else_is_not_drawn():
    found = report_data_samples.green()
    assert found.reference is not None
    other = tuple(replace(each, fingerprint="beef") for each in found.reference.measurements)
    changed = replace(found, reference=replace(found.reference, measurements=other))
    for times, workers in plots(changed).visits.values():
        assert times.reference is None
        assert workers.reference is None
