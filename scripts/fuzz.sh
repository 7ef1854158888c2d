#!/usr/bin/env bash
# Random programs, many times as many as in a usual run of the tests, and different ones each time.
#
#   scripts/fuzz.sh [TIMES] [options of pytest]    TIMES is how many times as many; 22 if not given, about half an hour
#
# With 22 there are more than 20,000 random traces on which level "compat" has to do what thunder's own pass does, more
# than 20,000 on which level "full" has to keep every effect, every value and every number, and more than 15,000 for the
# verifier. hypothesis shrinks what it finds and prints it with the line that repeats it: it goes into the tests as an
# `@example`, or as a test of its own. The core and trace files have random inputs of their own (SHAPETRACE_CASES), and if
# cargo-fuzz and a nightly compiler are there libFuzzer makes more, with an address sanitizer, for FUZZ_SECONDS each (60 if
# not set).
#
# Set VENV to choose the environment; scripts/test.sh makes it and installs the wheel.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"

times="${1:-22}"
shift || true
[[ "$times" =~ ^[0-9]+$ ]] || fail "the first argument is how many times as many programs, a number; not $times"

say "Random traces against thunder's pass, $times times as many"
SHAPETRACE_FUZZ="$times" "$VENV_PYTHON" -m pytest --timeout=0 tests/test_equivalence.py tests/test_full_properties.py \
    tests/test_verifier.py tests/test_scalar_arithmetic.py "$@"

say "Random programs and files in Rust"
SHAPETRACE_CASES="$times" cargo test --locked --release --package shapetrace-core --test properties
SHAPETRACE_CASES="$times" cargo test --locked --release --package shapetrace-format --tests

if cargo +nightly fuzz --version >/dev/null 2>&1; then
    mkdir -p fuzz/corpus/{text,builder,file_text,file_binary}
    for file in tests/filetests/*/*.trace; do
        for target in text file_text; do cp "$file" "fuzz/corpus/$target/$(tr / _ <<<"$file")"; done
    done
    cp fuzz/seeds/host.trace fuzz/corpus/file_text/
    # A file as it is, and what is packed in it.
    cp rust/shapetrace-format/tests/fixtures/format_1.bin fuzz/corpus/file_binary/
    "$VENV_PYTHON" -c 'import sys, zlib; file = sys.stdin.buffer.read(); sys.stdout.buffer.write(zlib.decompress(file[35 + file[10]:], -15))' \
        <rust/shapetrace-format/tests/fixtures/format_1.bin >fuzz/corpus/file_binary/payload
    for target in text builder file_text file_binary; do
        say "Fuzzing with libFuzzer: $target"
        (cd fuzz && cargo +nightly fuzz run "$target" -- \
            -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=1024 -timeout=10)
    done
else
    say "cargo-fuzz is not there, or no nightly compiler: libFuzzer is left out"
fi
say "Nothing found"
