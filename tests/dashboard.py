#!/usr/bin/env python3
"""Tests the dashboard of an origin in a browser: dashboard.py PLATTER STORE WORK PORT

The store has images, one with a hostile note, and the tokens of WORK/token (for all images) and WORK/token-lab (for lab/*). The
page is compared with the output of commands while the catalog changes, and while the origin is killed and restarted.
Screenshots go to $PLATTER_SCREENSHOTS, if that is set. Prints "ok dashboard: NAME" or "not ok dashboard: NAME" for each check.
"""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from browser import Browser

PLATTER, STORE, WORK, PORT = sys.argv[1:]
HERE = pathlib.Path(__file__).parent
SITE = f"https://127.0.0.1:{PORT}"
LOOK = (HERE / "dashboard.js").read_text(encoding="utf-8")
SOCKET = f"{STORE}/serve.sock"
# Hostile text, for every field that others can write.
HOSTILE = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>"
PHONE = (360, 780)
failed = 0


def check(name, is_good, *why):
    global failed
    failed += not is_good
    print("ok" if is_good else "not ok", "dashboard:", name, flush=True)
    if not is_good:
        for line in why:
            print("   ", line, flush=True)


def platter(*arguments, wait_for_lock=True):
    """The JSON output of a command, as a list of objects."""
    deadline = time.monotonic() + 30
    while True:
        command = [PLATTER, "--store", STORE, "--quiet", "--json", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return [json.loads(line) for line in run.stdout.splitlines()]
        # The origin holds the store's lock for a short time.
        if not wait_for_lock or time.monotonic() > deadline:
            raise RuntimeError(f"{' '.join(arguments)}: {run.stderr}")
        time.sleep(0.2)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the origin's socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(SOCKET)


def ask(method, path, body=None, headers=None):
    connection = UnixConnection("origin")
    connection.request(method, path, None if body is None else json.dumps(body), headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def start_origin():
    log = open(f"{WORK}/origin.log", "ab")
    command = [PLATTER, "--store", STORE, "serve", "--listen", f"unix:{SOCKET}", "--listen", f"127.0.0.1:{PORT}"]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    for _ in range(200):
        try:
            if ask("GET", "/healthz")[0] == 200:
                return process
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(pathlib.Path(f"{WORK}/origin.log").read_text(encoding="utf-8"))


def key_of_certificate():
    """The hash by which the browser trusts the origin's certificate only."""
    command = (
        f"openssl x509 -in '{STORE}/serve-certificate.pem' -pubkey -noout | openssl pkey -pubin -outform DER"
        " | openssl dgst -sha256 -binary | openssl base64"
    )
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip()


def look(page, call):
    return page.evaluate(f"({LOOK}).{call}")


def shot(page, name):
    folder = os.environ.get("PLATTER_SCREENSHOTS")
    if folder:
        os.makedirs(folder, exist_ok=True)
        page.screenshot(f"{folder}/{name}.png")


def enter(page, token):
    """Types an access token into the form."""
    page.evaluate("document.getElementById('token').focus()")
    page.type(token)
    page.press("Enter", 13)


IS_GOOD = "document.getElementById('status').className === 'good'"
IS_READ = f"{IS_GOOD} && document.querySelector('#catalog-table') && document.querySelector('#disks-table')"


def check_access(browser, token):
    """The page needs no token, but its data does."""
    page = browser.page()
    page.open(f"{SITE}/")
    check("the page asks for an access token", page.wait(f"({LOOK}).shown('token')"))
    check("without a token, no data is shown", not look(page, "shown('data')") and "lab/" not in page.evaluate("document.body.innerHTML"))
    enter(page, "platter-wrong")
    check("a wrong token is refused, with the reason", page.wait("document.getElementById('access-why').textContent.includes('does not know')"))
    page.complaints.clear()
    enter(page, token)
    check("with the right token, the store is shown", page.wait(IS_READ), page.evaluate("document.body.innerText"))
    stored = page.evaluate("JSON.stringify([Object.keys(sessionStorage), Object.keys(localStorage), document.cookie])")
    check("the token is kept in this tab only", json.loads(stored) == [["platter-access-token"], [], ""], stored)
    page.evaluate("window.isBefore = true")
    page.call("Page.reload")
    check("the token is kept after a reload", page.wait(f"!window.isBefore && {IS_READ}"))
    page.evaluate("document.getElementById('leave').click()")
    check("the token can be removed", page.wait(f"({LOOK}).shown('token') && sessionStorage.length === 0"))
    check("removing the token removes all data", "lab/" not in page.evaluate("document.body.innerHTML"))


def check_catalog(page):
    told = {it["image"]: it for it in platter("images")}
    rows = {row["Image"]: row for row in look(page, "rows('catalog-table')")}
    wanted = {
        name: (it["number"], it["disk_length"], it["allocated_bytes"], it["new_stored_bytes"], it["notes"]) for name, it in told.items()
    }
    shown = {name: (row["Version"], row["Disk"], row["In use"], row["Added"], row["Note"]) for name, row in rows.items()}
    check("the catalog equals that of `platter images`", shown == wanted, shown, wanted)
    shares = {name: round(max(1 - it["new_raw_bytes"] / it["allocated_bytes"], 0), 4) for name, it in told.items()}
    check("the catalog has the shared sizes", all(abs(rows[name]["Shared"] - share) < 0.0002 for name, share in shares.items()), rows, shares)
    counts = {name: len(platter("history", name)) for name in told}
    check("the catalog has the numbers of versions", counts == {name: row["Versions"] for name, row in rows.items()}, counts)
    page.evaluate("[...document.querySelectorAll('button.name')].find((it) => it.textContent === 'lab/debian').click()")
    page.wait("document.getElementById('versions-table')")
    history = platter("history", "lab/debian")
    shown = [(row["Version"], row["Added"], row["Note"]) for row in look(page, "rows('versions-table')")]
    wanted = [(f"{it['image']}@{it['number']}", it["new_stored_bytes"], it["notes"]) for it in history]
    check("the versions of an image equal those of `platter history`", shown == wanted, shown, wanted)
    check("the versions get the focus", page.wait("document.activeElement.id === 'versions-title'"))
    page.evaluate("document.getElementById('filter').focus()")
    page.type("other")
    check("images can be filtered by name", page.wait(f"({LOOK}).rows('catalog-table').every((it) => it.Image.includes('other'))"))
    page.evaluate("const it = document.getElementById('filter'); it.value = ''; it.dispatchEvent(new Event('input'))")


def check_growth(page):
    versions = [it for image in platter("images") for it in platter("history", image["image"])]
    page.evaluate("document.getElementById('growth-details').open = true")
    rows = look(page, "rows('growth-table')")
    added = sorted((f"{it['image']}@{it['number']}", it["new_stored_bytes"]) for it in versions)
    shown = sorted((row["Up to version"], row["Added"]) for row in rows)
    check("growth: every version with the bytes that it added", shown == added, shown, added)
    total = sum(it["new_stored_bytes"] for it in versions)
    check("growth: the total", rows[-1]["Stored in total"] == total, rows[-1], total)
    order = [it["image"] + "@" + str(it["number"]) for it in sorted(versions, key=lambda it: it["time_unix_ms"])]
    check("growth: in the order of publishing", [row["Up to version"] for row in rows] == order, rows, order)
    bars = page.evaluate("document.querySelectorAll('#growth svg .bar').length")
    check("growth: a diagram with a bar per version", bars == len(versions), bars)
    named = page.evaluate("(() => { const it = document.querySelector('#growth svg'); return it.getAttribute('role') === 'img' && "
                          "it.getAttribute('aria-labelledby').split(' ').every((id) => document.getElementById(id).textContent) && "
                          "document.getElementById(it.getAttribute('aria-describedby')).textContent.length > 20 })()")
    check("growth: the diagram has a description", named)


def check_costs(page):
    shown = "document.getElementById('costs').textContent"
    check("costs are not counted unless asked", "Only here" not in look(page, "rows('catalog-table')")[0], page.evaluate(shown))
    page.evaluate("document.querySelector('#costs button').click()")
    check("costs are counted on request", page.wait(f"{shown}.includes('In several images')"), page.evaluate(shown))
    page.wait("document.querySelector('#catalog-table').tHead.textContent.includes('Only here')")
    told = {it["image"]: it["exclusive_bytes"] for it in platter("images", "--costs")[0]["images"]}
    rows = {row["Image"]: row["Only here"] for row in look(page, "rows('catalog-table')")}
    check("they equal those of `platter images --costs`", rows == told and max(told.values()) > 0, rows, told)
    check("what is up to date has no button", page.evaluate("document.querySelector('#costs button') === null"))
    check("the trash is shown", "Trash: " in page.evaluate(shown), page.evaluate(shown))


def check_disks(page):
    command = [PLATTER, "--store", STORE, "attach", "--write", "--nbd", f"{WORK}/nbd.sock", "lab/debian"]
    deadline = time.monotonic() + 30
    while True:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = next((line for line in server.stdout if line.startswith("score ")), None)
        if said or time.monotonic() > deadline:
            break
        server.wait()
    try:
        shown = "({0}).rows('disks-table').some((it) => it.Disk === 'lab/debian' && it['Served by'] === 'this machine')".format(LOOK)
        check("an attached disk appears without a reload", page.wait(shown))
        told = [(it["disk"], it["holder"], it["edit_lock"], it["disk_bytes"]) for it in platter("disks")]
        rows = [(row["Disk"], row["Edit lock held by"], row["Lock"], row["Size"]) for row in look(page, "rows('disks-table')")]
        check("the disk has the holder of its edit lock, as in `platter disks`", rows == told, rows, told)
    finally:
        server.terminate()
        server.wait()
    gone = "({0}).rows('disks-table').every((it) => it['Served by'] !== 'this machine')".format(LOOK)
    check("a disk with changes is shown also when it is not served", page.wait(gone))
    platter("discard", "lab/debian")
    check("a discarded disk disappears", page.wait(f"({LOOK}).rows('disks-table').length === 0"))


def cast_report(state, done):
    receiver = {"name": HOSTILE, "state": "receiving", "reason": None, "done_chunks": done, "wanted_chunks": 40, "written_bytes": 0,
                "seconds": 3.5, "repaired_symbols": 7, "limited_by": "disk"}
    failed = {**receiver, "name": "seat-2", "state": "failed", "reason": "the disk is full"}
    return {
        "version": "lab/debian@1", "score": platter("show", "lab/debian@1")[0]["score"], "sender": HOSTILE, "group": "239.255.0.1:7580",
        "state": state, "reason": None, "cast_bytes": 40 << 20, "sent_bytes": 12345678, "rate_bits_per_second": 400000000, "seconds": 4.0,
        "receivers_total": 2, "receivers_done": 0, "receivers": [receiver, failed],
    }


def check_casts(page):
    cast = "c" * 32
    status, said = ask("POST", f"/api/v1/casts/{cast}", cast_report("casting", 10))
    check("the sender of a cast reports to the origin", status == 204, said)
    table = f"cast-{cast}-table"
    check("a cast appears without a reload", page.wait(f"document.getElementById('{table}')"))
    rows = look(page, f"rows('{table}')")
    wanted = [(HOSTILE, "receiving", 0.25, ""), ("seat-2", "failed", 0.25, "the disk is full")]
    shown = [(row["Receiver"], row["State"], row["Received"], row["Reason"]) for row in rows]
    check("the cast has all its receivers", shown == wanted, shown)
    ask("POST", f"/api/v1/casts/{cast}", cast_report("casting", 20))
    check("the progress of the cast is updated", page.wait(f"({LOOK}).rows('{table}')[0].Received === 0.5"))
    ask("POST", f"/api/v1/casts/{cast}", cast_report("done", 40))
    check("the end of the cast is shown", page.wait("document.querySelector('#casts article').dataset.state === 'done'"))


def check_nodes(page):
    check("without nodes, a note is shown", page.wait("document.getElementById('nodes').innerText.includes('No node has reported')"))
    node = {
        "id": "a" * 32, "name": HOSTILE, "peer_address": "192.0.2.7:7441", "fingerprint": "b" * 64, "hoard_revision": None,
        "counters": {"hits": 90, "misses": 10, "origin_bytes": 1234567}, "disks": [
            {"name": "lab/debian", "image": "lab/debian@1", "writable": True, "edit_lock_holder": HOSTILE}],
    }
    status, said = ask("POST", "/api/v1/nodes", node)
    check("a node reports to the origin", status == 200, said)
    check("the node appears without a reload", page.wait(f"({LOOK}).rows('nodes-table').length === 1"))
    row = look(page, "rows('nodes-table')")[0]
    shown = (row["Node"], row["State"], row["Address for peers"], row["Hit rate"], row["Disks"], row["Counters"])
    check("the node has the reported data", shown == (HOSTILE, "there", "192.0.2.7:7441", 0.9, 1, "origin bytes 1.23 MB"), shown)
    disks = f"({LOOK}).rows('disks-table').some((it) => it.Disk === 'lab/debian' && it['Edit lock held by'].startsWith('<img'))"
    check("the node's disks are in the list of disks", page.wait(disks))


def check_news(page):
    page.evaluate("window.sameDocument = true")
    before = len(look(page, "rows('catalog-table')"))
    platter("clone", "lab/debian@1", "lab/new")
    seen = f"({LOOK}).rows('catalog-table').some((it) => it.Image === 'lab/new') && window.sameDocument"
    check("a new image appears without a reload", page.wait(seen), f"{before} images before")
    said = "[...document.querySelectorAll('#events-list li')].some((it) => it.textContent.includes('lab/new@1 was published'))"
    check("the new image is in the list of events", page.wait(said))
    platter("rename", "lab/new", "lab/newer")
    check("a renamed image is in the list of events", page.wait(f"({LOOK}).rows('catalog-table').some((it) => it.Image === 'lab/newer') && window.sameDocument"))
    platter("lock", "take", "lab/newer")
    check("a taken edit lock is in the list of events", page.wait(f"({LOOK}).rows('disks-table').some((it) => it.Disk === 'lab/newer')"))
    platter("lock", "release", "lab/newer")
    check("a released edit lock is in the list of events", page.wait(f"({LOOK}).rows('disks-table').length === 0"))


def check_hostile(page):
    shown = [row["Note"] for row in look(page, "rows('catalog-table')")]
    check("a hostile note is shown as text", HOSTILE in shown, shown)
    check("no text was inserted as an element", page.evaluate("document.images.length + document.querySelectorAll('body script').length") == 0)
    check("no text was executed", page.evaluate("window.hacked === undefined"))
    thrown = page.evaluate("(() => { try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return false } catch { return true } })()")
    check("the browser's policy would prevent execution", thrown)
    page.complaints.clear()


def check_outage(page, origin):
    """Kills the origin and starts another one."""
    complaints = list(page.complaints)
    origin.kill()
    origin.wait()
    check("the page reports that the origin is down", page.wait("document.getElementById('status').textContent.includes('does not answer')"))
    check("the last data stays visible", len(look(page, "rows('catalog-table')")) > 0)
    platter("clone", "lab/debian@1", "lab/meanwhile")
    origin = start_origin()
    seen = f"{IS_GOOD} && ({LOOK}).rows('catalog-table').some((it) => it.Image === 'lab/meanwhile') && window.sameDocument"
    check("the page reconnects without a reload, and shows what has changed", page.wait(seen, 30), page.evaluate("document.getElementById('status').textContent"))
    # The console reports the requests that failed while the origin was down.
    page.complaints[:] = complaints
    return origin


def check_tree(page, name):
    """Checks the accessibility tree."""
    tree = page.accessibility()
    roles = {role for role, _ in tree}
    lacking = {"banner", "navigation", "main", "contentinfo", "log", "status"} - roles
    check(f"{name}: landmarks", not lacking, lacking)
    tables = [name for role, name in tree if role == "table"]
    check(f"{name}: every table has a name", len(tables) >= 4 and all(tables), tables)
    check(f"{name}: tables have headers of columns and rows", {"columnheader", "rowheader", "cell"} <= roles, roles)
    regions = [name for role, name in tree if role == "region"]
    check(f"{name}: every section has a name", len(regions) >= 7 and all(regions), regions)


def check_reading(page):
    check("every table has a caption", look(page, "unnamed()") == [], look(page, "unnamed()"))
    check("headings in order", look(page, "skips()") == [], look(page, "skips()"))
    check("every field and button has a name", look(page, "nameless()") == [], look(page, "nameless()"))
    check_tree(page, "wide")
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme)
        check(f"{scheme}: contrast", look(page, "faint()") == [], look(page, "faint()"))
        shot(page, scheme)
    page.media(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    ask("POST", "/api/v1/edit-locks", {"image": "lab/newer", "holder": HOSTILE})
    page.wait("document.querySelector('#events-list li').textContent.includes('holds the edit lock')")
    check("no animations with reduced motion", page.evaluate("document.getAnimations().length") == 0)
    page.media(prefers_color_scheme="light")
    page.evaluate("document.querySelector('.skip').focus()")
    unseen = []
    for _ in range(12):
        page.press("Tab", 9)
        if not look(page, "focused()"):
            unseen.append(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
    check("the focus is visible", unseen == [], *unseen)


def check_phone(page):
    page.size(*PHONE, phone=True)
    page.wait("document.documentElement.clientWidth === 360")
    time.sleep(0.3)
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    check("phone: no horizontal scrolling", width[0] <= width[1] == PHONE[0], width, look(page, "wide()"))
    check_tree(page, "phone")
    check("phone: contrast", look(page, "faint()") == [], look(page, "faint()"))
    shot(page, "phone")


def check_hoard(browser, token):
    """A hoard, with outdated and absent nodes, as an origin reports them."""
    page = browser.page()
    description = json.loads(ask("GET", "/api/v1/openapi.json")[1])
    for path in ("/api/v1/nodes", "/api/v1/hoard"):
        description["paths"].setdefault(path, {})
    node = {"id": "a" * 32, "name": HOSTILE, "peer_address": "192.0.2.7:7441", "fingerprint": "b" * 64, "hoard_revision": 5,
            "counters": {"hits": 90, "misses": 10, "origin_bytes": 1234567, "evicted": 3}, "seen_unix_ms": 1790000000000, "is_there": True,
            "disks": [{"name": "lab/debian", "image": "lab/debian@1", "writable": True, "edit_lock_holder": HOSTILE}]}
    away = {**node, "id": "b" * 32, "name": "node-2", "is_there": False, "peer_address": None, "counters": {}, "disks": [], "hoard_revision": 7}
    record = {"blocks": 1200, "bytes": 34567890, "duration_ms": 12500, "marker": HOSTILE, "time_unix_ms": 1790000000000}
    members = [{"image": "lab/debian", "number": 1, "boot_set": "d" * 64, "added": 7, "record": record}]
    page.reply({
        "/api/v1/openapi.json": description,
        "/api/v1/nodes": {"nodes": [node, away], "hoard_revision": 7},
        "/api/v1/hoard": {"revision": 7, "members": members},
    })
    page.open(f"{SITE}/")
    page.wait(f"({LOOK}).shown('token')")
    enter(page, token)
    check("nodes are shown", page.wait(f"({LOOK}).rows('nodes-table').length === 2"), page.complaints)
    rows = look(page, "rows('nodes-table')")
    shown = [(row["Node"], row["State"], row["Hit rate"], row["Disks"]) for row in rows]
    check("nodes have their hit rates and states", shown == [(HOSTILE, "there", 0.9, 1), ("node-2", "away", "", 0)], shown)
    check("nodes have their hoard revisions", page.evaluate("document.getElementById('nodes').innerText.includes('5 (2 behind)')"))
    shown = [(row["Disk"], row["Served by"]) for row in look(page, "rows('disks-table')")]
    check("their disks stand with the others", ("lab/debian", HOSTILE) in shown, shown)
    check("the hoard is shown", page.wait(f"({LOOK}).rows('hoard-table')[0].Bytes === 34567890"))
    check("no text of a node was executed", page.evaluate("window.hacked === undefined && document.images.length === 0"))
    page.size(*PHONE, phone=True)
    time.sleep(0.3)
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    check("phone: the nodes fit", width[0] <= width[1], width, look(page, "wide()"))
    check("no errors in the console", page.complaints == [], *page.complaints)


def click(page, text):
    """Presses a button of the files that are shown, once it is there."""
    find = f"[...document.querySelectorAll('#files button')].find((it) => it.textContent === {json.dumps(text)})"
    return page.wait(find) and page.evaluate(f"{find}.click()") is None


def saved(folder, wanted):
    """Waits until a directory has a file with these contents."""
    for _ in range(200):
        for path in folder.iterdir():
            if path.suffix != ".crdownload" and path.read_bytes() == wanted:
                path.unlink()
                return True
        time.sleep(0.1)
    return False


def names(page):
    return [row["Name"] for row in look(page, "rows('files-table')")]


def check_files(browser, token):
    """Browses to files of a version, and downloads them."""
    page = browser.page()
    folder = pathlib.Path(f"{WORK}/downloads")
    folder.mkdir()
    page.save_to(str(folder))
    page.open(f"{SITE}/")
    page.wait(f"({LOOK}).shown('token')")
    enter(page, token)
    for opener in ("open lab/inside", "open lab/inside@1"):
        find = f"[...document.querySelectorAll('[data-focus]')].find((it) => it.dataset.focus === '{opener}')"
        page.wait(find)
        page.evaluate(f"{find}.click()")
    check("files: the partitions are shown", page.wait(f"({LOOK}).rows('partitions-table').length === 1"), page.complaints)
    told = [(it["filesystem"], it["length"]) for it in platter("ls", "lab/inside")]
    rows = [(row["Contents"], row["Size"]) for row in look(page, "rows('partitions-table')")]
    check("files: as `platter ls` prints them", rows == told, rows, told)
    click(page, "disk")
    page.wait(f"({LOOK}).rows('files-table').length > 3")
    told = [it["name"] for it in platter("ls", "lab/inside:/")]
    check("files: a directory has the names that `platter ls` prints", names(page) == told, names(page), told)
    check("files: a hostile name is text", page.evaluate("document.images.length === 0 && window.hacked === undefined"))
    check("files: tables and headings are named", look(page, "unnamed()") == [] and look(page, "skips()") == [] and look(page, "nameless()") == [])
    big = pathlib.Path(f"{WORK}/inside/deep/er/big.bin").read_bytes()
    hostile = next(name for name in told if name.startswith("<script>"))
    click(page, hostile)
    check("files: a file with a hostile name is downloaded", saved(folder, big))
    click(page, next(name for name in told if name.endswith(".txt")))
    check("files: a file whose name is not text is downloaded", saved(folder, b"not text\n"))
    check("files: nothing was executed", page.evaluate("window.hacked === undefined"))

    click(page, "deep")
    click(page, "er")
    click(page, "big.bin")
    check("files: a file in a directory is downloaded", saved(folder, big))
    click(page, "disk:/")
    page.wait(f"({LOOK}).rows('files-table').length > 3")
    click(page, "to-directory")
    check("files: a link to a directory leads there", page.wait(f"({LOOK}).rows('files-table')[0].Name === 'big.bin'"))
    click(page, "disk:/")
    click(page, "to-file")
    click(page, "Download")
    check("files: a link to a file is downloaded", saved(folder, big))
    complaints = list(page.complaints)
    click(page, "disk:/")
    click(page, "to-nothing")
    check("files: a link leads nowhere outside of the version", page.wait("document.querySelector('#files .bad')?.textContent.includes('there is no')"))
    # The console reports the 404.
    page.complaints[:] = complaints

    click(page, "disk:/")
    click(page, "many")
    seen = []
    for number in range(6):
        page.wait(f"({LOOK}).rows('files-table')[0].Name === 'name-{500 * number + 1:04}'")
        seen += names(page)
        if number < 5:
            click(page, "Next names")
    check("files: 3,000 names are shown in six parts", seen == [f"name-{number:04}" for number in range(1, 3001)], len(seen))
    check("files: the last part is the end", page.evaluate("!document.getElementById('files').innerText.includes('Next names')"))
    click(page, "Previous names")
    check("files: the part before is shown", page.wait(f"({LOOK}).rows('files-table')[0].Name === 'name-2001'"))
    page.size(*PHONE, phone=True)
    time.sleep(0.3)
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    check("files: they fit on a phone", width[0] <= width[1], width, look(page, "wide()"))
    shot(page, "files")
    click(page, "Close")
    check("files: they are closed", not look(page, "shown('files')"))
    check("files: no errors in the console", page.complaints == [], *page.complaints)


def check_files_of_others(page):
    """A token for other images."""
    for path in ("partitions?", "files?", "files/contents?path=/a&"):
        ask = "(version) => fetch(`/api/v1/%sversion=${version}`, {headers: {authorization: `Bearer ${sessionStorage.getItem('platter-access-token')}`}})" % path
        hidden, absent = page.evaluate(f"Promise.all(['other/raw', 'other/non'].map(async (it) => {{ const r = await ({ask})(it); return [r.status, await r.text()] }}))")
        same = hidden[1].replace("other/raw", "other/non") == absent[1]
        check(f"files: a token without permission learns nothing ({path})", hidden[0] == absent[0] == 404 and same, hidden, absent)


def check_private(browser, token):
    page = browser.page()
    page.open(f"{SITE}/")
    page.wait(f"({LOOK}).shown('token')")
    enter(page, token)
    check("a token for some images shows these images", page.wait(IS_READ))
    page.evaluate("document.getElementById('growth-details').open = true")
    check("a token for some images shows no others", "other/" not in page.evaluate("document.body.innerHTML"))
    check("a token for some images: no errors in the console", page.complaints == [], *page.complaints)
    check_files_of_others(page)


def relay(listener):
    """Relays between TCP and the origin's socket, like `ssh -L`."""
    def carry(here, there):
        try:
            while part := here.recv(65536):
                there.sendall(part)
        except OSError:
            pass
        for end in (here, there):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        far.connect(SOCKET)
        for ends in ((near, far), (far, near)):
            threading.Thread(target=carry, args=ends, daemon=True).start()


def check_relay(browser):
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=relay, args=(listener,), daemon=True).start()
    page = browser.page()
    page.open(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    check("unix socket: no token is needed", page.wait(IS_READ), page.complaints)
    check("unix socket: no token can be removed", not look(page, "shown('leave')"))
    port = listener.getsockname()[1]
    for headers in ({"Host": "evil.example"}, {"Host": f"localhost:{port}", "Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        status, _ = ask("GET", "/api/v1/images", headers=headers)
        check(f"unix socket: a page of another site gets no data ({' '.join(headers)})", status == 403, status)


def main():
    token = pathlib.Path(f"{WORK}/token").read_text(encoding="ascii").strip()
    origin = start_origin()
    browser = Browser(f"{WORK}/profile", f"--ignore-certificate-errors-spki-list={key_of_certificate()}")
    try:
        check_access(browser, token)
        page = browser.page()
        page.open(f"{SITE}/")
        page.wait(f"({LOOK}).shown('token')")
        enter(page, token)
        check("the page is loaded", page.wait(IS_READ), page.complaints)
        check_catalog(page)
        check_growth(page)
        check_costs(page)
        check_disks(page)
        check_casts(page)
        check_news(page)
        check_nodes(page)
        check("no errors in the console", page.complaints == [], *page.complaints)
        check_hostile(page)
        origin = check_outage(page, origin)
        # State that an origin keeps only in memory.
        check_casts(page)
        check_nodes(page)
        check_reading(page)
        check_phone(page)
        check("no errors in the console at the end", page.complaints == [], *page.complaints)
        elsewhere = [url for url in page.requests if not url.startswith(f"{SITE}/")]
        check("no requests went to other servers", elsewhere == [] and len(page.requests) > 20, *elsewhere)
        check_hoard(browser, token)
        check_files(browser, token)
        check_private(browser, pathlib.Path(f"{WORK}/token-lab").read_text(encoding="ascii").strip())
        check_relay(browser)
    finally:
        browser.close()
        origin.kill()
        origin.wait()
    return 1 if failed else 0


sys.exit(main())
