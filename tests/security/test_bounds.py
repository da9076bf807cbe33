"""Whatever a request, a pattern or a file can make long is bounded before it starts: tests count steps and bytes, not seconds."""

import json

import pytest

from learners.errors import SourceError
from learners.passes.sources import path_expansion
from learners.passes.sources.file_access import FileAccess, Look
from learners.passes.sources.source import Source
from service import product
from service.http.api.json_bodies import check_json_structure
from service.product.datasets.data_sources import MOST_STORED_BYTES, remote_file_access
from service.product.submission import prechecks
from service.product.submission.prechecks import check_local_uri_exists
from service.requests.json_values import MOST_NESTED, TOO_NESTED, cut_nested, is_nested_deeper
from service.requests.problems import InvalidRequest, MalformedBody
from service.requests.requests import DatasetRequest, ScheduleRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace

N = 36


@pytest.fixture
def lake(tmp_path):
    """Folders side by side, each with a file."""
    for number in range(N):
        (tmp_path / "lake" / f"part-{number}").mkdir(parents=True)
        (tmp_path / "lake" / f"part-{number}" / "rows.csv").write_text("a,class\n1,x\n")
    return tmp_path / "lake"


@pytest.mark.parametrize(
    "parts", ["*/../" * 14 + "nofile", "*/../*/rows.csv", "part-[0-9]/../x", "?art-1/../**/x", "**/../**"]
)
@pytest.mark.parametrize("door", ["submission", "opening"])
def test_a_pattern_with_two_dots_behind_a_wildcard_is_refused(lake, parts, door):
    look = Look()
    opens = {
        "submission": lambda uri: check_local_uri_exists(uri, look) if "**" not in uri else Source.open(uri),
        "opening": Source.open,
    }
    with pytest.raises(SourceError, match=r'has "\.\." after a wildcard. Write the folders out'):
        opens[door](f"{lake}/{parts}")
    assert look.n_entries == 0


@pytest.mark.parametrize(
    ("pattern", "most"), [("*/no*", 2 * N), ("*/*/*/*/*", 2 * N), ("part-1/*", 1), ("n*/*/*", N), ("**/no*", 2 * N)]
)
def test_a_pattern_looks_only_where_it_can_match(lake, pattern, most):
    look = Look()
    assert path_expansion.first_match(f"{lake}/{pattern}", look) in (None, f"{lake}/part-1/rows.csv")
    assert look.n_entries <= most


@pytest.mark.parametrize("uri", ["{}", "{}/**", "{}/*/rows.csv", "{}/*/*/*"])
def test_what_is_looked_through_is_bounded_for_all_paths_of_a_request_together(lake, uri):
    own = uri.format(lake)
    with pytest.raises(SourceError, match=r"matches more than 50 directory entries. Use a more specific path"):
        Source.open(own, access=FileAccess(most_entries=50))
    few = FileAccess(most_entries=5 * N)
    assert "*/*/*" in own or Source.open(own, access=few).n_rows == N
    with pytest.raises(SourceError, match="matches more than 180 directory entries"):
        Source.open([f"{lake}/**"] * 3, access=few)


def test_links_between_folders_do_not_multiply_what_is_looked_through(tmp_path):
    """Eight folders with links to each other hold more paths than can be walked."""
    for own in range(8):
        (tmp_path / str(own)).mkdir()
        (tmp_path / str(own) / "a.csv").write_text("x\n1\n")
        for other in range(8):
            (tmp_path / str(own) / f"to{other}").symlink_to(tmp_path / str(other))
    look = Look(FileAccess(most_entries=20_000))
    with pytest.raises(SourceError, match="matches more than 20,000 directory entries"):
        path_expansion.expand_path_to_files(path_expansion.pafs.LocalFileSystem(), str(tmp_path), look)
    assert look.n_entries == 20_001


def test_looking_through_folders_takes_no_longer_than_it_may(tmp_path):
    for number in range(300):
        (tmp_path / f"{number}.csv").touch()
    with pytest.raises(SourceError, match="takes longer than 0 s to list"):
        Source.open(tmp_path, access=FileAccess(most_s=0.0))


@pytest.mark.parametrize(
    "shape", [".", "x", "./x", "x/", "*.csv", "./*.csv", "x/*.csv", "*/*.csv", "**", "x/**", "../{}/*.csv"]
)
def test_paths_are_named_as_they_were_asked_for(tmp_path, monkeypatch, shape):
    """A file is known by its path: what was counted of it is found again only under the same one."""
    own = tmp_path / "own"
    (own / "x").mkdir(parents=True)
    for name in ("a.csv", "x/b.csv", ".hidden.csv", "x/_hidden.csv"):
        (own / name).write_text("v\n1\n")
    monkeypatch.chdir(own)
    here = path_expansion.pafs.LocalFileSystem()
    paths, _ = path_expansion.expand_path_to_files(here, shape.format("own"))
    below = {"x": "x/", "./x": "./x/", "x/": "x/", "x/*.csv": "x/", "x/**": "x/"}
    if shape in below:
        assert paths == [f"{below[shape]}b.csv"]
    elif shape == "*/*.csv":
        assert paths == ["./x/b.csv"]
    elif shape in {".", "**"}:
        assert paths == ["./a.csv", "./x/b.csv"]
    else:
        assert paths == [f"{'../own' if '..' in shape else '.'}/a.csv"]


# Depth, width and repeats of what is stored


def nested(depth, how="object"):
    value: object = 1
    for level in range(depth):
        value = {"a": value} if how == "object" or (how == "mixed" and level % 2) else [value]
    return value


def hostile_columns():
    """Columns that cannot be shown, or that lists could not bear."""
    for how in ("object", "list", "mixed"):
        for depth in (MOST_NESTED, 100, 254, 255, 256, 900):
            yield {"a": {"a": nested(depth, how)}}
    yield {f"column-{i}": {"kind": "numeric"} for i in range(50_000)}
    yield {"a": {"kind": "x" * MOST_STORED_BYTES}}


@pytest.mark.parametrize("columns", list(hostile_columns()), ids=range(20))
@pytest.mark.parametrize("door", ["jobs", "refreshes", "schedules", "data sets"])
def test_nothing_is_stored_that_lists_cannot_show(tmp_path_factory, columns, door):
    top = tmp_path_factory.getbasetemp() / "stored"
    top.mkdir(exist_ok=True)
    (top / "rows.csv").write_text("a,class\n" + "1,x\n2,y\n" * 5)
    train = {"uris": [f"{top}/rows.csv"], "model": "m", "learner": "nb", "target": "class", "columns": columns}
    with Workspace(Settings(workspace=top / "workspace")) as workspace:
        with pytest.raises((ValueError, InvalidRequest), match=r"more than 32 deep|bytes; the limit is 1,048,576"):
            if door == "jobs":
                product.submit_job(workspace, TrainRequest.model_validate(train), is_remote=True)
            elif door == "data sets":
                own = {"name": "set", "uris": train["uris"], "columns": columns}
                product.register_dataset(workspace, DatasetRequest.model_validate(own), is_remote=True)
            else:
                job = {"kind": "train", **train} if door == "schedules" else {"kind": "refresh", "train": train}
                own = {"name": "nightly", "cron": "0 2 * * *", "job": job}
                product.create_schedule(workspace, ScheduleRequest.model_validate(own), is_remote=True)
        assert not product.job_queue(workspace).list().items
        assert not product.list_schedules(workspace).items and not product.list_datasets(workspace).items


@pytest.mark.parametrize("how", ["object", "list", "mixed"])
@pytest.mark.parametrize("depth", [1, MOST_NESTED - 1, MOST_NESTED, MOST_NESTED + 1, 254, 900, 20_000, 200_000])
def test_a_body_is_nested_no_deeper_than_can_be_shown(how, depth):
    opening, closing = {"object": ('{"a":', "}"), "list": ("[", "]"), "mixed": ('[{"a":', "}]")}[how]
    n = -(-depth // 2) if how == "mixed" else depth
    body = (opening * n + "1" + closing * n).encode()
    if depth <= MOST_NESTED:
        check_json_structure(body)
    else:
        with pytest.raises(MalformedBody, match="nested too deeply: the limit is 32 levels"):
            check_json_structure(body)


def test_brackets_within_texts_and_members_of_several_objects_are_no_depth_and_no_repeats():
    check_json_structure(json.dumps({"where": "[{" * 500, "a": [{"b": 1}, {"b": 2}]}).encode())
    check_json_structure(b"not JSON at all {{{{")


@pytest.mark.parametrize("body", ['{"a": 1, "a": 1}', '[{"b": {"x": 1, "y": 2, "x": 3}}]', '{"a": 1, "\\u0061": 2}'])
def test_two_members_of_one_name_are_refused(body):
    with pytest.raises(MalformedBody, match=r"The body names '[ax]' twice in one object"):
        check_json_structure(body.encode())


def test_what_an_earlier_release_stored_is_shown_without_what_is_too_deep():
    deep = {"columns": nested(254), "learner": "nb", "rows": [nested(254, "list"), 2]}
    shown = cut_nested(deep)
    assert not is_nested_deeper(shown, MOST_NESTED) and TOO_NESTED in json.dumps(shown, ensure_ascii=False)
    assert shown["learner"] == "nb" and shown["rows"][1] == 2
    flat = {"columns": {"a": {"kind": "numeric"}}}
    assert cut_nested(flat) is flat


def test_the_bounds_of_a_request_are_those_of_the_settings(tmp_path):
    access = remote_file_access(Settings(workspace=tmp_path, max_listed_entries=7, max_listing_s=0.5))
    assert (access.most_entries, access.most_s) == (7, 0.5)


def test_a_submission_looks_through_little_and_leaves_the_rest_to_the_job(lake, tmp_path, monkeypatch):
    """So that patterns hold up nobody who submits another job."""
    looks = []
    monkeypatch.setattr(prechecks, "FIRST_LOOK", 10)
    monkeypatch.setattr(prechecks, "Look", lambda access: looks.append(Look(access)) or looks[-1])
    fields = {"learner": "nb", "target": "class", "model": "m"}
    for most, is_queued in ((50_000, True), (5, False)):
        with Workspace(Settings(workspace=tmp_path / f"workspace-{most}", max_listed_entries=most)) as workspace:
            request = TrainRequest(uris=[f"{lake}/*/no*.csv", f"{lake}/*/rows.csv"], **fields)
            if is_queued:
                assert product.submit_job(workspace, request, is_remote=True)[0].state == "queued"
            else:
                with pytest.raises(SourceError, match="matches more than 5 directory entries"):
                    product.submit_job(workspace, request, is_remote=True)
        assert looks.pop().n_entries == min(most, 10) + 1


def test_a_duplicate_name_is_found_in_one_look_at_the_names():
    body = b"{" + b",".join(b'"c%06d":1' % i for i in range(300_000)) + b',"z":1,"z":2}'
    with pytest.raises(MalformedBody, match="The body names 'z' twice in one object"):
        check_json_structure(body)
