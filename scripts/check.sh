#!/usr/bin/env bash
# Every gate of the project, one after the other; each says its name, and the first that fails ends the script.
# With names as arguments, only those gates.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
gates=(rust format clippy layers semantics docs lengths paths tests)

fail() {
    printf 'FAILED %s: %s\n' "$gate" "$*" >&2
    exit 1
}

# The compiler is at least as new as Cargo.toml says it must be.
gate_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"$/\1/p' Cargo.toml)
    found=$(rustc --version | cut -d' ' -f2)
    [ -n "$wanted" ] || fail "Cargo.toml names no rust-version"
    printf '%s\n%s\n' "$wanted" "$found" | sort -V -C || fail "rustc $found is older than $wanted"
    [ ! -e rust-toolchain ] && [ ! -e rust-toolchain.toml ] || fail "a toolchain file would download another compiler"
}

gate_format() { cargo fmt --all --check || fail "run cargo fmt"; }

gate_clippy() { cargo clippy --quiet --locked --all-targets -- -D warnings || fail "clippy has warnings"; }

gate_layers() {
    scripts/check-layers.sh || fail "a layer uses what it must not"
    scripts/check-layers.sh --prove || fail "a rule does not notice its break"
}

gate_semantics() {
    [ -x scripts/check-semantics.sh ] || fail "scripts/check-semantics.sh is missing"
    scripts/check-semantics.sh || fail "a rule has no test, or a test names no rule"
}

# Every command and flag that the program offers is described, links lead somewhere, and the change log is kept.
gate_docs() {
    cargo build --quiet --locked
    local program=${CARGO_TARGET_DIR:-target}/debug/unclobber text command flag commands missing=()
    text=$(cat README.md docs/*.md)
    commands=$("$program" --help | sed -n '/^Commands:/,/^$/p' | sed -n 's/^  \([a-z][a-z-]*\).*/\1/p' | grep -vx help)
    [ -n "$commands" ] || fail "--help lists no command"
    for command in $commands; do
        grep -q -- "unclobber $command" <<<"$text" || missing+=("$command")
        for flag in $("$program" "$command" --help | grep -oE '^ +(-[A-Za-z], )?--[a-z][a-z-]*' | grep -oE -- '--[a-z-]+' | sort -u); do
            grep -qE -- "(^|[^a-z-])$flag($|[^a-z-])" <<<"$text" || missing+=("$command $flag")
        done
    done
    [ "${#missing[@]}" -eq 0 ] || fail "not in README.md or docs: ${missing[*]}"
    grep -qi '^## \[\?Unreleased' CHANGELOG.md || fail "CHANGELOG.md has no Unreleased section"
    local file target broken=()
    while IFS=: read -r file target; do
        target=${target%%#*}
        [ -z "$target" ] || [ -e "$(dirname "$file")/$target" ] || broken+=("$file: $target")
    done < <(grep -oHE '\]\([^)]+\)' README.md CHANGELOG.md docs/*.md | sed -E 's/:\]\(/:/; s/( "[^"]*")?\)$//' |
        grep -vE ':(https?:|mailto:)')
    [ "${#broken[@]}" -eq 0 ] || fail "links that lead nowhere: ${broken[*]}"
}

# No file over 800 lines; over 600 is said, to be looked at.
gate_lengths() {
    local count file long=()
    while read -r count file; do
        if [ "$count" -gt 800 ]; then
            long+=("$file ($count lines)")
        elif [ "$count" -gt 600 ]; then
            echo "over 600 lines: $file ($count)"
        fi
    done < <(git ls-files -z -- '*.rs' '*.sh' 'scripts/*' | xargs -0 wc -l | grep -v ' total$')
    [ "${#long[@]}" -eq 0 ] || fail "over 800 lines: ${long[*]}"
}

# Nothing in the project names a place of the machine it was written on.
gate_paths() {
    local found
    # `git grep` says no with 1 and fails with more.
    found=$(git grep -nIE '(^|[^[:alnum:]$_.{}-])/(root|home/[a-z]+)/[[:alnum:]._-]' -- ':!Cargo.lock' ':!scripts/check.sh') ||
        [ $? -eq 1 ] || fail "git grep failed"
    [ -z "$found" ] || fail "paths of one machine:"$'\n'"$found"
}

gate_tests() {
    [ "${UNCLOBBER_REQUIRE_FUSE:-}" = 1 ] || [ -w /dev/fuse ] || echo "SKIPPED on this machine: every test on a mount (/dev/fuse)"
    cargo test --locked --no-fail-fast || fail "tests"
    # These choose the numbers of processes, which no other test may be using.
    UNCLOBBER_CHOOSE_PIDS=1 cargo test --locked --lib owner::tests -- --test-threads=1 || fail "tests of process numbers"
}

for gate in "${@:-${gates[@]}}"; do
    declare -F "gate_$gate" >/dev/null || { echo "no such gate: $gate (there are: ${gates[*]})" >&2; exit 2; }
done
start=$SECONDS
for gate in "${@:-${gates[@]}}"; do
    printf '== %s\n' "$gate"
    began=$SECONDS
    "gate_$gate"
    printf '== %s: passed in %s s\n' "$gate" "$((SECONDS - began))"
done
printf '== all gates passed in %s s\n' "$((SECONDS - start))"
