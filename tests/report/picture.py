"""Draws the top of a report's page into a PNG, as docs/images/report.png was made (docs/howto/report.md).

usage: picture.py PAGE.html PICTURE.png [HEIGHT]
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import browser


def main(page, picture, height="1000"):
    program = browser.find()
    if program is None:
        sys.exit("picture: no chromium is installed; scripts/setup --tests installs it")
    with browser.Browser(program) as each:
        each.open(page, width=1100, height=int(height))
        each.call("Emulation.setDeviceMetricsOverride", width=1100, height=int(height), deviceScaleFactor=0.8, mobile=False)
        each.run("new Promise((done) => setTimeout(done, 500))")
        each.screenshot(picture, whole=False)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
