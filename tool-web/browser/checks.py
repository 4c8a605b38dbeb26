"""Opens the page in a headless Chromium and does what an operator does. Usage: checks.py URL SCREENSHOTS"""

import json
import os
import re
import shutil
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import SessionNotCreatedException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

BASE, SCREENSHOTS = sys.argv[1], Path(sys.argv[2])
# The progress of a call and the requests to the model are known only to the process that drives the run, and behind a balancer each request can
# be for another one.
IS_BALANCED = "balanced" in sys.argv
COUNTING = "" if IS_BALANCED else "counting"
SCREENSHOTS.mkdir(parents=True, exist_ok=True)
count = 0


def request(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if data:
        headers.setdefault("content-type", "application/json")
    try:
        with urllib.request.urlopen(urllib.request.Request(BASE + path, data, headers), timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def runs(**filters):
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    return json.loads(request(f"api/runs?limit=1000&{query}")[1])["runs"]


def ask(text, waits=True):
    """Asks a question in a chat of its own, and returns the id of its run."""
    global count
    count += 1
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]}
    body = json.dumps({"id": f"browser-{count}", "messages": [message]}).encode()
    send = urllib.request.Request(BASE + "api/chat", body, {"content-type": "application/json"})
    response = urllib.request.urlopen(send, timeout=20)
    run = re.search(r'"messageId":"msg_(run_[0-9a-f]+)_', response.readline().decode())[1]
    if waits:
        response.read()
    return run


def start(options):
    # Chromium sometimes does not come up on a busy machine.
    for attempt in range(3):
        try:
            return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        except SessionNotCreatedException:
            if attempt == 2:
                raise


def browser(width=1100, height=800, dark=False):
    options = webdriver.ChromeOptions()
    for argument in ("--headless", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = start(options)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    if width < 600:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return driver


def find(driver, css, text="", timeout=15):
    def found(driver):
        elements = driver.find_elements(By.CSS_SELECTOR, css)
        return next((one for one in elements if one.is_displayed() and text in one.text), None)

    return WebDriverWait(driver, timeout, ignored_exceptions=[Exception]).until(found, f"{css} {text!r}")


def wait_until(driver, holds, timeout=15):
    # The page replaces its elements whenever something changes.
    WebDriverWait(driver, timeout, ignored_exceptions=[StaleElementReferenceException]).until(holds)


def click(driver, css, text=""):
    wait_until(driver, lambda driver: find(driver, css, text).click() is None)


def open_run(driver, run):
    driver.get("about:blank")
    driver.get(f"{BASE}#run={run}")


def shoot(driver, name):
    driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def list_and_filters(driver):
    waiting = ask("pay")
    ask("hello")
    driver.get(BASE)
    wait_until(driver, lambda d: find(d, "#runs li:first-child .status").text == "waiting")
    assert driver.title.startswith("(")
    click(driver, "#filters button", "done")
    wait_until(driver, lambda d: all(e.text == "done" for e in d.find_elements(By.CSS_SELECTOR, "#runs .status")))
    click(driver, "#filters button", "all")
    click(driver, f'[data-run="{waiting}"]')
    click(driver, "[data-key=a]", "Approve")
    find(driver, "#log", "Result: Paid 80 euros to Anna.")
    find(driver, "#log", "approved by local user")
    click(driver, "#turns button", "Turn 1 ·")
    find(driver, "#turns button", "Turn 2")


def live_run(driver):
    run = ask("some", waits=False)
    open_run(driver, run)
    find(driver, ".status.running", COUNTING)
    find(driver, "#log", "Result: 20")


def changed_arguments(driver):
    run = ask("pay")
    open_run(driver, run)
    click(driver, "[data-key=e]")
    euros = find(driver, '[data-field="euros"]')
    euros.clear()
    euros.send_keys("20")
    Select(find(driver, '[data-field="urgent"]')).select_by_visible_text("true")
    shoot(driver, "edit")
    click(driver, "button", "Approve with these arguments")
    find(driver, "#log", "Result: Paid 20 euros to Anna at once.")


def denied(driver):
    run = ask("pay")
    open_run(driver, run)
    find(driver, '[aria-label="Reason"]').send_keys("too much")
    click(driver, "[data-key=d]")
    find(driver, "#log", "Result: the call was denied: too much")


def told(driver):
    run = ask("pay")
    open_run(driver, run)
    find(driver, "#message").send_keys("By train, please")
    click(driver, "#say button", "Send")
    wait_until(driver, lambda d: find(d, "#message").get_attribute("value") == "")
    click(driver, "[data-key=a]", "Approve")
    find(driver, "#log", "By train, please")
    find(driver, ".status.done")
    wait_until(driver, lambda d: not d.find_element(By.ID, "say").is_displayed())


def questions(driver):
    run = ask("book")
    open_run(driver, run)
    [link] = find(driver, ".wait .prose").find_elements(By.TAG_NAME, "a")
    parts = [link.get_attribute(name) for name in ("href", "text", "rel", "target")]
    assert parts == ["https://air.example/classes"] * 2 + ["noopener noreferrer", "_blank"], parts
    # The page of a login is for the user of the run.
    driver.get(BASE + "keys#key=sk-anna")
    find(driver, "#runs li")
    driver.get(f"{BASE}keys#run={run}")
    find(driver, ".wait", "A question to local user. A page that it names is for them alone.")
    assert not find(driver, ".wait .prose", "https://air.example/classes").find_elements(By.TAG_NAME, "a")
    driver.execute_script("sessionStorage.clear()")
    open_run(driver, run)
    Select(find(driver, ".wait select")).select_by_visible_text("business")
    click(driver, "button", "Answer")
    find(driver, ".wait", "Which seat?")
    find(driver, '[data-field="row"]').send_keys("3")
    find(driver, '[data-field="letter"]').send_keys("A")
    shoot(driver, "question")
    click(driver, "button", "Answer")
    find(driver, '.wait input[type="password"]').send_keys("1234")
    click(driver, "button", "Answer")
    find(driver, "#log", "Result: 3A on OS 87, business, code of 4")


def secrets(driver):
    """No part of a secret answer can be seen while it is typed."""
    run = ask("card")
    open_run(driver, run)
    find(driver, ".wait", "Which card?")
    assert not driver.find_elements(By.CSS_SELECTOR, '.wait select, .wait textarea, .wait .fields input:not([type="password"])')
    find(driver, '.wait [data-field="number"]').send_keys("hunter2")
    find(driver, '.wait [data-field="is_gold"]').send_keys("hunter3")
    find(driver, '.wait [data-field="color"]').send_keys("blue")
    click(driver, ".wait button", "Answer")
    assert find(driver, "#notice", "Invalid JSON").text == "Invalid JSON"
    gold = find(driver, '.wait [data-field="is_gold"]')
    gold.clear()
    gold.send_keys("true")
    click(driver, ".wait button", "Answer")
    find(driver, "#log", "Result: 7, true, Blue")


def inside(driver):
    run = ask("inner")
    open_run(driver, run)
    find(driver, ".wait h2", "helper › pay")
    find(driver, ".agent .status.waiting")
    shoot(driver, "inside")
    click(driver, "[data-key=a]")
    find(driver, ".agent", "Paid 80 euros to Anna.")


def two_windows(driver):
    run = ask("two")
    open_run(driver, run)
    find(driver, ".wait")
    other = browser()
    try:
        open_run(other, run)
        # Both show the same two waits; one is decided here and otherwise there.
        stale = find(other, "[data-key=d]")
        click(driver, "[data-key=a]")
        find(driver, "#log", "Paid 80 euros to Anna.")
        try:
            stale.click()
            find(other, "#notice", "approved by local user")
        except Exception:
            # The card was gone before the click.
            pass
        find(other, "#log", "Paid 80 euros to Anna.")
        [rest] = [one for one in json.loads(request(f"api/runs/{run}")[1])["open"]]
        assert rest["reason"]["approval"]["arguments"].count("Eve") == 1
    finally:
        other.quit()
    # The same decisions, without a window that is too quick.
    wait = rest["id"]
    path = f"api/runs/{run}/decisions"
    assert request(path, {"wait": "0123", "decision": "approve"})[0] == 409
    assert request(path, {"wait": wait, "decision": {"deny": "no"}})[0] == 200
    assert request(path, {"wait": wait, "decision": {"deny": "no"}})[0] == 200
    status, text = request(path, {"wait": wait, "decision": "approve"})
    assert (status, json.loads(text)["kind"], json.loads(text)["by"]) == (409, "denied", "local user"), text
    find(driver, "#log", "the call was denied: no")


def cancelled(driver):
    run = ask("slow", waits=False)
    open_run(driver, run)
    click(driver, "#cancel")
    driver.switch_to.alert.accept()
    find(driver, "#facts", "cancelled")


def undone(driver):
    run = ask("reserve", waits=False)
    open_run(driver, run)
    find(driver, ".status.running", COUNTING)
    click(driver, "#cancel")
    driver.switch_to.alert.accept()
    find(driver, "#log", "undo: release")
    find(driver, "#log", "Released table 4.")


def plain(driver):
    """Without scripts, everything can be read, and hostile texts are as harmless."""
    run = ask("hostile")
    driver.get(f"{BASE}plain")
    find(driver, "h1", "Runs")
    driver.get(f"{BASE}plain/{run}")
    find(driver, "pre", "<script>document.title='owned'</script>")
    find(driver, "li", r"invoice\u{202e}fdp.exe")
    assert "owned" not in driver.title and not driver.find_elements(By.CSS_SELECTOR, "img, script")
    shoot(driver, "plain")


def requests(driver):
    run = ask("sum")
    open_run(driver, run)
    click(driver, ".turn .raw", "request")
    find(driver, "#json", '"tool_choice"')


def hostile(driver):
    run, huge = ask("hostile"), ask("huge")
    open_run(driver, run)
    find(driver, ".wait pre", r"invoice\u{202e}fdp.exe")
    find(driver, "#log", "<script>document.title='owned'</script>")
    shoot(driver, "hostile")
    # What the server quotes is shown in the same way.
    click(driver, "[data-key=e]")
    field = find(driver, '[data-field="euros"]')
    field.clear()
    field.send_keys('"\u202e1"')
    click(driver, "button", "Approve with these")
    assert "\u202e" not in find(driver, "#notice", "Not recorded").text
    driver.get(BASE)
    find(driver, "#runs")
    assert "owned" not in driver.title and not driver.find_elements(By.CSS_SELECTOR, "main img, main script")
    open_run(driver, huge)
    click(driver, "details.call summary")
    more = find(driver, "button", "Show all 1,048,576 characters")
    more.click()
    wait_until(driver, lambda d: len(d.find_element(By.CSS_SELECTOR, "details.call pre.succeeded").text) > 100_000)
    # The strings of arguments do not reorder the numbers behind them.
    open_run(driver, ask("reordered"))
    find(driver, ".wait pre bdi", "\u05d0")
    places = """
        const pre = document.querySelector(".wait pre"), range = document.createRange();
        const node = [...pre.childNodes].find((node) => /80/.test(node.data));
        range.setStart(node, node.data.indexOf("80"));
        range.setEnd(node, node.data.indexOf("80") + 2);
        const letter = pre.querySelectorAll("bdi")[1].getBoundingClientRect();
        return [letter.right, range.getBoundingClientRect().left];"""
    end, start = driver.execute_script(places)
    assert end <= start, (end, start)
    # A schema with mistakes does not keep others from deciding.
    open_run(driver, ask("twisted"))
    find(driver, ".wait .fields", "[object Object]")
    click(driver, "[data-key=d]", "Decline")
    find(driver, "#log", "Result:")


def no_key(driver):
    assert request("keys/api/runs")[0] == 401
    assert request("keys")[0] == 200
    driver.get(BASE + "keys")
    find(driver, "#key").send_keys("sk-wrong")
    click(driver, "#login button")
    find(driver, "#notice", "valid key")
    driver.get("about:blank")
    driver.get(BASE + "keys#key=sk-eve")
    find(driver, "#runs li")
    assert "sk-eve" not in driver.current_url
    run = ask("pay")
    driver.get(f"{BASE}keys#run={run}")
    find(driver, ".wait")
    assert not driver.find_elements(By.CSS_SELECTOR, "[data-key=a]")
    [wait] = json.loads(request(f"keys/api/runs/{run}", authorization="Bearer sk-eve")[1])["open"]
    sent = {"wait": wait["id"], "decision": "approve"}
    assert request(f"keys/api/runs/{run}/decisions", sent, authorization="Bearer sk-eve") == (403, "`eve` may not decide")
    assert request(f"keys/api/runs/{run}/cancel", {}, authorization="Bearer sk-eve")[0] == 403
    status, text = request(f"keys/api/runs/{run}/decisions", sent, authorization="Bearer sk-anna")
    assert (status, json.loads(text)["by"]) == (200, "anna"), text


def wrong_origin(driver):
    """A page of another port of this host tries to read and to decide."""
    run = ask("pay")
    [wait] = json.loads(request(f"api/runs/{run}")[1])["open"]
    decision = json.dumps({"wait": wait["id"], "decision": "approve"})

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>evil</title><iframe id=f></iframe>")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    driver.get(f"http://127.0.0.1:{server.server_port}/")
    results = driver.execute_async_script(
        """const [base, run, decision, done] = arguments;
        const url = `${base}api/runs/${run}/decisions`;
        const json = { "content-type": "application/json" };
        const tries = [
          () => fetch(`${base}api/runs`).then((response) => response.text()),
          () => fetch(url, { method: "POST", headers: json, body: decision }),
          () => fetch(url, { method: "POST", mode: "no-cors", body: decision }),
          () => new Promise((resolve, reject) => {
            const frame = document.getElementById("f");
            frame.onload = () => { try { resolve(frame.contentDocument.title); } catch (error) { reject(error); } };
            frame.src = base;
          }),
        ];
        Promise.all(tries.map((one) => one().then((value) => String(value), () => "refused"))).then(done);""",
        BASE, run, decision,
    )
    server.shutdown()
    assert results[0] == results[1] == "refused", results
    assert "Runs" not in results[3], results
    # A link with mistakes opens nothing, and the page goes on.
    driver.get(BASE + "#run=%zz")
    find(driver, "#notice", "there is no such run")
    assert [one["id"] for one in json.loads(request(f"api/runs/{run}")[1])["open"]] == [wait["id"]]
    path, sent = f"api/runs/{run}/decisions", json.loads(decision)
    for headers in (
        {"origin": f"http://127.0.0.1:{server.server_port}"},
        {"origin": "null"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"host": "evil.example"},
        {"content_type": "text/plain"},
    ):
        status, text = request(path, sent, **headers)
        assert status in (403, 415), (headers, status, text)
    # Nothing is decided by opening a URL.
    assert request(f"{path}?wait={wait['id']}&decision=approve")[0] == 405
    assert request("api/runs", host="evil.example")[0] == 403
    assert [one["id"] for one in json.loads(request(f"api/runs/{run}")[1])["open"]] == [wait["id"]]


def keyboard(driver):
    driver.get(BASE)
    find(driver, "#runs a")
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys("j")
    assert driver.switch_to.active_element.get_attribute("data-run")
    driver.switch_to.active_element.send_keys("\n")
    find(driver, ".wait")
    body.send_keys("a")
    assert driver.switch_to.active_element.get_attribute("data-key") == "a"
    body.send_keys("\ue00c")
    find(driver, "#runs")


def documented_chat(driver):
    """The chat of `docs/chat.html`, which a program copies."""
    driver.get(BASE + "chat")
    find(driver, "#ask input").send_keys("book")
    click(driver, "#ask button")
    find(driver, "#log form button", "business")
    # It is shown again after a reload.
    driver.refresh()
    links = [link.get_attribute("href") for link in find(driver, "#log li", "Which class?").find_elements(By.TAG_NAME, "a")]
    assert links == ["https://air.example/classes"], links
    click(driver, "#log form button", "business")
    find(driver, "#log li", "Which seat?")
    find(driver, '#log input[placeholder="the row"]').send_keys("12")
    find(driver, '#log input[placeholder="letter"]').send_keys("C")
    click(driver, "#log form button", "Answer")
    find(driver, "#log input[type=password]").send_keys("1234")
    click(driver, "#log form button", "Answer")
    find(driver, "#log li", "Result: 12C on OS 87, business, code of 4")
    find(driver, "#ask input").clear()
    find(driver, "#ask input").send_keys("book")
    click(driver, "#ask button")
    click(driver, "#log form button", "Decline")
    find(driver, "#log li", "the user declined to answer")


def screenshots():
    run = ask("two")
    for name, width, dark in (("light", 1100, False), ("dark", 1100, True), ("phone", 390, False)):
        driver = browser(width, 800, dark)
        driver.get(BASE)
        find(driver, "#runs li")
        shoot(driver, f"list-{name}")
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), name
        open_run(driver, run)
        find(driver, ".wait")
        find(driver, "details.call")
        shoot(driver, f"run-{name}")
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), name
        driver.quit()


driver = browser()
try:
    for check in (
        list_and_filters, live_run, changed_arguments, denied, told, questions, secrets, inside, two_windows, cancelled, undone, hostile,
        plain, requests, no_key, keyboard, documented_chat,
    ):
        if IS_BALANCED and check is requests:
            continue
        try:
            check(driver)
        except BaseException:
            shoot(driver, "failed")
            print(f"{check.__name__} failed; see failed.png", file=sys.stderr)
            raise
        print(f"page: {check.__name__}")
    errors = [entry["message"] for entry in driver.get_log("browser")]
    expected = ("status of 400", "status of 401", "status of 409", "[DOM]", "favicon.ico")
    errors = [error for error in errors if not any(text in error for text in expected)]
    assert not errors, errors
    wrong_origin(driver)
    print("page: wrong_origin")
finally:
    driver.quit()
screenshots()
print(f"screenshots: {SCREENSHOTS}")
