#!/usr/bin/env bash
# tests/commands.sh: every command's outcome as a person or a script sees it: exit codes, JSON, names and versions.
# Needs no root.
. "$(dirname "$0")/lib.sh"

file_tree "$WORK/tree" 12 commands
ext4_image "$WORK/disk" 48 "$WORK/tree"
cp --sparse=always "$WORK/disk" "$WORK/changed"
seq 5000 >"$WORK/new-file"
debugfs -w -R "write $WORK/new-file new-file" "$WORK/changed" >/dev/null 2>&1
e2fsck -fy "$WORK/changed" >/dev/null 2>&1 || true

check_exit "$EXIT_USAGE" "no command" "$PLATTER"
check_exit "$EXIT_USAGE" "an unknown option" platter images --no-such-option
check_exit "$EXIT_MISSING" "no store" platter images
check_said "and what to do about it" 'init'
check "init" platter init
check_exit "$EXIT_REFUSED" "init where a store is" platter init

check "capture" platter capture "$WORK/disk" lab/debian --label os=debian --label note='two words'
platter_json capture "$WORK/disk" lab/debian >"$WORK/again.json"
check "capture of the same disk adds no data" jq -e '.name == "lab/debian" and .number == 2 and .version == "lab/debian@2" and .new_raw_bytes == 0' "$WORK/again.json"
platter_json capture "$WORK/changed" lab/debian >"$WORK/changed.json"
check "capture of a changed disk adds little" jq -e '.number == 3 and .new_raw_bytes > 0 and .new_raw_bytes < .allocated_bytes / 4' "$WORK/changed.json"
check "the summary tells sizes and the file system" jq -e --argjson bytes $((48 << 20)) '
	.disk_bytes == $bytes and .allocated_bytes < $bytes and (.score | type == "string") and (.filesystems | length >= 1)' "$WORK/changed.json"

platter images >"$WORK/images"
check "images lists the name" grep -q 'lab/debian' "$WORK/images"
check "images as JSON" bash -c '"$0" --store "$1" --json images | jq -es "flatten | map(.name // .image) | index(\"lab/debian\") != null"' "$PLATTER" "$STORE"
platter show lab/debian@1 >"$WORK/show"
check "show tells the labels" grep -q 'two words' "$WORK/show"
check "history lists three versions" bash -c '[ "$("$0" --store "$1" --json history lab/debian | jq -s "flatten | length")" = 3 ]' "$PLATTER" "$STORE"

check "install of the newest" platter install lab/debian "$WORK/target"
check "its file system is sound" e2fsck -fn "$WORK/target"
check "the change is in it" bash -c 'cmp <(debugfs -R "cat new-file" "$0" 2>/dev/null) "$1"' "$WORK/target" "$WORK/new-file"
check "install of an older version" platter install lab/debian@1 "$WORK/target" --free zero --verify
check "export of it" platter export lab/debian@1 "$WORK/exported"
check "they are the same" cmp "$WORK/target" "$WORK/exported"
score=$(platter_json show lab/debian@1 | jq -r '[.. | .score? // empty] | first')
check "a score stands for a version" platter install "$score" "$WORK/by-score" --free zero
check "and gives the same disk" cmp "$WORK/by-score" "$WORK/exported"

check_exit "$EXIT_MISSING" "install of an unknown image" platter install lab/nothing "$WORK/target"
check_exit "$EXIT_MISSING" "install of an unknown version" platter install lab/debian@9 "$WORK/target"
check_exit "$EXIT_MISSING" "capture of an unknown file" platter capture "$WORK/no-such-disk" x
check_said "and it is named" 'no-such-disk'
check_exit "$EXIT_USAGE" "a name that is none" platter capture "$WORK/disk" '../escape'
check "completions" bash -c '"$0" completions bash | bash -n' "$PLATTER"

check "check" platter check
check "check of all data" platter check --read-data
check "rebuild" platter rebuild
check "after it nothing is missing" platter install lab/debian@1 "$WORK/target" --free zero
check "nor changed" cmp "$WORK/target" "$WORK/exported"

# Two writers: the second waits or is told why not, and nothing breaks.
"$PLATTER" --store "$STORE" --quiet capture "$WORK/changed" two/a >"$WORK/a" 2>&1 &
first=$!
code=0
platter capture "$WORK/disk" two/b >"$LOG" 2>&1 || code=$?
if [ "$code" = 0 ] || said 'lock|in use|another|writ'; then
	ok "the second waits or is told (exit code $code)"
else
	not_ok "the second of two writers: exit code $code"
fi
first_code=0
wait "$first" || first_code=$?
check "one of two writers finishes" bash -c '[ "$0" = 0 ] || [ "$1" = 0 ]' "$code" "$first_code"
check "the store is sound" platter check --read-data
finish
