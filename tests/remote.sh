#!/usr/bin/env bash
# tests/remote.sh: commands through an origin, by unix socket and by TLS. Their output and effects must be the same as on
# a local store. An origin that is killed and restarted during an install or a capture must not cause any loss; wrong
# certificates and tokens are refused; a lying origin must cause no wrong writes and no large memory use. PLATTER_SEED
# selects the moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) kills=25 ;; *) kills=4 ;; esac
ATTACHED=
suite_cleanup() {
	local process
	for process in $ORIGIN $ATTACHED; do kill -KILL "$process" 2>/dev/null; done
}

timeless() { jq -S 'del(.seconds)'; }

# same_answer ARGUMENT...: output and exit code are the same locally, by unix socket and over TLS
same_answer() {
	local here there code=0 code_there=0 way
	here=$(platter "$@" 2>/dev/null) || code=$?
	for way in afar afar_tls; do
		there=$($way "$@" 2>/dev/null) || code_there=$?
		if [ "$here" != "$there" ] || [ "$code" != "$code_there" ]; then
			printf 'exit codes %s and %s (%s)\n' "$code" "$code_there" "$way"
			diff <(echo "$here") <(echo "$there") || true
			return 1
		fi
	done
}

file_tree "$WORK/tree" 12 remote
ext4_image "$WORK/disk" 48 "$WORK/tree"
cp --sparse=always "$WORK/disk" "$WORK/changed"
random 1500000 new >"$WORK/new-file"
debugfs -w -R "write $WORK/new-file new-file" "$WORK/changed" >/dev/null 2>&1
e2fsck -fy "$WORK/changed" >/dev/null 2>&1 || true
platter init >/dev/null
platter capture "$WORK/disk" lab/debian --label os=debian >/dev/null
platter capture "$WORK/changed" lab/debian --note 'a file more' >/dev/null
platter clone lab/debian@1 lab/copy >/dev/null
platter export lab/debian@1 "$WORK/first"
platter export lab/debian@2 "$WORK/second"

check "an origin answers" start_origin
TOKEN=$(origin_secret admin)
FINGERPRINT=$(origin_fingerprint)

# Output of commands.
for arguments in images 'images --json' 'history lab/debian' 'history lab/debian --json' 'show lab/debian' 'show lab/debian@1 --json' \
	'show lab/copy' 'diff lab/debian@1 lab/debian@2 --blocks' 'lock list' 'show lab/none' 'history none' 'show lab/debian@9' \
	"show $(platter_json show lab/debian@1 | jq -r .score)"; do
	# shellcheck disable=SC2086  # words
	check "$arguments: the same output" same_answer $arguments
done
same_diff() {
	diff <(platter diff lab/debian@1 lab/debian@2 || true) <(afar diff lab/debian@1 lab/debian@2 || true)
}
check "diff by files: the same output" same_diff

# Reading.
for way in afar afar_tls; do
	rm -f "$WORK/target" "$WORK/exported"
	check "$way: install --verify" "$way" install lab/debian "$WORK/target" --free zero --verify
	check "$way: with the right bytes" cmp "$WORK/target" "$WORK/second"
	check "$way: export" "$way" export lab/debian@1 "$WORK/exported"
	check "$way: with the right bytes" cmp "$WORK/exported" "$WORK/first"
done
attach_afar() {
	local tries=0
	: >"$WORK/attach.log"
	"$PLATTER" --server "unix:$SOCKET" attach lab/debian lab/copy --nbd "$WORK/nbd.sock" >"$WORK/attach.log" 2>&1 &
	ATTACHED=$!
	until grep -q '^score ' "$WORK/attach.log"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$ATTACHED" 2>/dev/null; then
			cat "$WORK/attach.log"
			return 1
		fi
		sleep 0.05
	done
}
check "a disk is attached" attach_afar
check "and read" nbdcopy "nbd+unix:///lab/debian?socket=$WORK/nbd.sock" "$WORK/copied"
check "with the right bytes" cmp "$WORK/copied" "$WORK/second"
kill "$ATTACHED"
check "attach ends on request" wait "$ATTACHED"
ATTACHED=
for command in check rebuild init; do
	check_exit "$EXIT_REFUSED" "$command is refused" afar "$command"
	check_said "and the message says where to run it" 'on the origin'
done
check_exit "$EXIT_USAGE" "--store with --server" "$PLATTER" --store "$STORE" --server "unix:$SOCKET" images
check "the origin's address can be set in the environment" env "PLATTER_SERVER=unix:$SOCKET" "$PLATTER" images
check "--store takes precedence over the environment" env PLATTER_SERVER=nonsense "$PLATTER" --store "$STORE" images

# Writing.
afar capture "$WORK/changed" lab/again --json --audit >"$WORK/again.json"
check "capture of a known disk sends nothing" jq -e '.version == "lab/again@1" and .new_blocks == 0' "$WORK/again.json"
check "and has the same score" [ "$(jq -r .score "$WORK/again.json")" = "$(platter_json show lab/debian@2 | jq -r .score)" ]
random 3000000 newer >"$WORK/newer-file"
cp --sparse=always "$WORK/changed" "$WORK/newer"
debugfs -w -R "write $WORK/newer-file newer-file" "$WORK/newer" >/dev/null 2>&1
e2fsck -fy "$WORK/newer" >/dev/null 2>&1 || true
afar_tls capture "$WORK/newer" lab/debian --label from=afar --json >"$WORK/newer.json"
check "capture over TLS" jq -e '.version == "lab/debian@3" and .new_raw_bytes > 3000000 and .new_raw_bytes < 4000000' "$WORK/newer.json"
"$PLATTER" --store "$WORK/other" init >/dev/null
"$PLATTER" --store "$WORK/other" capture "$WORK/newer" x --json >"$WORK/other.json"
check "its score equals that of a local capture" [ "$(jq -r .score "$WORK/newer.json")" = "$(jq -r .score "$WORK/other.json")" ]
"$PLATTER" --store "$WORK/other" export x "$WORK/third"
platter export lab/debian@3 "$WORK/found"
check "and its bytes are right" cmp "$WORK/third" "$WORK/found"
check "clone" afar clone lab/debian@1 lab/cloned
check_exit "$EXIT_REFUSED" "clone to an existing name" afar clone lab/debian lab/cloned
check "clone to its next version" afar_tls clone lab/debian lab/cloned --next
check "rename" afar rename lab/cloned attic/cloned
check_exit "$EXIT_REFUSED" "forget of a whole image" afar forget attic/cloned
check_said "needs --all" '--all'
check "forget" afar forget attic/cloned@1
check "the log says so" jq -es '.[-1] | .action == "forget" and .from == "unix socket" and (.who | length) > 0' <(afar --json log attic/cloned)
check_exit "$EXIT_MISSING" "the version is gone" platter show attic/cloned@1
check "take an edit lock" afar lock take lab/copy --holder me
check_exit "$EXIT_REFUSED" "capture to an edited image is refused at once" afar capture "$WORK/disk" lab/copy
check_said "and the holder is named" 'held by me'
check "capture under the edit lock" afar capture "$WORK/disk" lab/copy --lock "$(platter_json lock list | jq .number)"
check "capture --steal-lock" afar_tls capture "$WORK/disk" lab/copy --steal-lock
check_exit "$EXIT_MISSING" "the edit lock was released" afar lock release lab/copy --holder me
check "the store is clean" platter check --read-data

# Authentication.
RIGHT=$FINGERPRINT
FINGERPRINT=$(printf '0%.0s' {1..64}) check_exit "$EXIT_REFUSED" "a wrong fingerprint" afar_tls images
check_said "and the right one is printed" "$RIGHT"
check_exit "$EXIT_REFUSED" "no fingerprint" env -u PLATTER_FINGERPRINT "$PLATTER" --server "https://127.0.0.1:$PORT" images
check_said "and the option is named" 'fingerprint'
TOKEN=${TOKEN%?}x check_exit "$EXIT_REFUSED" "a wrong access token" afar_tls images
check_exit "$EXIT_REFUSED" "no access token" env -u PLATTER_TOKEN "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" images
echo "$TOKEN" >"$WORK/token"
check "an access token in a file" "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" --token-file "$WORK/token" images
check_exit "$EXIT_USAGE" "an invalid address" "$PLATTER" --server "http://127.0.0.1:$PORT" images
stop_origin TERM
check_exit "$EXIT_FAILED" "no origin answers" afar images
check_said "and the address is named" "$SOCKET"

# The origin is killed and restarted during installs and captures.
random $((96 << 20)) large >"$WORK/large"
platter capture "$WORK/large" big/disk >/dev/null
start_origin
killed_under() { # CYCLE COMMAND...: the origin dies at some moment of it and comes back
	local cycle=$1 delay_us
	shift
	# Not before the first request, because a job that finds no origin at its start ends at once.
	delay_us=$((200000 + $(number "moment $cycle $2" 600000)))
	"$@" >"$WORK/out" 2>&1 &
	local job=$!
	sleep "0.$(printf '%06d' "$delay_us")"
	stop_origin KILL
	sleep 0.3
	start_origin
	wait "$job" || { cat "$WORK/out"; return 1; }
}
for cycle in $(seq "$kills"); do
	rm -f "$WORK/target"
	check "install $cycle, with the origin killed meanwhile" killed_under "$cycle" afar install big/disk "$WORK/target" --free zero
	check "with the right bytes" cmp "$WORK/target" "$WORK/large"
	{ head -c $((64 << 20)) "$WORK/large" && random $((32 << 20)) "cycle $cycle"; } >"$WORK/next"
	check "capture $cycle, with the origin killed meanwhile" killed_under "$cycle" afar capture "$WORK/next" "big/next$cycle"
	rm -f "$WORK/target"
	check "its version is exported" afar export "big/next$cycle" "$WORK/target"
	check "with the right bytes" cmp "$WORK/target" "$WORK/next"
done
stop_origin TERM
check "the store is clean" platter check --read-data

# An origin that lies. The memory limit in KiB is that of a normal export, with some reserve.
platter_json show lab/debian >"$WORK/record.json"
lies() { # MODE COMMAND...: its exit code is the command's; the most memory it had is in $WORK/memory
	local mode=$1 code memory
	shift
	read -r code memory < <("$TESTS/hostile_origin.py" "$WORK/liar.sock" "$WORK/record.json" "$mode" \
		"$PLATTER" --server "unix:$WORK/liar.sock" --quiet "$@" 2>"$WORK/liar.log" | tail -n 1)
	cat "$WORK/liar.log"
	echo "$memory" >"$WORK/memory"
	return "$code"
}
for mode in closes garbage endless-head endless-list endless-words; do
	code=$EXIT_CORRUPT
	case $mode in closes | endless-words) code=$EXIT_FAILED ;; esac
	check_exit "$code" "$mode: a clear error" lies "$mode" images
	check "with little memory: $(cat "$WORK/memory") KiB" [ "$(cat "$WORK/memory")" -lt 250000 ]
done
for mode in frames-garbage frames-huge frames-ids frames-empty; do
	rm -f "$WORK/target"
	check_exit "$EXIT_CORRUPT" "$mode: a clear error" lies "$mode" install lab/debian "$WORK/target"
	check "nothing is written" [ ! -s "$WORK/target" ]
	check "with little memory: $(cat "$WORK/memory") KiB" [ "$(cat "$WORK/memory")" -lt 250000 ]
done
finish
