#!/usr/bin/env bash
# Fails unless every rule of docs/SEMANTICS.md is named by a test that runs, and every test names rules that exist.
#
# A rule is defined by its id in bold: **D3**. A test names the rules it shows in one of two ways, under src/ or tests/:
#   // semantics: D3 D4          above #[test], with nothing but comments and attributes in between
#   ids: "D3 D4"                 in a table of cases that a test walks through
# An ignored test counts for nothing.
set -euo pipefail

cd "$(dirname "$0")/.."
document=docs/SEMANTICS.md
[ -r "$document" ] || { echo "check-semantics: $document is missing" >&2; exit 1; }

defined=$(grep -oE '\*\*[A-Z][0-9]+\*\*' "$document" | tr -d '*' | sort)
[ -n "$defined" ] || { echo "check-semantics: $document defines no rule" >&2; exit 1; }

places=(src)
[ -d tests ] && places+=(tests)
tested=$(find "${places[@]}" -name '*.rs' -exec awk '
    function credit(text,   count, word, i) {
        count = split(text, word, /[ ,]+/)
        for (i = 1; i <= count; i++) if (word[i] != "") print word[i] "\t" FILENAME ":" FNR
    }
    FNR == 1 { pending = ""; is_test = 0; ignored = 0 }
    /^[ \t]*\/\/ semantics:/ { text = $0; sub(/^[ \t]*\/\/ semantics:/, "", text); pending = pending " " text; next }
    /^[ \t]*\/\// { next }
    /^[ \t]*#\[/ {
        if ($0 ~ /^[ \t]*#\[test\]/) is_test = 1
        if ($0 ~ /^[ \t]*#\[ignore/) ignored = 1
        next
    }
    /^[ \t]*$/ { next }
    {
        if (pending != "" && is_test && !ignored) credit(pending)
        pending = ""; is_test = 0; ignored = 0
        if (match($0, /ids: "[A-Z][A-Z0-9 ,]*"/)) credit(substr($0, RSTART + 6, RLENGTH - 7))
    }
' {} +)

failed=0
complain() { echo "check-semantics: $1" >&2; failed=1; }

for id in $(uniq -d <<<"$defined"); do complain "$id is defined twice"; done
for id in $(comm -23 <(sort -u <<<"$defined") <(cut -f1 <<<"$tested" | sort -u)); do
    complain "$id has no test"
done
while read -r id; do
    [ -n "$id" ] || continue
    complain "$(awk -F'\t' -v id="$id" '$1 == id { print $2; exit }' <<<"$tested") names $id, which is no rule"
done < <(comm -13 <(sort -u <<<"$defined") <(cut -f1 <<<"$tested" | sort -u))

[ "$failed" -eq 0 ] && echo "check-semantics: $(sort -u <<<"$defined" | wc -l) rules, each with a test"
exit "$failed"
