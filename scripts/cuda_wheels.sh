#!/usr/bin/env bash
# Collects, in one folder, all that scripts/test_cuda.sh needs on a machine that has torch and no network: a wheel of
# this project that installs on any Linux with glibc 2.28, lightning-thunder and litgpt with what they need, and pytest.
# torch itself, and the libraries of CUDA that it comes with, are left out: they are there.
#
#   scripts/cuda_wheels.sh [--out DIRECTORY] [--python 3.12] [--torch 2.11.0] [--wheel FILE]
#
#   --out      where the wheels go (default: target/cuda-wheels); what is in there from an earlier run is removed
#   --python   the version of Python on that machine (default: 3.12)
#   --torch    the version of torch on that machine (default: 2.11.0)
#   --wheel    the project's wheel (default: it is built, by scripts/release.sh --draft)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"

out="$ROOT/target/cuda-wheels"
version="3.12"
torch="2.11.0"
wheel=""
while (($#)); do
    case "$1" in
        --out) out="$(realpath -m "$2")" ;;
        --python) version="$2" ;;
        --torch) torch="$2" ;;
        --wheel) wheel="$(realpath "$2")" ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
    esac
    shift 2
done

if [[ -z "$wheel" ]]; then
    say "Building the wheel for Python $version"
    scripts/release.sh --draft --python "$version" --out "$ROOT/target/cuda-release"
    wheel="$(ls "$ROOT"/target/cuda-release/*.whl)"
fi
[[ "$wheel" == *-cp"${version/./}"-* ]] || fail "$(basename "$wheel") is not for Python $version"

# A new pip: older ones fetch torch, gigabytes, to read what it needs.
tools="$ROOT/target/cuda-tools"
[[ -x "$tools/bin/python" ]] || "$(find_python)" -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check "pip>=25"
pip=("$tools/bin/python" -m pip --disable-pip-version-check)
other_machine=(--python-version "$version" --only-binary=:all:)
# Whatever asks no newer C library than torch does.
for platform in manylinux{2014,2010,1} manylinux_2_{28..5}; do
    other_machine+=(--platform "${platform}_x86_64")
done

say "Choosing versions that go together with torch $torch on Python $version"
rm -rf "$out"
mkdir -p "$out"
report="$(mktemp)"
trap 'rm -f "$report"' EXIT
"${pip[@]}" install --quiet --dry-run --ignore-installed --target "$out/unused" --report "$report" "${other_machine[@]}" \
    "lightning-thunder==0.2.6" "torch==$torch" "${DEMO_REQUIREMENTS[@]}" "pytest>=8.3" "pytest-timeout>=2.3"
mapfile -t chosen < <("$tools/bin/python" - "$report" <<'PYTHON'
import json
import re
import sys
from pathlib import Path

# What comes with torch on the other machine.
there = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
for entry in json.loads(Path(sys.argv[1]).read_text())["install"]:
    metadata = entry["metadata"]
    if not there.fullmatch(metadata["name"].lower()):
        print(f"{metadata['name']}=={metadata['version']}")
PYTHON
)
((${#chosen[@]})) || fail "pip chose nothing"

say "Fetching ${#chosen[@]} packages: ${chosen[*]}"
"${pip[@]}" download --quiet --no-deps --dest "$out" "${other_machine[@]}" "${chosen[@]}"
cp "$wheel" "$out"
say "$(find "$out" -name '*.whl' | wc -l) wheels, $(du -sh "$out" | cut -f1), in $out"
