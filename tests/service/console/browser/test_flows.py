"""What a person does from start to end, in a real browser."""

import os
import socket
import sys

import httpx

from service import product
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import wait_for
from tests.service.asking import job_at_end
from tests.service.console.browser.driving import needs_browser, visit
from tests.service.forks import local_server, started

pytestmark = needs_browser


def fill(tab, form, **fields):
    for name, value in fields.items():
        tab.page.locator(f"{form} [name={name}]").fill(value)


def ended(tab, house):
    """Wait until the job of the page has ended, and look at the page anew."""
    job_at_end(house.client, tab.page.url.rpartition("/")[2])
    tab.page.reload()
    tab.page.wait_for_selector(".state.succeeded, .state.failed")


def test_from_a_file_to_what_if_in_three_clicks(tab, house):
    """Upload, train, ask: what is between, the pages do."""
    tab.go("/console/data")
    form = "form:has(input[type=file])"
    tab.page.set_input_files(f"{form} input[type=file]", house.train)
    assert tab.page.input_value(f"{form} [name=name]") == "train", "named after the file"
    tab.page.click(f"{form} button")
    tab.page.wait_for_url("**/console/data/train")
    tab.page.wait_for_selector(".histograms svg")
    text = tab.page.inner_text("#profile")
    assert "station" in text and "one value only" in text and "% missing" in text
    assert not tab.findings()
    tab.page.click("button:has-text('Train a model that predicts class')")
    tab.page.wait_for_url("**/console/jobs/job-*")
    tab.page.wait_for_selector(".state.succeeded", timeout=240_000)
    assert "log loss of the class shares" in tab.page.inner_text("main")
    tab.page.click("text=Ask what if")
    tab.settled()
    tab.check()
    assert house.client.get("/v1/models/train").json()["learner"] == "auto"


def test_a_file_of_a_receipt_is_verified(tab, tmp_path):
    tab.go("/console/receipts")
    form = "form:has(input[name=receipt])"
    (tmp_path / "letter.json").write_text("a letter")
    tab.page.set_input_files(f"{form} input[type=file]", tmp_path / "letter.json")
    assert "--data-binary '@letter.json'" in tab.page.locator(f"{form} [data-asked] code").text_content()
    tab.page.click(f"{form} button")
    tab.page.wait_for_selector(f"{form} [data-outcome].bad:has-text('is not a receipt')")
    assert not tab.findings()


def test_the_example_and_what_is_refused(tab, house):
    tab.go("/console/data")
    tab.page.click("button:has-text('Load the example')")
    tab.page.wait_for_url("**/console/data/customers")
    tab.page.wait_for_selector(".histograms svg")
    tab.check()
    tab.go("/console/data/weather?target=humidity")
    tab.page.wait_for_selector("#profile p:has-text('regression')")


def test_a_new_workspace_leads_to_a_model_or_to_a_file_in_one_click(browser, house, tmp_path):
    with local_server(Settings(workspace=tmp_path / "new")) as server, visit(browser, server.url) as tab:
        tab.go("/console")
        assert not tab.findings()
        tab.page.set_input_files("#start-file input[type=file]", house.train)
        tab.page.wait_for_url("**/console/data/train")
        tab.page.wait_for_selector(".histograms svg")
        tab.go("/console")
        tab.page.click("text=Train the example model")
        tab.page.wait_for_url("**/console/jobs/job-*")
        tab.page.wait_for_selector(".state.succeeded", timeout=240_000)
        tab.page.click("text=Ask what if")
        tab.settled()
        tab.check()
        assert httpx.get(f"{server.url}/v1/models/customers@champion").json()["learner"] == "auto"


def test_the_form_trains_what_was_chosen(tab, house):
    """Choosing a learner changes the parameters that are shown, and nothing that was filled in before."""
    tab.go("/console/train?dataset=weather&model=chosen")
    form = 'form[data-path="/v1/jobs"]'
    sent = f"{form} [data-asked] code"
    tab.page.select_option(f"{form} [name=target]", "class")
    tab.page.select_option(f"{form} [name=learner]", "nb")
    tab.page.wait_for_selector('[name="parameters.estimator"]')
    assert tab.page.input_value(f"{form} [name=target]") == "class"
    tab.page.select_option('[name="parameters.estimator"]', "m")
    tab.page.fill('[name="parameters.m"]', "2.5")
    body = tab.page.text_content(sent)
    assert '"learner":"nb"' in body and '"parameters":{"estimator":"m","m":2.5}' in body
    assert not tab.findings()
    tab.page.click(f"{form} button")
    tab.page.wait_for_url("**/console/jobs/job-*")
    tab.page.wait_for_selector(".state.succeeded", timeout=240_000)
    tab.check()
    version = house.client.get("/v1/models/chosen").json()
    assert (version["learner"], version["parameters"]["m"]) == ("nb", 2.5)


def test_lists_and_pairs_of_the_form_need_no_json(tab):
    tab.go("/console/train?learner=orders")
    tab.page.select_option("[name=dataset]", "weather")
    tab.page.wait_for_selector("#target select")
    tab.page.click("#parameters summary")
    for each in ("outlook", "windy", "humidity"):
        tab.page.fill('[data-adds="edges"] >> nth=1', each)
        tab.page.press('[data-adds="edges"] >> nth=1', "Tab")
    assert tab.page.input_value('[name="parameters.forbidden"]') == "outlook->windy\nhumidity->"
    tab.page.fill('[name="parameters.forbidden"]', "")
    for name, text in (("required", "a->b"), ("tiers", "a, b\nc"), ("edge_log_odds", "a->b = 2")):
        tab.page.fill(f'[name="parameters.{name}"]', text)
    sent = 'form[data-path="/v1/jobs"] [data-asked] code'
    assert '"required":["a->b"],"tiers":[["a","b"],["c"]],"edge_log_odds":{"a->b":2}' in tab.page.text_content(sent)
    tab.page.fill('[name="parameters.edge_log_odds"]', "a->b")
    assert "is not: name = number" in tab.page.text_content(sent)


def test_a_rule_and_a_webhook_from_their_forms(tab, house):
    name = house.client.get("/v1/models").json()["items"][0]["name"]
    tab.go(f"/console/models/{name}/monitoring")
    tab.page.click("summary:has-text('When it alerts')")
    form = f'form[data-path="/v1/models/{name}/alert-rule"]'
    fill(tab, form, window="7d", points="2.5")
    assert '"points":2.5' in tab.page.text_content(f"{form} [data-asked] code")
    tab.submit(form)
    assert tab.page.input_value(f"{form} [name=points]") == "2.5"
    rule = house.client.get(f"/v1/models/{name}/alert-rule").json()
    assert (rule["window"], rule["points"], rule["is_muted"]) == ("7d", 2.5, False)
    tab.go("/console/settings")
    form = 'form[data-path="/v1/webhooks"]'
    fill(tab, form, url="https://93.184.216.34/hook", models=name)
    tab.page.click(f"{form} button")
    tab.page.wait_for_selector(f"{form} [data-outcome]:has-text('whsec_')")
    tab.page.reload()
    with tab.page.expect_navigation():
        tab.page.click("text=Remove webhook 1")
    assert house.client.get("/v1/webhooks").json() == []
    tab.check()


def test_a_refusal_is_told_in_the_form(tab):
    tab.go("/console/data")
    form = 'form[data-path="/v1/datasets"]:has(textarea[name=uris])'
    fill(tab, form, name="nothing", uris="/no/such/file.parquet")
    tab.page.click(f"{form} button")
    tab.page.wait_for_selector(f"{form} .outcome.bad")
    assert "/no/such/file.parquet" in tab.page.inner_text(f"{form} .outcome")


def test_move_an_alias_and_roll_it_back(tab, house):
    tab.go("/console/models/rain")
    tab.page.click("summary:has-text('Move an alias')")
    form = 'form[data-path$="/aliases/{alias}"]'
    fill(tab, form, version="2")
    tab.page.click(f"{form} button")
    tab.page.wait_for_selector("#versions .tag:has-text('champion')")
    tab.page.wait_for_function("() => document.querySelector('#versions tbody tr').textContent.includes('champion')")
    assert house.client.get("/v1/models/rain/aliases").json() == {"aliases": {"champion": 2}}
    tab.page.click("summary:has-text('Roll back')")
    form = 'form[data-path$="/rollback"]'
    fill(tab, form, confirm="something else")
    tab.page.click(f"{form} button")
    assert "Type rain to confirm" in tab.page.inner_text(f"{form} .outcome")
    fill(tab, form, confirm="rain")
    tab.submit(form)
    assert house.client.get("/v1/models/rain/aliases").json() == {"aliases": {"champion": 1}}


def test_a_dry_run_of_forgetting_and_a_schedule_that_is_run_and_cancelled(tab, house):
    tab.go("/console/data/weather")
    tab.page.click("summary:has-text('Forget rows')")
    form = 'form[data-path="/v1/jobs"]:has([name=where])'
    fill(tab, form, where="outlook = 'rain'")
    tab.page.click(f"{form} button")
    tab.page.wait_for_url("**/console/jobs/job-*")
    ended(tab, house)
    assert '"is_dry_run": true' in tab.page.text_content("main")
    tab.go("/console/settings")
    tab.page.click("text=Run nightly now")
    tab.page.wait_for_url("**/console/jobs/job-*")
    ended(tab, house)
    tab.check()


def test_a_schedule_from_its_form_with_the_runs_to_come(tab, house):
    tab.go("/console/settings")
    form = 'form[data-path="/v1/schedules"]'
    tab.page.select_option(f"{form} [name='job.train.dataset']", "weather")
    tab.page.select_option(f"{form} [name='job.train.learner']", "nb")
    tab.page.fill(f"{form} [name='job.train.model']", "rain")
    tab.page.fill(f"{form} [name=cron]", "never")
    tab.page.wait_for_selector("#next-runs .bad")
    tab.page.fill(f"{form} [name=cron]", "@monthly")
    tab.page.wait_for_function("() => document.querySelectorAll('#next-runs time').length === 3")
    tab.page.fill(f"{form} [name=name]", "monthly")
    with tab.page.expect_navigation():
        tab.page.click(f"{form} button[type=submit]")
    job = house.client.get("/v1/schedules/monthly").json()["job"]
    assert (job["kind"], job["train"]["learner"], job["train"]["dataset"]) == ("refresh", "nb", "weather")
    tab.check()
    assert house.client.delete("/v1/schedules/monthly").status_code == 204


def test_keys_are_shown_once_and_revoked(tab, house):
    tab.go("/console/settings")
    form = 'form[data-path="/v1/keys"]'
    fill(tab, form, name="from-the-page")
    tab.page.click(f"{form} button")
    tab.page.wait_for_function(
        "() => document.querySelector('form[data-path=\"/v1/keys\"] .outcome').textContent.includes('fp_')"
    )
    assert tab.page.locator(f"{form} [data-copy]").count() == 1
    assert "fp_" not in tab.page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    tab.page.reload()
    assert "fp_" not in tab.page.content()
    with tab.page.expect_navigation():
        tab.page.click("text=Revoke from-the-page")
    keys = house.client.get("/v1/keys").json()["items"]
    assert [key["revoked_at"] is not None for key in keys if key["name"] == "from-the-page"] == [True]


def test_a_reader_signs_in_and_sees_no_buttons(browser, tmp_path):
    settings = Settings(workspace=tmp_path / "workspace", require_keys=True, job_workers=0, warm_up=False)
    with Workspace(settings) as workspace:
        token = product.create_key(workspace, "reader", "read")[1]
    with local_server(settings) as server, visit(browser, server.url) as tab:
        tab.go("/console/data")
        assert tab.page.url.endswith("/console/login?next=%2Fconsole%2Fdata")
        tab.page.fill("[name=key]", token)
        tab.page.click("main button")
        tab.page.wait_for_url("**/console/data")
        assert tab.page.locator("main form").count() == 0 and "your role here: read" in tab.page.inner_text("footer")
        assert tab.page.evaluate("document.cookie") == "" and token not in tab.page.content()
        refused = "fetch('/v1/jobs', {method: 'POST', headers: {'X-Fewpass-Console': '1', 'Content-Type': 'application/json'}, body: '{}'}).then((r) => r.status)"
        assert tab.page.evaluate(refused) == 403
        tab.errors.clear()
        tab.page.click("text=Sign out")
        tab.page.wait_for_url("**/console/login")
        tab.check()


def test_seven_tabs_share_one_stream(tab):
    tabs = [tab.page, *(tab.page.context.new_page() for _ in range(6))]
    for page in tabs:
        page.goto(f"{tab.origin}/console/jobs", wait_until="load")
        page.wait_for_selector("h1")
    tabs[-1].wait_for_timeout(1500)
    tabs[0].goto(f"{tab.origin}/console/models/rain")
    assert tabs[0].title().startswith("rain"), "the eighth page loads, too"
    n_streams = sum(each == "GET /console/events" for each in tab.requests)
    assert 1 <= n_streams <= 4, f"{n_streams} streams: only who holds the lock listens"
    tab.check()


def test_a_page_that_is_open_survives_a_restart(browser, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "service.cli", "serve", "--port", url.rpartition(":")[2], "--job-workers", "0"]
    command += ["--workspace", str(tmp_path / "w")]

    def is_ready():
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def start():
        with (tmp_path / "log").open("ab") as log:
            process = started(command, stdout=log, stderr=log, env=os.environ | {"FEWPASS_WARM_UP": "false"})
        wait_for(is_ready)
        return process

    process = start()
    try:
        with visit(browser, url) as tab:
            tab.go("/console")
            tab.page.wait_for_timeout(1500)
            process.kill()
            process.wait()
            tab.page.wait_for_function("() => document.getElementById('live').textContent.includes('does not answer')")
            process = start()
            tab.page.wait_for_function("() => document.getElementById('live').textContent === ''")
            assert not tab.violations()
    finally:
        process.kill()
        process.wait()
