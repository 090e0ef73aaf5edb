"""The page of `trainyard report` in a real browser, used as a person uses it: by pointer, keyboard, on a phone and on paper.

usage: report_test.py PROGRAM    PROGRAM: the built trainyard
"""

import csv
import fcntl
import html.parser
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import browser

PROGRAM = None
EVIL = "<script>alert(1)</script>"
QUOTED = """it's a "quoted" <b>run"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def summary(number=0, **more):
    return {"status": "finished", "started": "2026-11-26T02:10:00.000Z", "ended": "2026-11-26T02:20:00.000Z", "model": "resnet20",
            "dataset": "cifar10", "mode": "training + evaluation", "global_step": 600, "steps": 600, "seconds": 600.0,
            "images_per_second": 300.0 + number, "model_flops_per_second": 7e10,
            "time_shares": {"input": 0.2, "compute": 0.7, "communication": 0.05, "waiting": 0.01, "update": 0.05}, "skipped_steps": 2,
            "peak_memory_bytes": 2000000000, "command": "trainyard train", "data": {"directory": "/data/cifar10", "num_classes": 3},
            "seed": 1, "machine": {"name": "host", "cpu": "EPYC", "cores": 2, "memory_bytes": 8000000000, "gpus": []},
            "versions": {"trainyard": "0.1.0"}, "choices": {"batch_size": "64"}, "given_flags": ["model", "init_learning_rate"],
            "flags": {"model": "resnet20", "init_learning_rate": 0.1 * (number + 1), "weight_decay": 0.0001}, **more}


def evaluation():
    names = ["cat", EVIL, "dog"]
    return {"schema": 1, "images": 30, "top_1": 0.8, "top_5": 1.0, "classes": names, "confusion": [[8, 1, 1], [0, 9, 1], [3, 0, 7]],
            "per_class": [{"name": name, "images": 10, "precision": 0.7 + 0.1 * i, "recall": 0.9 - 0.1 * i, "f1": 0.8} for i, name in enumerate(names)],
            "calibration": {"ece": 0.06, "bins": [{"confidence": 0.55, "accuracy": 0.5, "images": 10}, {"confidence": 0.95, "accuracy": 0.9, "images": 20}]},
            "most_wrong": [{"file": "photos/'\"><img src=x onerror=alert(2)>.jpg", "true": "cat", "predicted": EVIL, "confidence": 0.99, "image": PIXEL}]}


def write_run(folder, number=0, rows=60, evaluated=True, **more):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run_summary.json").write_text(json.dumps(summary(number, **more)))
    lines = []
    for row in range(1, rows + 1):
        step = row * 10
        base = {"global_step": step, "epoch": step / 200, "wall_time": 1.7e9 + step, "phase": "train"}
        lines.append({**base, "learning_rate": 0.1, "total_loss": 2.5 / (1 + row / 10) + 0.05 * math.sin(row + number) + 0.01 * number,
                      "images_per_second": 300 + 10 * math.sin(row), "input_share": 0.2, "compute_share": 0.7,
                      "communication_share": 0.05, "waiting_share": 0.01, "update_share": 0.05})
        if row % 20 == 0:
            lines.append({**base, "phase": "eval", "top_1_accuracy": 0.5 + row / 200, "top_5_accuracy": 0.9, "loss": 1.5 - row / 100})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if evaluated:
        (folder / "evaluation.json").write_text(json.dumps(evaluation()))
    return folder


def write_search(folder, trials=6, runs=0, metric="top_1_accuracy"):
    """A search whose trials 0 and 1 ran to the end, the last one failed, and the others were stopped; with runs of its first trials."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"kind": "trainyard tune", "metric": metric, "goal": "highest", "levels": [1.0, 2.0, 4.0], "best": 1,
              "ranges": [{"flag": "init_learning_rate", "scale": "logarithmic", "choices": []},
                         {"flag": "optimizer", "scale": "choice", "choices": ["sgd", EVIL]}, {"flag": "momentum", "scale": "linear", "choices": []}],
              "trials": [{"number": i, "directory": f"trial-{i:03}", "started": 1, "failure": None, "results": results_of(i),
                          "flags": {"model": "resnet20", "init_learning_rate": str(0.001 * 2 ** (i % 12)), "optimizer": ["sgd", EVIL][i % 2],
                                    "momentum": f"{0.8 + 0.01 * i:.2f}"}} for i in range(trials)]}
    for trial in record["trials"]:
        trial["started"] = len(trial["results"])
    record["trials"][-1]["flags"]["init_learning_rate"] = "3.2e-05"
    record["trials"][-1].update(failure=f"the loss {EVIL} is not finite", results=[], started=1)
    (folder / "tune.json").write_text(json.dumps(record))
    for number in range(runs):
        write_run(folder / f"trial-{number:03}", number, rows=40, evaluated=False)
    return folder


def results_of(trial):
    """What a trial of a search reached at each of its rungs. Trial 2 was better than all others, and stopped."""
    rungs = 3 if trial < 2 else 1 + trial % 2
    return [{"epochs": 2.0 ** rung, "global_step": 10 * 2 ** rung, "value": 0.125 * (rung + 1) + 0.01 * (trial % 9) + (0.3 if trial == 2 else 0), "seconds": 1.5} for rung in range(rungs)]


def report(output, *arguments):
    done = subprocess.run([PROGRAM, "report", *map(str, arguments), f"--output={output}"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr)
    return output


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temp.name)
        cls.downloads = cls.dir / "downloads"
        cls.downloads.mkdir()
        cls.browser = browser.Browser(browser.find(), cls.downloads)
        cls.runs = [write_run(cls.dir / "runs" / name, number) for number, name in enumerate((QUOTED, "b", "c"))]
        cls.three = report(cls.dir / "three.html", *cls.runs)
        cls.one = report(cls.dir / "one.html", cls.runs[0])
        cls.search = report(cls.dir / "search.html", write_search(cls.dir / f"search {QUOTED}", runs=3))

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.temp.cleanup()

    def setUp(self):
        self.browser.problems.clear()

    def open(self, page, **how):
        self.browser.open(page, **how)

    def run_code(self, code):
        return self.browser.run(code)

    # Nothing is loaded, nothing is complained about, and no dialog has opened: whatever was done to the page before.
    def tearDown(self):
        self.assertEqual(self.browser.problems, [])
        self.assertEqual([each for each in self.browser.requests if not each.startswith(("file:", "data:image/", "blob:"))], [])
        self.assertLessEqual(len([each for each in self.browser.requests if each.startswith("file:")]), 2)

    def text(self, selector="body"):
        return self.run_code(f"document.querySelector({json.dumps(selector)}).innerText")

    def test_all_parts_are_there(self):
        self.open(self.one)
        self.assertEqual(self.run_code("[...document.querySelectorAll('main h2')].map((each) => each.textContent)"),
                         ["Overview", "Curves", "Time and machine", "Errors", "Settings", "Repeat"])
        self.assertEqual(self.run_code("[...document.querySelectorAll('nav a')].every((each) => document.querySelector(each.hash))"), True)
        for said in ("80.00 %", "2 steps were skipped", "20 % of the time was spent waiting for input", "trainyard train --model=resnet20"):
            self.assertIn(said, self.text())

    def test_texts_of_a_run_are_only_text(self):
        self.open(self.one)
        self.assertEqual(self.text("h1").split(" finished")[0].strip(), QUOTED)
        self.assertIn(QUOTED, self.run_code("document.title"))
        self.assertIn(EVIL, self.text("#errors"))
        self.assertEqual(self.run_code("document.querySelectorAll('main script, h1 b, img[onerror]').length"), 0)
        self.assertEqual(self.run_code("document.querySelector('.wrong img').naturalWidth"), 1)

    # A script that got into the page would not run: it has not the page's nonce.
    def test_other_scripts_do_not_run(self):
        self.open(self.one)
        self.run_code("""(() => { const script = document.createElement('script'); script.textContent = 'window.ran = true';
            document.body.append(script); const image = document.createElement('div'); image.innerHTML = '<img src=x onerror="window.ran = true">';
            document.body.append(image); })()""")
        time.sleep(0.2)
        self.assertEqual(self.run_code("window.ran === undefined"), True)
        self.assertGreaterEqual(len(self.browser.problems), 1, "and the browser says so")
        self.browser.problems.clear()

    def test_the_pointer_names_the_nearest_run_and_its_values(self):
        self.open(self.three)
        x, y = self.browser.middle_of(".plot")
        self.browser.mouse("mouseMoved", x, y)
        tip = self.text(".tip")
        self.assertRegex(tip, r"step \d+")
        for name in (QUOTED, "b", "c"):
            self.assertIn(name, tip)
        self.assertEqual(self.run_code("document.querySelectorAll('.tip .nearest').length"), 1)
        # The value is that of the run at the step.
        step = int(self.run_code("document.querySelector('.tip .at').textContent").split()[1])
        row, number = step // 10, 1
        want = 2.5 / (1 + row / 10) + 0.05 * math.sin(row + number) + 0.01 * number
        got = self.run_code("[...document.querySelectorAll('.tip div')].find((each) => each.querySelector('.label')?.textContent === 'b').querySelector('.value').textContent")
        self.assertAlmostEqual(float(got), want, delta=6e-4)
        # At the chart's upper end the greatest value is nearest, at its lower end the least one.
        for offset, choose in ((-100, max), (80, min)):
            self.browser.mouse("mouseMoved", x, y + offset)
            values = [float(each) for each in self.run_code(
                "[...document.querySelectorAll('.tip .label')].filter((each) => !each.textContent.includes('validation')).map((each) => each.nextSibling.textContent)")]
            self.assertEqual((len(values), values[0]), (3, choose(values)))

    def test_a_drag_zooms_all_charts_and_a_double_click_shows_all(self):
        self.open(self.three)
        x, y = self.browser.middle_of(".plot")
        before = self.run_code("document.getElementById('reset-zoom').disabled")
        self.browser.mouse("mousePressed", x - 100, y, "left", 1)
        self.browser.mouse("mouseMoved", x + 50, y, "left")
        self.browser.mouse("mouseReleased", x + 50, y, "left", 1)
        self.assertEqual((before, self.run_code("document.getElementById('reset-zoom').disabled")), (True, False))
        said = self.text("#said")
        low, high = (int(word) for word in said.replace(",", "").split() if word.isdigit())
        self.assertGreater(low, 100)
        self.assertLess(high, 450)
        self.browser.mouse("mousePressed", x, y, "left", 2)
        self.browser.mouse("mouseReleased", x, y, "left", 2)
        self.browser.wait_until("document.getElementById('reset-zoom').disabled", 5)

    def test_axis_and_smoothing(self):
        self.open(self.three)
        self.browser.click("input[value=time] + span")
        x, y = self.browser.middle_of(".plot")
        self.browser.mouse("mouseMoved", x, y)
        self.assertRegex(self.text(".tip"), r"min")
        self.run_code("(() => { const s = document.getElementById('smoothing'); s.focus(); })()")
        for _ in range(5):
            self.browser.press("ArrowRight")
        self.assertEqual(self.text(".slider output"), "0.05")
        self.browser.mouse("mouseMoved", x + 3, y)
        self.browser.click("input[value=step] + span")
        self.run_code("document.querySelector('.plot').focus()")
        for _ in range(30):
            self.browser.press("ArrowRight")
        value = self.text(".tip .nearest .value")
        raw = [2.5 / (1 + row / 10) + 0.05 * math.sin(row) for row in range(1, 31)]
        mean = total = 0
        for each in raw:
            mean, total = 0.05 * mean + 0.95 * each, 0.05 * total + 0.95
        self.assertEqual(value, f"{raw[-1]:.4g} ({mean / total:.4g})")

    # A line of one value that smoothing rounds, and a zoom below what numbers resolve, once had axes without end.
    def test_narrow_ranges_have_axes(self):
        self.open(self.three)
        self.run_code("document.querySelectorAll('.plot')[2].focus()")
        self.run_code("(() => { const s = document.getElementById('smoothing'); s.value = 0.33; s.dispatchEvent(new Event('input')); })()")
        for _ in range(70):
            self.browser.press("+")
            self.run_code("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.browser.press("ArrowRight")
        self.assertIn("step", self.text("#said"))
        self.browser.press("Escape")

    def test_the_keyboard_gets_everywhere(self):
        self.open(self.three)
        seen = []
        for _ in range(100):
            self.browser.press("Tab")
            seen.append(self.run_code("document.activeElement.className || document.activeElement.textContent.trim() || document.activeElement.value || document.activeElement.id"))
        self.assertEqual(seen[0], "skip")
        for stop in ("CSV", "Runs", "plot", "matrix"):
            self.assertIn(stop, seen)
        # In the first chart.
        self.run_code("document.querySelector('.plot').focus()")
        for key in ("ArrowRight", "ArrowRight"):
            self.browser.press(key)
        self.assertRegex(self.text("#said"), r"step 20: 2\.\d+")
        self.browser.press("ArrowDown")
        self.assertRegex(self.text("#said"), r"\(validation\), step 200: 1\.3")
        self.browser.press("End")
        self.assertRegex(self.text("#said"), r"step 600: 0\.9")
        self.browser.press("+")
        self.assertEqual(self.run_code("document.getElementById('reset-zoom').disabled"), False)
        self.browser.press("Escape")
        self.assertEqual(self.run_code("document.getElementById('reset-zoom').disabled"), True)
        # In the matrix.
        self.run_code("document.querySelector('.matrix').focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft"):
            self.browser.press(key)
        self.assertEqual(self.text(".says"), "dog → cat: 3 of 10 (30.0 %)")

    def test_tables_sort_and_say_so(self):
        self.open(self.one)
        head = "document.querySelector('#errors table:has(caption span) thead')"
        classes = "[...document.querySelectorAll('#errors .pair:last-of-type tbody th')].map((each) => each.textContent)"
        self.run_code("[...document.querySelectorAll('#errors thead button')].find((each) => each.textContent === 'Precision').click()")
        self.assertEqual(self.run_code(classes), ["dog", EVIL, "cat"])
        self.run_code("[...document.querySelectorAll('#errors thead button')].find((each) => each.textContent === 'Precision').click()")
        self.assertEqual(self.run_code(classes), ["cat", EVIL, "dog"])
        self.assertEqual(self.run_code("[...document.querySelectorAll('#errors th[aria-sort]')].map((each) => each.textContent + each.ariaSort)"), ["Precisionascending"])
        self.assertIsNotNone(self.run_code(f"{head} !== null"))

    def test_each_picture_has_a_table(self):
        self.open(self.one)
        self.run_code("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        self.browser.wait_until("document.querySelectorAll('.chart details table').length === document.querySelectorAll('.chart').length", 5)
        self.assertEqual(self.run_code("[...document.querySelectorAll('.chart')].every((each) => each.querySelectorAll('tbody tr').length > 1)"), True)
        rows = self.run_code("[...document.querySelectorAll('.chart tbody tr')].slice(0, 2).map((each) => each.innerText)")
        self.assertRegex(rows[0], r"^10\t2\.\d+")
        self.assertEqual(self.run_code("[...document.querySelectorAll('.plot, .matrix, svg')].every((each) => each.ariaLabel.length > 10)"), True)
        self.assertEqual(self.run_code("document.querySelectorAll('table:not(:has(caption)), img:not([alt]), button:empty').length"), 0)

    def test_only_what_differs_is_in_its_table(self):
        self.open(self.three)
        self.assertEqual(self.run_code("[...document.querySelectorAll('#what-differs tbody th')].map((each) => each.textContent)"), ["init_learning_rate"])
        self.assertEqual(self.run_code("[...document.querySelectorAll('#what-differs tbody td')].map((each) => each.textContent)"),
                         ["0.1", "0.2", "0.30000000000000004"])

    def test_a_search_has_a_table_of_its_trials(self):
        self.open(self.search)
        self.assertEqual(self.text("h1"), f"Search search {QUOTED}")
        rows = "[...document.querySelectorAll('#search tbody tr')].map((each) => [...each.children].map((cell) => cell.innerText.trim()))"
        head = "[...document.querySelectorAll('#search thead th')].map((each) => each.innerText.trim())"
        self.assertEqual(self.run_code(head), ["Trial", "top_1_accuracy", "Rung", "Epochs", "State", "init_learning_rate", "optimizer", "momentum", "Time"])
        found = self.run_code(rows)
        # Those that ran to the end come first, then those of the second rung, each by value; the one that failed comes last.
        self.assertEqual([row[0] for row in found], ["1", "0", "3", "2", "4", "5"])
        self.assertEqual(found[0], ["1", "38.50 %", "3 of 3", "4", "finished", "0.002", EVIL, "0.81", "4.5 s"])
        self.assertEqual(found[4], ["4", "16.50 %", "1 of 3", "1", "stopped", "0.016", "sgd", "0.84", "1.5 s"])
        self.assertEqual(found[5][1:5], ["–", "0 of 3", "–", "failed"])
        self.assertIn(f"the loss {EVIL} is not finite", self.text("#search .alerts"))
        for said in ("38.50 %", "trial 1, after 4 epochs", "compared after 1, 2, 4 epochs"):
            self.assertIn(said, self.text("#search .tiles"))
        # By a click, as numbers.
        for name, order in (("init_learning_rate", ["4", "3", "2", "1", "0", "5"]), ("top_1_accuracy", ["2", "1", "0", "3", "4", "5"])):
            self.run_code(f"[...document.querySelectorAll('#search thead button')].find((each) => each.textContent === '{name}').click()")
            self.assertEqual([row[0] for row in self.run_code(rows)], order, name)
            self.assertEqual(self.text("#said"), f"Sorted by {name}, descending")
        # Three of the trials are runs of this page, with the switches of their curves.
        self.assertEqual(self.run_code("[...document.querySelectorAll('#search tbody input')].map((each) => each.ariaLabel)"),
                         [f"Show trial-00{number} in the curves" for number in (2, 1, 0)])
        self.assertEqual(self.run_code("document.querySelectorAll('main script, #search b').length"), 0)

    def test_a_search_has_pictures_of_its_trials(self):
        self.open(self.search)
        self.assertEqual(self.run_code("[...document.querySelectorAll('#search figure h3')].map((each) => each.textContent)"),
                         [f"top_1_accuracy by {name}" for name in ("epoch", "trial", "init_learning_rate", "optimizer", "momentum")])
        # A point for each result by epoch, and for each trial with a result elsewhere.
        self.assertEqual(self.run_code("[...document.querySelectorAll('#search figure')].map((each) => each.querySelectorAll('circle').length)"), [10, 5, 5, 5, 5])
        self.assertEqual(self.run_code("[...document.querySelectorAll('#search figure')].map((each) => each.querySelectorAll('circle.best').length)"), [3, 1, 1, 1, 1])
        points = self.run_code("""[...document.querySelectorAll('#search figure')].map((each) => Object.fromEntries([...each.querySelectorAll('circle')].map((point) =>
            [point.querySelector('title').textContent.match(/^Trial (\\d+), /)[1], [Number(point.getAttribute('cx')), Number(point.getAttribute('cy'))]])))""")
        rates, optimizers, momenta = points[2:]
        # The rates are powers of two: evenly spaced on their logarithmic axis. Greater values are higher.
        steps = [rates[str(i + 1)][0] - rates[str(i)][0] for i in range(4)]
        self.assertTrue(all(abs(step - steps[0]) < 0.3 for step in steps) and steps[0] > 50, steps)
        self.assertEqual(len({optimizers[i][0] for i in "024"}), 1, "a place for each choice")
        self.assertGreater(optimizers["1"][0], optimizers["0"][0])
        self.assertAlmostEqual((momenta["2"][0] - momenta["0"][0]) / (momenta["1"][0] - momenta["0"][0]), 2, delta=0.02)
        self.assertTrue(momenta["1"][1] < momenta["0"][1] < momenta["3"][1] < momenta["4"][1], momenta)
        # The best so far never falls.
        line = self.run_code("document.querySelector('.so-far').getAttribute('points')")
        heights = [float(point.split(",")[1]) for point in line.split()]
        self.assertEqual(heights, sorted(heights, reverse=True))
        self.assertEqual((heights[0], heights[-1]), (points[1]["0"][1], points[1]["2"][1]))

    def test_pointing_at_a_trial_of_a_search_names_it(self):
        self.open(self.search)
        x, y = self.browser.middle_of("#search figure:nth-child(5) circle.best")
        self.browser.mouse("mouseMoved", x, y)
        self.assertEqual(self.text("#search .says"), f"Trial 1, finished: 38.50 % after 4 epochs; init_learning_rate 0.002, optimizer {EVIL}, momentum 0.81")
        self.assertEqual(self.run_code("[...document.querySelectorAll('#search tr.on')].map((each) => each.innerText.trim()[0])"), ["1"])
        self.assertEqual(self.run_code("document.querySelectorAll('#search circle.on').length"), 7)
        self.browser.mouse("mouseMoved", *self.browser.middle_of("#search tbody tr:nth-child(4)"))
        self.assertIn("Trial 2, stopped: 44.50 %", self.text("#search .says"))
        self.assertEqual(self.run_code("document.querySelectorAll('#search circle.on').length"), 5)

    # Nothing has begun; only failures; a record that is damaged; a metric of which the lowest is best and which has a wide range.
    def test_searches_of_other_states_have_a_page(self):
        folder = write_search(self.dir / "bare")
        record = json.loads((folder / "tune.json").read_text())
        for change, said in (({"trials": []}, "No trial has begun."), ({"trials": record["trials"][-1:]}, "Trial 5"),
                             ({"trials": record["trials"], "metric": "loss", "goal": "lowest", "levels": [1.0]}, "trial 1, after 1 epoch")):
            (folder / "tune.json").write_text(json.dumps({**record, **change}))
            if "goal" in change:
                change["trials"][0]["results"][0]["value"] = 1e12
                for trial in change["trials"]:
                    trial["results"] = trial["results"][:1]
                (folder / "tune.json").write_text(json.dumps({**record, **change}))
            self.open(report(self.dir / "bare.html", folder))
            self.assertIn(said, self.text("#search"))
            self.browser.requests.clear()
        marks = self.run_code("[...document.querySelectorAll('#search figure:nth-child(2) text')].map((each) => each.textContent)")
        self.assertIn("1.00e11", marks, "a logarithmic axis")
        self.assertLess(len([mark for mark in marks if "e" in mark]), 7)
        (folder / "tune.json").write_text("{")
        self.open(report(self.dir / "bare.html", folder))
        self.assertIn("tune.json: it is no record of a search", self.text("#search"))

    def test_runs_can_be_hidden(self):
        self.open(self.three)
        self.browser.click(".chip:nth-child(2)")
        x, y = self.browser.middle_of(".plot")
        self.browser.mouse("mouseMoved", x, y)
        labels = self.run_code("[...document.querySelectorAll('.tip .label')].map((each) => each.textContent)")
        self.assertIn("c", labels)
        self.assertNotIn("b", labels)
        self.assertEqual(self.run_code("document.querySelectorAll('#runs tbody input:not(:checked)').length"), 1)

    def test_data_is_saved_as_csv_and_json(self):
        self.open(self.three)
        self.run_code("[...document.querySelectorAll('header button')].slice(0, 2).forEach((each) => each.click())")
        end = time.monotonic() + 20
        while not all((self.downloads / name).exists() for name in ("report.csv", "report.json")):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        with open(self.downloads / "report.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 3 * 63)
        self.assertEqual({row["run"] for row in rows}, {QUOTED, "b", "c"})
        self.assertAlmostEqual(float(rows[0]["total_loss"]), 2.5 / 1.1 + 0.05 * math.sin(1), places=4)
        saved = json.loads((self.downloads / "report.json").read_text())
        self.assertEqual(saved["runs"][0]["evaluation"]["names"][1], EVIL)

    def test_a_command_is_copied(self):
        self.open(self.one)
        self.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.browser.click("#repeat .copy")
        self.browser.wait_until("document.querySelector('#repeat .copy').textContent === 'Copied'", 5)
        self.assertTrue(self.run_code("navigator.clipboard.readText()").startswith("trainyard train --model=resnet20 --init_learning_rate=0.1 "))

    def test_light_dark_and_the_switch_between_them(self):
        colors = {}
        for dark in (False, True):
            self.open(self.three, dark=dark)
            colors[dark] = self.run_code("getComputedStyle(document.body).backgroundColor")
        self.assertNotEqual(colors[False], colors[True])
        self.browser.click("header .tools button:last-child")
        self.assertEqual(self.run_code("getComputedStyle(document.body).backgroundColor"), colors[False])
        self.assertEqual(self.text("header .tools button:last-child"), "Theme: Light")

    # Texts against what lies behind them, by WCAG 2.1's formula.
    def test_contrast(self):
        for dark, page in ((False, self.three), (True, self.three), (False, self.search), (True, self.search)):
            self.open(page, dark=dark)
            self.assertEqual(self.run_code("""(() => {
                const luminance = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
                  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
                const behind = (node) => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (!c.endsWith(', 0)') && c !== 'transparent') return c; } return 'rgb(255,255,255)'; };
                return [...document.querySelectorAll('p, dt, dd, td, th, h1, h2, h3, small, button:enabled, summary, strong, a, .pill, .advice, .choice span')].filter((each) => each.innerText && each.offsetParent && !each.matches('.skip, .offscreen')).map((each) => {
                  const a = luminance(getComputedStyle(each).color), b = luminance(behind(each));
                  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), each.innerText.slice(0, 30)]; }).filter(([ratio]) => ratio < 4.5); })()"""), [])

    def test_a_phone_scrolls_one_way_only(self):
        for page in (self.one, self.three, self.search):
            self.open(page, width=390, height=844)
            self.assertLessEqual(self.run_code("document.documentElement.scrollWidth"), 390)
            self.assertEqual(self.run_code("[...document.querySelectorAll('.plot')].every((each) => each.clientWidth > 300)"), True)
            self.assertEqual(self.run_code("[...document.querySelectorAll('button')].every((each) => each.offsetParent === null || each.offsetHeight >= 28)"), True)

    def test_paper(self):
        self.open(self.three, dark=True)
        paper = self.dir / "page.pdf"
        self.browser.print_to(paper)
        self.assertGreater(paper.stat().st_size, 20000)
        self.assertGreater(paper.read_bytes().count(b"/Type /Page\n") + paper.read_bytes().count(b"/Type /Page "), 1)

    # Charts are drawn, not blank: the canvas has colours of the lines.
    def test_lines_are_drawn(self):
        self.open(self.three)
        self.browser.middle_of(".chart")
        self.browser.wait_until("""(() => { const canvas = document.querySelector('.plot canvas'); const c = canvas.getContext('2d');
            const data = c.getImageData(0, 0, canvas.width, canvas.height).data; let colored = 0;
            for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 80) ++colored;
            return colored > 500; })()""", 5)

    def interactive(self, page):
        """The least of three times until a page has drawn itself and answers a key: seconds, and those that its thread computed."""
        self.browser.call("Performance.enable", timeDomain="threadTicks")
        times, computed = [], []
        for _ in range(3):
            begin = time.monotonic()
            self.browser.open(page)
            self.run_code("document.querySelector('.plot').focus()")
            self.browser.press("ArrowRight")
            self.browser.wait_until("document.getElementById('said').textContent.includes('step')", 60)
            times.append(time.monotonic() - begin)
            metrics = {each["name"]: each["value"] for each in self.browser.call("Performance.getMetrics")["metrics"]}
            computed.append(metrics["TaskDuration"])
        self.browser.call("Performance.disable")
        return min(times), min(computed)

    def test_five_hundred_runs_are_soon_there(self):
        folder = self.dir / "many"
        for number in range(500):
            write_run(folder / f"trial-{number:03}", number % 7, rows=100, evaluated=False)
        write_search(folder, trials=500)
        page = report(self.dir / "many.html", folder)
        took, computed = self.interactive(page)
        print(f"500 runs: {took:.2f} s, {computed:.2f} s of them computing, {page.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
        # What the page needs, 0.8 s of an idle core; another process on the core's other thread makes it half as much again.
        self.assertLess(computed, 2)
        self.assertEqual(self.run_code("document.querySelectorAll('#runs tbody tr').length"), 500)
        self.browser.click("#runs input[type=search]")
        for key in "l-077":
            self.browser.press(key)
        self.assertEqual(self.run_code("document.querySelectorAll('#runs tbody tr').length"), 1)

    def test_a_hundred_thousand_points_are_soon_there(self):
        page = report(self.dir / "long.html", write_run(self.dir / "long", rows=100_000, evaluated=False))
        took, computed = self.interactive(page)
        points = self.run_code("JSON.parse(document.getElementById('data').textContent).runs[0].phases.reduce((sum, phase) => sum + phase.step.length * Object.keys(phase.values).length, 0)")
        print(f"{points} points: {took:.2f} s, {computed:.2f} s of them computing, {page.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
        self.assertGreater(points, 40_000)
        self.assertLess(computed, 1)

    # An open page loads itself while the run goes on, keeps what was chosen, and stops when the run has ended.
    def test_watch(self):
        folder = write_run(self.dir / "watched", rows=20, evaluated=False, status="running", ended=None)
        lock = open(folder / "run.lock", "w")  # a run whose lock nothing holds was killed
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        output = self.dir / "watched.html"
        watching = subprocess.Popen([PROGRAM, "report", str(folder), "--watch", "--interval=1", f"--output={output}"], stdout=subprocess.DEVNULL)
        try:
            while not output.exists():
                time.sleep(0.02)
            self.open(output)
            self.browser.click("input[value=epoch] + span")
            write_run(folder, rows=60, evaluated=False)
            self.assertEqual(watching.wait(20), 0)
            self.browser.wait_until("document.querySelector('h1 .pill')?.textContent === 'finished'", 20)
            self.assertEqual(self.run_code("document.querySelector('input[name=axis]:checked').value"), "epoch")
            self.assertIn("3 epochs", self.text("#overview"))
            self.assertEqual(self.run_code("document.querySelectorAll('.live').length"), 0)
        finally:
            watching.kill()
            watching.wait()
        self.browser.requests.clear()


class Outline(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.loads = []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href", "action") and not value.startswith("#")]


class WithoutBrowser(unittest.TestCase):
    def test_markup_names_nothing_to_load(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            page = report(folder / "page.html", write_run(folder / QUOTED))
            outline = Outline()
            outline.feed(page.read_text())
            self.assertEqual(outline.loads, [])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    if browser.find() is None:
        print("skipped: needs chromium (scripts/setup --tests installs it)")
        sys.exit(77)
    unittest.main()
