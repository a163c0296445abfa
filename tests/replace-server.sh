#!/usr/bin/env bash
# tests/replace-server.sh: `platter serve` is replaced again and again (`--take-over`) while clients capture, install, change names,
# follow events and read and write a disk of a node. No command and no request fails, no byte is wrong. A successor that cannot serve what
# the running server serves leaves it alone. A server that was killed is replaced by one that starts as usual.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) rounds=20 ;; *) rounds=4 ;; esac
NODE=
CACHE=$WORK/cache
suite_cleanup() {
	local process
	for process in $ORIGIN $NODE $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
}

# successor OPTION...: in the background; its output goes to $WORK/successor.log
successor() {
	: >"$WORK/successor.log"
	"$PLATTER" --store "$STORE" serve --take-over "$@" >>"$WORK/successor.log" 2>&1 &
	SUCCESSOR=$!
}
readonly ADDRESSES=(--listen "unix:$SOCKET" --listen "127.0.0.1:$PORT")
listens() { grep -q '^fingerprint ' "$WORK/successor.log"; }
# replace: a successor takes over. The server before ends when its clients have left its connections, or these were idle for a while.
REPLACED=()
replace() {
	REPLACED+=("$ORIGIN")
	successor "${ADDRESSES[@]}"
	until_true 60 listens || { cat "$WORK/successor.log"; return 1; }
	ORIGIN=$SUCCESSOR
}
replaced_servers_ended_well() {
	local process
	for process in "${REPLACED[@]}"; do wait "$process" || return 1; done
}
# again NAME COMMAND...: runs the command until the file `stop` is there; each success adds a line to NAME.done, a failure to NAME.failed
again() {
	local name=$1
	shift
	while [ ! -e "$WORK/stop" ]; do
		if "$@" >"$WORK/$name.out" 2>&1; then
			echo succeeded >>"$WORK/$name.done"
		else
			{ echo "$* failed:" && tail -n 5 "$WORK/$name.out"; } >>"$WORK/$name.failed"
		fi
	done
}
never_failed() { [ -s "$WORK/$1.done" ] && { [ ! -e "$WORK/$1.failed" ] || { cat "$WORK/$1.failed"; return 1; }; }; }
count() { wc -l <"$WORK/$1.done"; }

install_one() { rm -f "$WORK/target" && afar_tls install lab/disk "$WORK/target" --yes --free zero && cmp "$WORK/target" "$WORK/disk"; }
CAPTURED=0
# Two thirds of each are new.
capture_one() {
	CAPTURED=$((CAPTURED + 1))
	{ head -c $((8 << 20)) "$WORK/disk" && random $((16 << 20)) "capture $CAPTURED"; } >"$WORK/next" &&
		afar_tls capture --raw "$WORK/next" "lab/captured$CAPTURED" && md5sum <"$WORK/next" >"$WORK/captured$CAPTURED.md5"
}
change_one() { afar lock take lab/disk --holder me && afar lock release lab/disk --holder me && afar images; }
# Until the server ends the stream (0), or for three seconds (28).
follow_one() {
	local code=0
	curl -sfN --max-time 3 --unix-socket "$SOCKET" http://platter/api/v1/events || code=$?
	[ "$code" = 0 ] || [ "$code" = 28 ] || { echo "curl ended with $code" && false; }
}
copy_one() {
	rm -f "$WORK/copy"
	"$PLATTER" --server "unix:$SOCKET" --quiet export lab/disk "$WORK/copy" && cmp "$WORK/copy" "$WORK/disk"
}

random $((32 << 20)) disk >"$WORK/disk"
random $((32 << 20)) live >"$WORK/live"
platter init >/dev/null
platter capture --raw "$WORK/disk" lab/disk >/dev/null
platter capture --raw "$WORK/live" lab/live >/dev/null

successor "${ADDRESSES[@]}"
check "where no server runs, one that would take over starts" until_true 60 listens
ORIGIN=$SUCCESSOR
FINGERPRINT=$(origin_fingerprint)
TOKEN=$(origin_secret admin)
"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" lab/live --write >"$WORK/node.log" 2>&1 &
NODE=$!
until_true 60 grep -q '^score ' "$WORK/node.log" || cat "$WORK/node.log"

for work in install capture change follow copy; do again "$work" "${work}_one" & done
fio --name=node --rw=randrw --bs=4k-64k --size=16M --verify=crc32c --verify_backlog=64 --verify_fatal=1 --verify_state_save=0 --iodepth=8 --ioengine=nbd \
	--uri="nbd+unix:///lab/live?socket=$CACHE/nbd.sock" --time_based --runtime=$((rounds * 3)) --output-format=json \
	--output="$WORK/fio.json" >"$WORK/fio.log" 2>&1 &
FIO=$!
for ((round = 1; round <= rounds; round++)); do
	sleep 2
	check "replaced under load: $round" replace
done

# What cannot take over leaves the server alone.
check_exit "$EXIT_REFUSED" "a successor at other addresses is refused" "$PLATTER" --store "$STORE" serve --take-over --listen "unix:$SOCKET"
check_said "and says which they are" "127.0.0.1:$PORT"
check_exit "$EXIT_MISSING" "a successor without its certificate does not start" \
	"$PLATTER" --store "$STORE" serve --take-over "${ADDRESSES[@]}" --certificate "$WORK/none" --key "$WORK/none"
check "the server goes on" afar images
check "and can be replaced" replace

touch "$WORK/stop"
check "fio on the node ends well" wait "$FIO"
check "no request failed" jq -e '[.jobs[].error] | all(. == 0)' "$WORK/fio.json"
check "every server that was replaced has ended well" replaced_servers_ended_well
for process in $(jobs -p); do [ "$process" = "$ORIGIN" ] || [ "$process" = "$NODE" ] || wait "$process"; done
check "no install failed" never_failed install
check "no capture failed" never_failed capture
check "no change of a name failed" never_failed change
check "no stream of events failed to begin" never_failed follow
check "no export failed" never_failed copy
echo "# meanwhile: $(count install) installs, $(count capture) captures, $(count change) changes, $(count copy) exports"
for sum in "$WORK"/captured*.md5; do
	image=lab/$(basename "$sum" .md5)
	rm -f "$WORK/copy"
	check "$image is what was captured" eval 'platter export "$image" "$WORK/copy" && md5sum --status -c "$sum" <"$WORK/copy"'
done
check "the disk of the node is published" "$PLATTER" publish lab/live --node "$CACHE"

# A server that was killed leaves its sockets' files.
kill -KILL "$ORIGIN"
wait "$ORIGIN" 2>/dev/null || true
successor "${ADDRESSES[@]}"
check "after a crash, one that would take over starts" until_true 60 listens
ORIGIN=$SUCCESSOR
check "and serves" afar images
stop_origin TERM
check "its sockets' files are gone at the end" eval '[ ! -e "$SOCKET" ] && [ ! -e "$STORE/serve-control.sock" ]'
check "the store is clean" platter check --read-data
finish
