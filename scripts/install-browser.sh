#!/usr/bin/env bash
# Bring Debian's Chromium and its driver, in which the tests open the pages that are made. Does
# nothing where both are there; where apt cannot bring them, those tests are skipped.
set -euo pipefail

command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
command -v apt-get >/dev/null || { echo "install-browser: apt-get is missing" >&2; exit 1; }
if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
"${root[@]}" apt-get -qq update
"${root[@]}" apt-get -qq install --no-install-recommends -y chromium chromium-driver >/dev/null
