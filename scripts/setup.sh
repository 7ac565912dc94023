#!/usr/bin/env bash
# Makes the virtual environment and installs the project with its test tools. Installs what the system lacks on Debian.
set -euo pipefail
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

install_system() {
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
    else
        echo "please install: $*" >&2
        exit 1
    fi
}

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || install_system python3-venv
extra=test
if ! command -v ld >/dev/null 2>&1 && ! command -v cc >/dev/null 2>&1; then
    extra=test,link # no linker on this machine: the one in the package ziglang
fi
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extra]"
