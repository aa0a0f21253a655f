#!/usr/bin/env bash
# The folders of src are layers: each uses only what stands below it in src/lib.rs. `--prove` breaks each rule in a file of
# its own and checks that it is found.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

declare -A may=(
    [main]="cli"
    [cli]="front control fs store owner audit rules guard sys sync clock faults"
    [front]="fs owner audit guard sys sync clock faults"
    [control]="fs owner audit guard sys sync clock faults"
    [fs]="store owner audit rules guard sys sync clock faults"
    [store]="guard sys sync clock faults"
    [owner]="guard sys sync clock faults"
    [audit]="guard sys sync clock faults"
    [rules]="guard sys sync clock faults"
    [guard]=""
    [sys]="guard"
    [sync]=""
    [clock]="guard"
    [faults]="sync"
)
# What src/lib.rs draws; guard, the pure layer, lends its types to sys and clock too.

# Code without comments and without the tests at the end of a file: both may speak of anything.
code() { sed -E '/^#\[cfg\(test\)\]/,$d; s,(^|[[:space:]])//.*,,' "$1"; }

check() {
    local root=$1 bad=0 file layer used
    while read -r file; do
        layer=${file#"$root"/}
        layer=${layer%%/*}
        layer=${layer%.rs}
        [ "$layer" = lib ] && continue
        if [ -z "${may[$layer]+known}" ]; then
            echo "$file: the layer $layer is not in the table of scripts/check-layers.sh"
            bad=1
            continue
        fi
        for used in $(code "$file" | grep -oE '\b(crate|unclobber)::(\{[^}]*\}|[a-z_]+)' | sed -E 's/^(crate|unclobber):://; s/[{},]/ /g; s/::[^ ]*//g' | tr ' ' '\n' | grep -E '^[a-z_]+$' | sort -u); do
            [ "$used" = "$layer" ] && continue
            [ "$used" = self ] && continue
            # A layer's own items that are re-exported at its root, and macros, are no layer.
            [ -n "${may[$used]+known}" ] || continue
            case " ${may[$layer]} " in
                *" $used "*) ;;
                *) echo "$file: $layer uses $used"; bad=1 ;;
            esac
        done
        [ "$layer" = front ] || forbid "$file" '\bfuser::|extern crate fuser' "fuser outside front" || bad=1
        if [ "$layer" != sys ]; then
            # Its constants are numbers that errors and flags are made of; its functions are system calls.
            forbid "$file" '\blibc::[a-z_0-9]+[[:space:]]*\(|\bnix::' "a system call outside sys" || bad=1
            forbid "$file" '\bunsafe\b[[:space:]]*(\{|fn|impl|extern)' "unsafe outside sys" || bad=1
        fi
        [ "$layer" = rules ] || forbid "$file" '\b(ignore|toml)::' "patterns and files of rules outside rules" || bad=1
        if [ "$layer" = guard ]; then
            forbid "$file" '\bstd::(fs|io|net|process|thread|time|env)\b|\bstd::sync::([^A]|A[^r])|\b(parking_lot|log)::' "I/O, a clock or a lock in guard" || bad=1
        fi
    done < <(find "$root" -name '*.rs' | sort)
    return "$bad"
}

forbid() {
    local found
    # grep says no with 1; anything else is a rule that cannot be read.
    found=$(code "$1" | grep -nE "$2") || [ $? -eq 1 ] || { echo "$1: the rule for $3 cannot be read"; return 1; }
    [ -z "$found" ] && return 0
    printf '%s: %s:\n%s\n' "$1" "$3" "$found"
    return 1
}

# Each rule is broken once; a rule that does not notice is no rule, nor is one that finds fault with what keeps them all.
prove() {
    local rule line missed=0
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    for rule in \
        "guard|use crate::sys;" "guard|use std::fs;" "store|use crate::fs::Guard;" "owner|use crate::{audit, guard};" \
        "sys|use crate::store::Root;" "fs|fn f() { libc::getpid() }" "fs|use crate::front::serve;" "fs|use fuser::Session;" "store|use nix::fcntl;" \
        "owner|fn f() { unsafe { g() } }" "audit|use crate::cli;" "rules|use crate::fs::Guard;" "fs|use ignore::Match;" "control|use crate::rules::Rule;" "front|use crate::store::Root;"; do
        rm -rf "$copy/src"
        line=${rule#*|}
        mkdir -p "$copy/src/${rule%%|*}"
        printf 'use crate::sync::Mutex as _;\n' >"$copy/src/fs.rs"
        check "$copy/src" || return 1
        printf '%s\n' "$line" >"$copy/src/${rule%%|*}/broken.rs"
        if check "$copy/src" >/dev/null; then
            echo "not noticed in ${rule%%|*}: $line"
            missed=1
        fi
    done
    return "$missed"
}

if [ "${1:-}" = --prove ]; then
    prove && echo "every rule notices its break"
else
    check src
fi
