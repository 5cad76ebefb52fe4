"""tests/e2e/console/browser.py: the console's page in Chromium, used as its users do. Each step leaves a picture in the
test's folder."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import urllib.parse

import native
import nebula

try:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
MIB = 1 << 20
BIG_MIB = 200
# The package that contains axe-core, which checks the accessibility of pages.
AXE = "axe-playwright-python==0.1.8 --hash=sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8\n"
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# Each of these calls window.hit() if a page treats it as more than text.
HOSTILE = ['<img src=x onerror="hit()">.html', '"><svg onload=hit()>.svg', "javascript:hit()", "'-hit()-'.txt", "{{hit()}}.json"]
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000020000000208020000" "00fdd49a730000000e49444154789c63f8cfc0c0c0c0c0c00000140003"
                    "0103fb5d5b0000000049454e44ae426082")


EVIL = "<img src=x onerror=hit()>"


def safetensors():
    head = json.dumps({"__metadata__": {"format": "pt"}, EVIL: {"dtype": "F16", "shape": [3, 4], "data_offsets": [0, 24]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(24)


def parquet():
    """One column and no row groups; the metadata in Thrift's compact protocol."""
    def text(value):
        return bytes([len(value)]) + value.encode()

    metadata = (b"\x15\x02\x19\x2c" b"\x48" + text("schema") + b"\x15\x02\x00" b"\x15\x04\x25\x02\x18" + text("price") + b"\x00"
                b"\x16\xf2\xc0\x01\x19\x0c\x28" + text("a test") + b"\x00")
    return b"PAR1" + metadata + struct.pack("<I", len(metadata)) + b"PAR1"


def pcapng():
    """Two packets of an interface with times in nanoseconds."""
    def block(kind, body):
        length = len(body) + 12
        return struct.pack("<II", kind, length) + body + struct.pack("<I", length)

    packets = [block(6, struct.pack("<IIIII", 0, *divmod(at * 10**9, 1 << 32), 60, 1500) + bytes(60)) for at in (1_000_000_000, 1_000_000_001)]
    return block(0x0a0d0d0a, struct.pack("<IHHq", 0x1a2b3c4d, 1, 0, -1)) + block(1, struct.pack("<HHI", 1, 0, 0) + struct.pack("<HH4sHH4sHH", 2, 4, b"eth7", 9, 1, b"\x09", 0, 0)) + b"".join(packets)


def missing():
    """Why the browser cannot run here; None: it can."""
    if not webdriver:
        return "python3-selenium is not installed: scripts/deps test"
    return next((f"{path} is not there: scripts/deps test" for path in (CHROMIUM, DRIVER) if not pathlib.Path(path).exists()), None)

# The elements of a selector that one sees, and that say a text: one call of the browser, however many they are.
SHOWN = """function shown(selector, text) {
    const says = (each) => (each.innerText ?? each.textContent).replace(/[\\t ]+/g, ' ').includes(text) || each.getAttribute('aria-label') === text;
    const seen = (each) => each.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) && [...each.getClientRects()].some((box) => box.width && box.height);
    return [...document.querySelectorAll(selector)].filter((each) => (text === null || says(each)) && seen(each));
}
"""


class Page:
    """A browser with one window."""

    def __init__(self, address, folder, width=1280, height=900, dark=False):
        self.url = f"http://{address}"
        self.folder = folder
        self.pictures = 0
        options = Options()
        options.binary_location = CHROMIUM
        # The sandbox needs rights that a container seldom has; this browser sees this server alone.
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en",
                     "--no-first-run", "--disable-background-networking", "--disable-component-update", f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.add_experimental_option("prefs", {"download.default_directory": str(folder / "downloads"), "download.prompt_for_download": False,
                                                  "credentials_enable_service": False, "profile.password_manager_enabled": False})
        self.driver = webdriver.Chrome(service=Service(DRIVER, log_path=str(folder / "chromedriver.log")), options=options)
        self.driver.set_script_timeout(nebula.PATIENCE_S)
        self.size(width, height)
        self.dark(dark)

    def close(self):
        self.driver.quit()

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def dark(self, dark):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                                              {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def picture(self, name):
        self.pictures += 1
        self.driver.save_screenshot(str(self.folder / f"{self.pictures:02}-{name}.png"))

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector, text=None):
        """The visible elements with that text."""
        return self.run(SHOWN + "return shown(...arguments)", selector, text)

    def texts(self, selector, text=None):
        """The text of each, all at one moment."""
        return self.run(SHOWN + "return shown(...arguments).map((each) => each.innerText)", selector, text)

    def one(self, selector, text=None):
        """Waits for the first of them."""
        if not nebula.becomes(lambda: self.all(selector, text)):
            self.picture("missing")
            raise RuntimeError(f"{selector} {text or ''} did not appear; the page says: {self.driver.find_element(By.TAG_NAME, 'body').text[:600]}")
        found = self.all(selector, text)
        return found[0] if found else self.one(selector, text)

    def gone(self, selector, text=None):
        return nebula.becomes(lambda: not self.all(selector, text))

    def click(self, selector, text=None):
        element = self.one(selector, text)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def type(self, selector, text):
        element = self.one(selector)
        element.clear()
        element.send_keys(text)

    def go(self, place, selector, text=None):
        self.run("location.hash = arguments[0]", "#/" + place)
        return self.one(selector, text)

    def sign_in(self, access_key, secret_key):
        self.type("#access-key", access_key)
        self.type("#secret-key", secret_key)
        self.click("button", "Sign in")

    def loaded(self):
        return self.gone(".waiting")

    def complaints(self):
        """The browser's errors, except answers that the page expects."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING") and not re.search(r"responded with a status of 4", entry["message"])]


def axe_source(tap, folder):
    """axe-core's source, from the registry of Python's packages; None if the registry does not answer."""
    kept = pathlib.Path(os.environ.get("BUILD_DIR", folder)) / "axe.min.js"
    if not kept.exists():
        wanted, place = folder / "axe.txt", folder / "axe"
        wanted.write_text(AXE)
        done = subprocess.run([sys.executable, "-m", "venv", str(place)], capture_output=True, text=True)
        if done.returncode == 0:
            try:
                done = subprocess.run([place / "bin/pip", "install", "--no-deps", "--require-hashes", "--no-compile", "-q", "-r", str(wanted)], capture_output=True, text=True, timeout=nebula.PATIENCE_S)
            except subprocess.TimeoutExpired as late:
                tap.skip("what axe-core finds", f"it cannot be had from the registry: {late}")
                return None
        found = list(place.glob("lib/*/site-packages/*/axe.min.js"))
        if not found:
            tap.skip("what axe-core finds", "it cannot be had from the registry: " + done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no pip")
            return None
        part = kept.with_suffix(f".{os.getpid()}")
        shutil.copy(found[0], part)
        part.rename(kept)
    return kept.read_text()


class Walk:
    """The steps, in order; each uses the state that the one before left."""

    def __init__(self, tap, server, folder):
        self.tap, self.server, self.folder = tap, server, folder
        self.s3 = nebula.Client(server.http)
        self.page = Page(server.console, folder)
        self.axe = axe_source(tap, folder)

    def accessible(self, name):
        """axe-core finds no fault, in light and dark."""
        if not self.axe:
            return
        faults = []
        for dark in (False, True):
            self.page.dark(dark)
            self.page.run("return 'axe' in window") or self.page.run(self.axe)
            found = self.page.driver.execute_async_script(
                "const done = arguments[1]; axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']}).then((result) => done(result.violations))", AXE_RULES)
            faults += [(("dark" if dark else "light"), each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found]
        self.page.dark(False)
        self.tap.check(not faults, f"{name}: axe-core finds nothing", faults)

    def iam(self, action, **fields):
        """The answer of the server's own IAM to its root."""
        form = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08", **fields}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "x-amz-content-sha256": hashlib.sha256(form).hexdigest()}
        return nebula.Client(self.server.http, service="iam").request("POST", "/", form, headers=headers)[2].decode()

    def sign_in(self):
        page, tap = self.page, self.tap
        page.driver.get(page.url)
        page.one("#access-key")
        tap.check(page.run("return document.activeElement.id") == "access-key", "the first field has the keyboard")
        page.picture("sign-in")
        self.accessible("sign-in")
        page.sign_in(nebula.ACCESS_KEY, "wrong")
        tap.check("wrong" in page.one(".problem").text and not page.one("#secret-key").get_attribute("value"), "a wrong key is refused, and forgotten")
        page.picture("sign-in-refused")
        page.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY)
        page.one(".empty", "No buckets yet")
        stored = page.run("return JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie])")
        tap.check(stored == '[[],[],""]' and nebula.SECRET_KEY not in page.driver.page_source, "the page keeps no secret", stored)
        page.driver.refresh()
        tap.check(page.one(".empty"), "a reload stays signed in")

    def bucket(self):
        page, tap = self.page, self.tap
        page.picture("no-buckets")
        self.accessible("no buckets")
        page.click("button", "Create bucket")
        tap.check(page.run("return document.activeElement.id") == "bucket-name", "the dialog has the keyboard")
        page.type("#bucket-name", "Not_Valid")
        page.click("dialog button", "Create")
        page.one("dialog .problem")
        page.picture("bucket-refused")
        self.accessible("a dialog with an error")
        page.one("#bucket-name").send_keys(Keys.ESCAPE)
        tap.check(page.gone("dialog"), "Escape closes it")
        page.click("button", "Create bucket")
        page.type("#bucket-name", "photos")
        page.click("label", "Keep versions")
        page.click("dialog button", "Create")
        page.one("td a", "photos")
        tap.check(b"Enabled" in self.s3.request("GET", "/photos", query={"versioning": ""})[2], "a bucket with versions is made")
        page.picture("buckets")
        self.accessible("buckets")

    def upload(self):
        page, tap = self.page, self.tap
        path = self.folder / "big.bin"
        digest = hashlib.sha256()
        block = os.urandom(MIB)
        with open(path, "wb") as file:
            for number in range(BIG_MIB):
                data = number.to_bytes(8, "big") + block[8:]
                digest.update(data)
                file.write(data)
        page.click("td a", "photos")
        page.one(".empty", "Nothing here yet")
        page.picture("empty-bucket")
        page.driver.find_element(By.ID, "files").send_keys(str(path))
        page.one(".uploads progress, .uploads .done")
        page.picture("uploading")
        page.one(".uploads .done", "big.bin")
        page.one("button.item", "big.bin")
        page.picture("uploaded")
        status, headers, body = self.s3.request("GET", "/photos/big.bin")
        parts = -(-BIG_MIB // 16)
        tap.check(status == 200 and hashlib.sha256(body).digest() == digest.digest() and headers["etag"].endswith(f'-{parts}"'),
                  f"{BIG_MIB} MiB arrive in {parts} parts", (status, headers))
        path.unlink()
        small = self.folder / "dropped.txt"
        small.write_text("dropped\n")
        for kind in ("dragEnter", "dragOver", "drop"):
            page.driver.execute_cdp_cmd("Input.dispatchDragEvent", {"type": kind, "x": 600, "y": 400, "data": {"items": [], "files": [str(small)], "dragOperationsMask": 1}})
        page.one("button.item", "dropped.txt")
        tap.check(self.s3.request("GET", "/photos/dropped.txt")[2] == b"dropped\n", "a file that is dropped is uploaded")
        self.accessible("objects")

    def resume(self):
        """Half of an upload is there, one part of it with other bytes."""
        page, tap = self.page, self.tap
        path, body = self.folder / "half.bin", os.urandom(36 * MIB)
        path.write_bytes(body)
        started = self.s3.request("POST", "/photos/half.bin", query={"uploads": ""}, headers={"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"})[2].decode()
        upload = re.search("<UploadId>(.*)</UploadId>", started)[1]
        for number, part in ((1, body[:16 * MIB]), (2, bytes(16 * MIB))):
            self.s3.request("PUT", "/photos/half.bin", part, query={"uploadId": upload, "partNumber": str(number)})
        before = self.server.metrics_at_rest()["nebulaio_s3_requests_total" + '{operation="UploadPart",status="2xx"}']
        page.go("b/photos", "button.item", "dropped.txt")
        page.driver.find_element(By.ID, "files").send_keys(str(path))
        page.one("button.item", "half.bin")
        after = self.server.metrics_at_rest()["nebulaio_s3_requests_total" + '{operation="UploadPart",status="2xx"}']
        tap.check(self.s3.request("GET", "/photos/half.bin")[2] == body and after - before == 2 and
                  b"<Upload>" not in self.s3.request("GET", "/photos", query={"uploads": ""})[2],
                  "an upload goes on from what an earlier one left, where its bytes are the file's", after - before)
        path.unlink()

    def cancel(self):
        """While the parts that an earlier upload left are compared."""
        page, tap = self.page, self.tap
        path, body = self.folder / "cut.bin", os.urandom(20 * MIB)
        path.write_bytes(body)
        started = self.s3.request("POST", "/photos/cut.bin", query={"uploads": ""}, headers={"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"})[2].decode()
        self.s3.request("PUT", "/photos/cut.bin", body[:16 * MIB], query={"uploadId": re.search("<UploadId>(.*)</UploadId>", started)[1], "partNumber": "1"})
        page.run("""const real = Blob.prototype.arrayBuffer;
            window.held = [];
            Blob.prototype.arrayBuffer = function () { return new Promise((go) => held.push(() => go(real.call(this)))); };
            window.letGo = () => { Blob.prototype.arrayBuffer = real; held.forEach((go) => go()); };""")
        page.driver.find_element(By.ID, "files").send_keys(str(path))
        nebula.becomes(lambda: page.run("return held.length"))
        page.click("button", "Cancel cut.bin")
        page.run("letGo()")
        page.one(".uploads .cancelled", "cut.bin")
        tap.check(self.s3.request("GET", "/photos/cut.bin")[0] == 404 and nebula.becomes(
            lambda: b"<Upload>" not in self.s3.request("GET", "/photos", query={"uploads": ""})[2]), "an upload that is cancelled early is stored by no one")
        page.click(".uploads button", "Clear")
        path.unlink()

    def others(self):
        """A browser's paths, and requests without a version, must not reach another object."""
        page, tap = self.page, self.tap
        self.s3.request("PUT", "/dots")
        for key, body in (("a.txt", b"before"), ("./k", b"1")):
            self.s3.request("PUT", "/dots/" + key, body)
        path = self.folder / "a.txt"
        path.write_text("after")
        page.go("b/dots/.%2F", "button.item", "k")
        page.driver.find_element(By.ID, "files").send_keys(str(path))
        tap.check("No browser" in page.one(".uploads .problem").text and self.s3.request("GET", "/dots/a.txt")[2] == b"before",
                  "an upload to a name that no browser can ask for fails, and goes to no other one")
        page.click(".uploads button", "Clear")
        self.s3.request("PUT", "/turned")
        self.s3.request("PUT", "/turned/k", b"first words")
        self.s3.request("PUT", "/turned", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", query={"versioning": ""})
        self.s3.request("PUT", "/turned/k", b"last words")
        page.go("b/turned", "button.item", "k")
        page.click("button", "Show versions")
        nebula.becomes(lambda: len(page.all("button.item", "k")) == 2)
        page.all("button.item", "k")[1].click()
        tap.check(page.one("dialog", "first words") and page.one("dialog a", "Download").get_attribute("href").endswith("versionId=null"),
                  "an older version null is itself")
        page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        page.gone("dialog")
        page.click("button", "Show versions")

    def summaries(self):
        """The heads of well-known formats are shown, also when they lie."""
        page, tap = self.page, self.tap
        page.run("window.hits = 0; window.hit = () => { window.hits++; }")
        whole = {"m.safetensors": safetensors(), "t.parquet": parquet(), "c.pcapng": pcapng()}
        torn = {"torn.safetensors": struct.pack("<Q", 1 << 60) + bytes(20), "torn.parquet": b"PAR1" + bytes(20) + struct.pack("<I", 1 << 31) + b"PAR1", "torn.pcapng": pcapng()[:28] + b"\x01\0\0\0\x03\0\0\0" + bytes(20)}
        self.s3.request("PUT", "/formats")
        for name, body in (*whole.items(), *torn.items()):
            self.s3.request("PUT", "/formats/" + name, body)
        page.go("b/formats", "button.item", "m.safetensors")
        for name, words in (("m.safetensors", ("safetensors", EVIL, "3 × 4", "F16", "12")), ("t.parquet", ("Parquet", "price", "INT64", "optional", "12,345", "a test")),
                            ("c.pcapng", ("pcapng", "eth7", "Ethernet", "3,000", "2001-09-09T01:46:40"))):
            page.click("button.item", name)
            page.one("dialog table tbody td")
            seen = page.one("dialog .object").text
            tap.check(all(word in seen for word in words), f"{name}: its head is told", seen)
            page.picture(name.split(".")[1])
            self.accessible(name)
            page.click("dialog button", "Close")
        for name in torn:
            page.click("button.item", name)
            tap.check(page.one("dialog .quiet", "cannot be read as what it seems"), f"{name} is refused")
            page.click("dialog button", "Close")
        tap.check(page.run("return window.hits") == 0, "and no name of a tensor runs")

    def retention(self):
        page, tap = self.page, self.tap
        self.s3.request("PUT", "/locked", headers={"x-amz-bucket-object-lock-enabled": "true"})
        self.s3.request("PUT", "/locked/held", b"held")
        page.go("b/locked", "button.item", "held")
        page.click("button.item", "held")
        page.one("#retain-until")
        page.run("const e = document.getElementById('retain-until'); e.value = '2099-01-31'; e.dispatchEvent(new Event('input', {bubbles: true})); e.dispatchEvent(new Event('change', {bubbles: true}))")
        page.click("dialog button", "Retain")
        page.one("dialog .badge", "governance until")
        page.click("dialog button", "Put on legal hold")
        page.one("dialog button", "Lift the legal hold")
        page.picture("retention")
        self.accessible("retention")
        tap.check(b"2099-01-31" in self.s3.request("GET", "/locked/held", query={"retention": ""})[2] and
                  b"ON" in self.s3.request("GET", "/locked/held", query={"legal-hold": ""})[2], "a version is retained, and put on legal hold")
        page.click("dialog button", "Close")

    def preview(self):
        page, tap = self.page, self.tap
        for name, kind, body in (("a.txt", "text/plain", "héllo".encode()), ("a.json", "application/json", b'{"a":[1,{"b":2}]}'), ("a.png", "image/png", PNG),
                                 ("a.bin", "application/octet-stream", bytes(64)), ("folder/deep/x", "text/plain", b"x")):
            self.s3.request("PUT", "/photos/" + name, body, headers={"Content-Type": kind, "x-amz-meta-author": "Ann"})
        page.go("buckets", "td a", "photos")
        page.click("td a", "photos")
        page.click("button.item", "a.txt")
        tap.check(page.one("dialog pre").text == "héllo" and page.one("dialog dd", "Ann"), "a text is shown, and its metadata")
        page.picture("object")
        page.type("#tag-key", "who")
        page.type("#tag-value", "me: you + I")
        page.click("dialog button", "Add")
        page.one(".tags li", "who = me: you + I")
        tap.check(b"<Key>who</Key>" in self.s3.request("GET", "/photos/a.txt", query={"tagging": ""})[2], "a tag is added")
        page.click("dialog button", "Make a link")
        url = urllib.parse.urlsplit(page.one("dialog .copy code").text)
        connection = http.client.HTTPConnection(url.netloc, timeout=nebula.PATIENCE_S)
        connection.request("GET", f"{url.path}?{url.query}")
        tap.check(connection.getresponse().read() == "héllo".encode(), "a share link gives the object")
        self.accessible("an object")
        page.click("dialog a", "Download")
        kept = self.folder / "downloads/a.txt"
        tap.check(nebula.becomes(lambda: kept.exists() and kept.read_bytes() == "héllo".encode()), "a download is the object")
        page.click("dialog button", "Close")
        page.click("button.item", "a.json")
        tap.check('"b": 2' in page.one("dialog pre").text, "JSON is set in lines")
        page.click("dialog button", "Close")
        page.click("button.item", "a.png")
        page.one("dialog img.preview")
        tap.check(nebula.becomes(lambda: page.run("return document.querySelector('img.preview').naturalWidth") == 2), "an image is shown")
        page.click("dialog button", "Close")
        page.click("button.item", "a.bin")
        tap.check(page.one("dialog p", "no text"), "other bytes are not")
        page.click("dialog button", "Close")
        page.click("a.item", "folder/")
        page.click("a.item", "deep/")
        tap.check(page.one("button.item", "x") and page.one(".crumbs", "deep"), "prefixes are folders")
        page.type(".search", "none")
        page.one(".search").send_keys(Keys.ENTER)
        tap.check(page.one(".empty", "Nothing begins with this"), "a search by prefix")

    def delete(self):
        page, tap = self.page, self.tap
        page.go("b/photos", "button.item", "a.bin")
        page.run("document.getElementById(arguments[0]).click()", "tick-" + "a.bin\0")
        page.click("button", "Delete 1")
        page.one("dialog li", "a.bin")
        page.click("dialog button", "Delete")
        tap.check(page.gone("button.item", "a.bin") and self.s3.request("GET", "/photos/a.bin")[0] == 404, "an object is deleted")
        page.click("button", "Show versions")
        page.one(".badge", "delete marker")
        page.picture("versions")
        self.accessible("versions")
        page.click("button", "Show versions")

    def hostile(self):
        """Names, metadata, tags and bytes that contain scripts."""
        page, tap = self.page, self.tap
        self.s3.request("PUT", "/hostile")
        for name in HOSTILE:
            self.s3.request("PUT", "/hostile/" + name, b"<script>hit()</script><svg xmlns='http://www.w3.org/2000/svg' onload='hit()'/>",
                            headers={"Content-Type": "image/svg+xml" if name.endswith("svg") else "text/html", "x-amz-meta-x": "<img src=x onerror=hit()>",
                                     "Content-Disposition": "inline", "Cache-Control": "<script>hit()</script>"})
        self.s3.request("PUT", "/hostile/run.js", b"hit()", headers={"Content-Type": "text/javascript"})
        page.run("window.hits = 0; window.hit = () => { window.hits++; }")
        page.go("b/hostile", "button.item", HOSTILE[0])
        shown = page.texts("button.item")
        tap.check(set(HOSTILE) <= set(shown), "hostile names are shown as they are", shown)
        for name in HOSTILE:
            page.click("button.item", name)
            page.one("dialog pre, dialog img.preview, dialog .quiet")
            page.one("dialog dd", "<img src=x")
            page.loaded()
            page.click("dialog button", "Close")
            page.gone("dialog")
        page.picture("hostile")
        tap.check(page.run("return window.hits") == 0, "none of them runs")
        told = page.run("const s = document.createElement('script'); try { s.setAttribute('src', '/s3/hostile/run.js'); return 'taken'; } catch (error) { return error.message; }")
        tap.check("TrustedScriptURL" in told, "no code of the page could make a script of an object", told)
        told = page.driver.execute_async_script("const done = arguments[0]; import('/s3/hostile/run.js').then(() => done('ran'), (error) => done(error.message))")
        tap.check(told != "ran" and page.run("return window.hits") == 0, "nor does an object run as a module", told)
        page.complaints()
        with contextlib.suppress(WebDriverException):
            page.driver.get(page.url + "/s3/hostile/" + urllib.parse.quote(HOSTILE[0]))
        tap.check(nebula.becomes(lambda: list((self.folder / "downloads").glob("*onerror*"))) and page.driver.current_url.startswith(page.url + "/#"), "nor as a page: it is downloaded",
                  page.driver.current_url)

    def settings(self):
        page, tap = self.page, self.tap
        page.go("settings/photos", ".card", "Versions")
        page.loaded()
        page.type("#policy", "{not json")
        tap.check(page.one(".hint.wrong") and not page.one(".card form button.primary").is_enabled(), "what is no JSON is not saved")
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:user/reader"}, "Action": "s3:Fly", "Resource": "arn:aws:s3:::photos"}]}
        page.type("#policy", json.dumps(policy))
        page.click(".card form button.primary", "Save")
        tap.check(page.one(".card .problem"), "what the server does not know is told")
        policy["Statement"][0]["Action"] = "s3:ListBucket"
        page.type("#policy", json.dumps(policy))
        page.click(".card form button.primary", "Save")
        page.one(".notice")
        tap.check(json.loads(self.s3.request("GET", "/photos", query={"policy": ""})[2])["Statement"][0]["Action"] == "s3:ListBucket", "a policy is saved")
        page.type("#lifecycle-prefix", "tmp/")
        page.type("#lifecycle-days", "7")
        page.click(".card", "Lifecycle")
        page.one("#lifecycle-days").send_keys(Keys.ENTER)
        page.one(".rules li", "expire after 7 days")
        page.type("#lifecycle-uploads", "3")
        page.one("#lifecycle-uploads").send_keys(Keys.ENTER)
        page.one(".rules li", "end unfinished uploads after 3 days")
        rules = self.s3.request("GET", "/photos", query={"lifecycle": ""})[2]
        tap.check(rules.count(b"<Rule>") == 2 and b"<Days>7</Days>" in rules and b"<DaysAfterInitiation>3<" in rules, "rules are added, and the others stay", rules)
        page.type("#cors-origins", "https://app.example.com")
        page.one("#cors-origins").send_keys(Keys.ENTER)
        page.one(".rules li", "https://app.example.com: GET, HEAD")
        page.click("button", "Suspend")
        page.one("button", "Enable")
        tap.check(b"Suspended" in self.s3.request("GET", "/photos", query={"versioning": ""})[2], "versions are suspended")
        page.type("#quota-bytes", "much")
        page.one("#quota-bytes").send_keys(Keys.ENTER)
        page.one(".problem", "A size is a number")
        page.type("#quota-bytes", "1 GiB")
        page.type("#quota-objects", "1000")
        page.one("#quota-objects").send_keys(Keys.ENTER)
        page.one(".notice", "The quota is in force")
        told = json.loads(nebula.Client(self.server.admin).request("GET", "/admin/v1/buckets/photos")[2])
        tap.check(told["quota"] == {"bytes": 1 << 30, "objects": 1000}, "a quota is set", told)
        page.picture("settings")
        self.accessible("settings")
        page.go("buckets", "td", " of 1.0 GiB")

    def people(self):
        """Makes a user with few rights, and signs in as that user."""
        page, tap = self.page, self.tap
        page.go("people/users", ".empty", "No users yet")
        page.click("button", "Create user")
        page.type("#entity-name", "reader")
        page.click("dialog button", "Create")
        page.one("h2", "reader")
        page.loaded()
        page.run("const s = document.getElementById('attach-arn'); s.value = 'arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess'; s.dispatchEvent(new Event('change'))")
        page.click("button", "Attach")
        page.one(".rules li", "AmazonS3ReadOnlyAccess")
        page.click("button", "Create key")
        page.one("dialog .copy")
        key, secret = page.texts("dialog .copy code")
        page.picture("new-key")
        page.click("dialog button", "Close")
        page.one(".rules li", key)
        tap.check(secret not in page.driver.page_source, "a secret is shown once")
        self.accessible("a user")
        page.picture("user")
        self.roles()
        self.groups()
        self.accounts()
        page.go("health", ".plot", "Requests")
        tap.check(nebula.becomes(lambda: page.run("return [...document.querySelectorAll('.plot path')].some((path) => path.getAttribute('d').includes('L'))")), "plots grow while one looks")
        tap.check(page.one(".tiles", "0.") and page.one(".volumes", "good"), "the version and the volumes are told")
        tap.check(page.one(".plot", "Copies by the processor") and page.one(".plot", "Volumes: errors"), "copies per byte and the volumes' errors are plotted")
        page.click("button", "Scrub now")
        tap.check(nebula.becomes(lambda: any("Completed since the start\n1," in each for each in page.texts(".card", "Scrub"))), "a scrub is begun, and its end is told", page.texts(".card", "Scrub"))
        tap.check(page.one(".plot", "Scrub") and page.one(".card", "Scrub").text.count("none") == 1, "with nothing damaged")
        page.picture("health-cards")
        page.run("scrollTo(0, 0)")
        page.picture("health")
        self.accessible("health")
        self.operations()
        page.click("button", "Sign out")
        page.one("#access-key")
        tap.check(page.run("return fetch('/api/session').then((answer) => answer.status)") == 401, "a sign-out ends the session")
        page.sign_in(key, secret)
        page.one("td a", "photos")
        page.click("button", "Create bucket")
        page.type("#bucket-name", "mine")
        page.click("dialog button", "Create")
        tap.check("policies do not allow" in page.one("dialog .problem").text, "a user without the right is told so")
        page.picture("denied")
        page.click("dialog button", "Cancel")
        for place in ("people/users", "health", "settings/photos"):
            page.go(place, ".problem, .card")
            tap.check(page.loaded(), f"{place}: a user without rights waits for nothing", page.texts(".card"))
        page.one(".card .quiet", "The server's root sets it")
        page.go("people/users", ".problem", "policies do not allow")
        page.go("health", ".problem", "policies do not allow")
        page.click(".tabs a", "Log")
        page.one(".problem", "policies do not allow")
        tap.check(True, "nor does it see users, or how the server does")
        page.click("button", "Sign out")
        page.one("#access-key")

    def operations(self):
        """Sessions of clients by RDMA, and the doctor."""
        page, tap = self.page, self.tap
        page.click(".tabs a", "RDMA sessions")
        page.one(".empty", "No RDMA sessions now")
        with contextlib.closing(native.Native(f"rdma://{self.server.rdma}")) as client:
            client.put(b"by-rdma", bytes(1 << 20), b"photos")
            client.get(b"none", b"photos")
            row = page.one("tbody tr", nebula.ACCESS_KEY)
            tap.check(nebula.becomes(lambda: all(word in page.one("tbody tr").text for word in ("000000000000:root", "simulated", "open", "1.0 MiB", "1 refused"))),
                      "a session is told: who, by what, how much", row.text)
            tap.check(page.one(".card dt", "Fell back to HTTP"), "and how many requests fell back to HTTP")
            page.picture("sessions")
            self.accessible("sessions")
        tap.check(page.one(".empty", "No RDMA sessions now"), "and it is gone when its client is")
        self.flows()
        self.log()
        page.click(".tabs a", "Doctor")
        page.one(".findings li", "io_uring")
        page.picture("doctor")
        self.accessible("doctor")
        tap.check(page.all(".findings .badge", "good") and page.one("button", "Look again"), "the doctor's findings are told")
        page.go("health", ".plot", "Requests")

    def groups(self):
        """A policy of the account, and a group that has it; its member gets what it allows."""
        page, tap = self.page, self.tap
        page.go("people/policies", "tbody tr", "IAMFullAccess")
        page.click("button", "Create policy")
        page.type("#policy-name", "tagger")
        page.type("#policy-document", '{"Version": ')
        tap.check(page.one("dialog .problem, dialog .hint, dialog [role=alert]"), "a document that is no JSON is told while one types")
        page.type("#policy-document", json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:PutObjectTagging", "Resource": "*"}]}))
        page.click("dialog button", "Save")
        page.gone("dialog")
        arn = "arn:aws:iam::000000000000:policy/tagger"
        page.one("tbody tr", "tagger").find_element(By.TAG_NAME, "button").click()
        tap.check("s3:PutObjectTagging" in page.one("dialog pre").text, "a managed policy is made, and shown")
        page.picture("policy")
        self.accessible("a managed policy")
        page.click("dialog button", "Close")
        page.go("people/groups", ".empty", "No groups yet")
        page.click("button", "Create group")
        page.type("#entity-name", "editors")
        page.click("dialog button", "Create")
        page.one("h2", "editors")
        page.loaded()
        page.run("const s = document.getElementById('attach-arn'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", arn)
        page.click("button", "Attach")
        page.one(".rules li", "tagger")
        page.go("people/users/reader", "h2", "reader")
        page.loaded()
        page.run("const s = document.getElementById('join-group'); s.value = 'editors'; s.dispatchEvent(new Event('change'))")
        page.click("button", "Join")
        page.one(".rules li", "editors")
        page.go("people/groups/editors", ".rules li", "reader")
        tap.check("<UserName>reader</UserName>" in self.iam("GetGroup", GroupName="editors") and arn in self.iam("ListAttachedGroupPolicies", GroupName="editors"), "a group has its policy and its member")
        page.picture("group")
        self.accessible("a group")
        page.click("button", "Delete group")
        page.click("dialog button", "Delete")
        page.one(".empty", "No groups yet")
        page.go("people/policies", "tbody tr", "tagger")
        page.click("button", "Delete tagger")
        page.click("dialog button", "Delete")
        tap.check(page.gone("tbody tr", "tagger") and "NoSuchEntity" in self.iam("GetPolicy", PolicyArn=arn), "both are deleted, the user stays")

    def accounts(self):
        page, tap = self.page, self.tap
        page.go("people/accounts", ".empty", "No accounts but")
        page.click("button", "Create account")
        page.type("#account-number", "111122223333")
        page.type("#account-name", "Photos")
        page.click("dialog button", "Create")
        key, secret = page.texts("dialog .copy code") if page.one("dialog .copy") else ("", "")
        page.click("dialog button", "Close")
        page.one("tbody tr", "111122223333")
        client = nebula.Client(self.server.http, key, secret)
        tap.check(client.request("GET", "/")[0] == 200 and secret not in page.driver.page_source, "an account is made, with a key of its root")
        client.close()
        page.picture("accounts")
        self.accessible("people/accounts")
        page.click("button", "Delete the account 111122223333")
        page.click("dialog button", "Delete")
        tap.check(page.one(".empty", "No accounts but"), "and deleted")

    def flows(self):
        """Two of the configuration: one waits for a peer, one copies a file again and again."""
        page, tap = self.page, self.tap
        page.click(".tabs a", "Flows")
        page.one("caption", "2 of the configuration")

        def cells(name):
            """Those of a flow's row, all of one moment."""
            return page.run("const rows = [...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText)); return rows.find((row) => row[0] === arguments[0]) || []", name)

        def starts():
            return int(cells("copy")[6].split()[0])

        def counted():
            """A MiB for each start; the last one may not have moved it yet."""
            row = cells("copy")
            return float(row[2].split()[0]) in (int(row[6].split()[0]) - 1, int(row[6].split()[0]))

        tap.check(nebula.becomes(lambda: cells("listen")[1:2] == ["runs"]), "flows are told: one runs", cells("listen"))
        begun = starts()
        tap.check(nebula.becomes(lambda: begun < starts() and counted()),
                  "another begins again and again, and its bytes are counted", cells("copy"))
        page.picture("flows")
        self.accessible("flows")

    def log(self):
        """The log of the server, followed. The refusal of a sign-in above is in it, before many lines of a flow."""
        page, tap = self.page, self.tap
        page.click(".tabs a", "Log")
        page.one(".log tbody tr", "copy: started")
        while page.all("button", "Earlier lines"):
            shown = len(page.texts(".log tbody tr"))
            page.click("button", "Earlier lines")
            if not nebula.becomes(lambda: len(page.texts(".log tbody tr")) > shown or not page.all("button", "Earlier lines")):
                break
        tap.check(page.one(".log tbody tr", "sign-in refused"), "earlier lines of the log are shown when one asks")
        page.type("#log-words", "sign-in REFUSED")
        tap.check(nebula.becomes(lambda: len(page.texts(".log tbody tr", "sign-in refused")) == len(page.texts(".log tbody tr")) > 0), "lines of the log with certain words")
        before = len(page.texts(".log tbody tr"))
        refuse = "return fetch('/api/sign-in', {method: 'POST', headers: {'X-Console': '1'}, body: JSON.stringify({accessKey: 'nobody', secretKey: 'the-wrong-secret'})}).then((answer) => answer.status)"
        tap.check(page.run(refuse) == 401 and nebula.becomes(lambda: len(page.texts(".log tbody tr")) == before + 1), "a new line appears by itself", before)
        tap.check("the-wrong-secret" not in page.driver.page_source and nebula.SECRET_KEY not in page.driver.page_source, "no secret is in it")
        page.click("button", "Hold")
        tap.check(page.one("button", "Go on").get_attribute("aria-pressed") == "true", "and the page can be held")
        page.click("button", "Go on")
        page.run("const s = document.getElementById('log-level'); s.value = 'error'; s.dispatchEvent(new Event('change'))")
        tap.check(page.one(".empty", "No such lines"), "lines of a level")
        page.run("const s = document.getElementById('log-level'); s.value = 'trace'; s.dispatchEvent(new Event('change'))")
        page.one("#log-words").send_keys(Keys.CONTROL, "a")
        page.one("#log-words").send_keys(Keys.DELETE)
        page.one(".log tbody tr", "sign-in refused")
        page.picture("log")
        self.accessible("log")

    def roles(self):
        page, tap = self.page, self.tap
        provider = "arn:aws:iam::000000000000:oidc-provider/id.example.com"
        self.iam("CreateOpenIDConnectProvider", Url="https://id.example.com", **{"ClientIDList.member.1": "app"})
        page.go("people/roles", ".empty", "No roles yet")
        page.click("button", "Create role")
        page.type("#entity-name", "visitor")
        page.one("#role-who")
        page.run("const s = document.getElementById('role-who'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", provider)
        tap.check(nebula.becomes(lambda: "id.example.com:sub" in page.one("#role-trust").get_attribute("value")), "a role for users of a provider names one of them")
        self.accessible("a new role")
        page.click("dialog button", "Create")
        page.one("h2", "visitor")
        page.one(".card pre", "AssumeRoleWithWebIdentity")
        page.loaded()
        page.click(".card button", "Edit")
        page.type("#role-trust", json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "sts:AssumeRole"}]}))
        page.click("dialog button", "Save")
        page.gone("dialog")
        page.one(".card pre", "000000000000:root")
        page.run("const s = document.getElementById('attach-arn'); s.value = 'arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess'; s.dispatchEvent(new Event('change'))")
        page.click("button", "Attach")
        page.one(".rules li", "AmazonS3ReadOnlyAccess")
        told = urllib.parse.unquote(self.iam("GetRole", RoleName="visitor"))
        tap.check('"sts:AssumeRole"' in told and "WebIdentity" not in told, "its trust policy is edited", told)
        page.picture("role")
        self.accessible("a role")
        page.click("button", "Delete role")
        page.click("dialog button", "Delete")
        page.one(".empty", "No roles yet")
        tap.check("NoSuchEntity" in self.iam("GetRole", RoleName="visitor"), "a role is deleted with what hangs on it")

    def narrow(self):
        """On a phone nothing is wider than the page."""
        page, tap = self.page, self.tap
        page.size(390, 844)
        page.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY)
        page.one("td a", "photos")
        for place, selector in (("buckets", "td a"), ("b/photos", "button.item"), ("settings/photos", ".rules li"), ("people/users/reader", ".rules li"), ("health/sessions", ".empty"), ("health/log", ".log tr"), ("health/flows", "tbody tr"), ("health/doctor", ".findings li"), ("health", ".plot")):
            page.go(place, selector)
            page.loaded()
            page.picture("phone-" + place.split("/")[0])
            tap.check(page.run("return document.documentElement.scrollWidth") <= 390, f"{place} fits a phone", page.run("return document.documentElement.scrollWidth"))
        page.dark(True)
        page.picture("phone-dark")
        page.dark(False)
        page.size(1280, 900)

    def keyboard(self):
        page, tap = self.page, self.tap
        page.go("buckets", "td a")
        page.driver.refresh()
        page.one("td a")
        page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        tap.check(page.run("return document.activeElement.textContent") == "To the content", "the first stop of the keyboard leads to the content")
        page.driver.switch_to.active_element.send_keys(Keys.ENTER)
        tap.check(page.run("return document.activeElement.id") == "main", "and there it goes on")
        self.dialog()

    def dialog(self):
        """A dialog keeps the keyboard, closes at Escape, and gives the focus back."""
        page, tap = self.page, self.tap

        def press(key):
            page.driver.switch_to.active_element.send_keys(key)

        def focused():
            return page.run("const at = document.activeElement; return at.getAttribute('aria-label') || at.textContent")

        for _ in range(20):
            press(Keys.TAB)
            if "Create bucket" in focused():
                break
        tap.check("Create bucket" in focused(), "the keyboard reaches the button", focused())
        press(Keys.ENTER)
        page.one("#bucket-name")
        press(Keys.TAB)
        press(Keys.TAB)
        tap.check(page.run("return !!document.activeElement.closest('dialog') || document.activeElement === document.body"), "a dialog opens at Enter and keeps the keyboard", focused())
        page.one("#bucket-name").send_keys(Keys.ESCAPE)
        tap.check(page.gone("dialog") and nebula.becomes(lambda: "Create bucket" in focused()), "it closes at Escape, and the focus is where it was", focused())


def expiry(tap, folder):
    """The page itself reports that a session is over, without a click."""
    with nebula.Server(folder / "short", folder / "short.log", "--set", "console.idle_timeout_s=2") as server, contextlib.closing(Page(server.console, folder / "expiry")) as page:
        page.driver.get(page.url)
        page.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY)
        tap.check("ended" in page.one(".sign-in .problem").text, "a session that idles ends by itself, and the page says so")
        page.picture("ended")


def run(tap, server, folder):
    why = missing()
    if why:
        tap.skip("the page in a browser", why)
        return
    for each in (folder, folder / "downloads", folder / "expiry"):
        each.mkdir(parents=True, exist_ok=True)
    walk = Walk(tap, server, folder)
    try:
        for step in (walk.sign_in, walk.bucket, walk.upload, walk.resume, walk.cancel, walk.preview, walk.summaries, walk.retention, walk.delete, walk.others, walk.settings, walk.hostile, walk.people, walk.narrow, walk.keyboard):
            step()
        tap.check(not walk.page.complaints(), "the browser found nothing wrong", walk.page.complaints())
    finally:
        walk.page.close()
    expiry(tap, folder)
