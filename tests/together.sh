#!/usr/bin/env bash
# tests/together.sh: related disks captured at the same time, through an origin and by local processes, take no more space than
# captured one after the other, also when one of the clients is killed.
. "$(dirname "$0")/lib.sh"

DISKS=8
suite_cleanup() { [ -z "$ORIGIN" ] || kill -KILL "$ORIGIN" 2>/dev/null; }

file_tree "$WORK/tree" 40 together
for n in $(seq $DISKS); do
	random 300000 "own $n" >"$WORK/tree/own"
	ext4_image "$WORK/disk-$n" 128 "$WORK/tree"
done

stored() { du -sb --apparent-size "$1/packs" | cut -f1; }
capture_all() { # capture_all COMMAND...: captures all disks at once; returns how many failed
	local n failed=0 processes=()
	for n in $(seq $DISKS); do
		"$@" capture "$WORK/disk-$n" "lab/disk-$n" >"$WORK/capture-$n.log" 2>&1 &
		processes+=($!)
	done
	for n in $(seq $DISKS); do
		wait "${processes[n - 1]}" && continue
		cat "$WORK/capture-$n.log"
		failed=$((failed + 1))
	done
	return $failed
}
# is_small STORE: at most 1.05 of the bytes of one after the other
is_small() {
	ratio=$(($(stored "$1") * 1000 / IN_TURN))
	[ $(($(stored "$1") * 100)) -le $((IN_TURN * 105)) ]
}
told() { echo "# $(stored "$STORE") bytes, $((ratio / 1000)).$(printf %03d $((ratio % 1000))) of one after the other"; }
has_all() {
	local n
	for n in $(seq $DISKS); do
		rm -f "$WORK/exported"
		platter export "lab/disk-$n" "$WORK/exported" && cmp "$WORK/exported" "$WORK/disk-$n" || return 1
	done
	platter check --read-data
}

STORE=$WORK/in-turn
platter init >/dev/null
for n in $(seq $DISKS); do platter capture "$WORK/disk-$n" "lab/disk-$n" >/dev/null; done
IN_TURN=$(stored "$STORE")

STORE=$WORK/local
platter init >/dev/null
check "local processes wait for each other" capture_all "$PLATTER" --store "$STORE" --retry-lock 10m
check "local: the same bytes as one after the other" is_small "$STORE"
told
check "local: every disk is right" has_all

STORE=$WORK/origin
platter init >/dev/null
start_origin
check "clients of an origin capture at once" capture_all "$PLATTER" --server "unix:$SOCKET"
check "origin: the same bytes as one after the other" is_small "$STORE"
told
stop_origin TERM
check "origin: every disk is right" has_all

check_exit "$EXIT_USAGE" "an origin waits by itself" env PLATTER_SERVER="unix:$SOCKET" "$PLATTER" --retry-lock 1m images

# A command on the store of an origin that is writing it.
STORE=$WORK/held
OTHER_SOCKET=$SOCKET
SOCKET=$STORE/serve.sock
platter init >/dev/null
platter capture "$WORK/disk-1" lab/disk-1 >/dev/null
start_origin
random 200000000 slow >"$WORK/slow"
"$PLATTER" --server "unix:$SOCKET" capture --raw "$WORK/slow" lab/slow >"$WORK/slow.log" 2>&1 &
SLOW=$!
is_held() { ! flock --nonblock "$STORE/lock" true; }
check "an origin writes its store for a client" until_true 60 is_held
kill -STOP "$SLOW"
# A store that is being written, and at its socket the server of this store.
another_store() {
	local other=$WORK/other-store before after
	"$PLATTER" --store "$other" --quiet init >/dev/null
	ln -s "$STORE/serve.sock" "$other/serve.sock"
	before=$(platter_json images | sort)
	flock "$other/lock" sleep 15 &
	until_true 5 sh -c "! flock --nonblock '$other/lock' true"
	"$PLATTER" --store "$other" --quiet capture "$WORK/disk-2" lab/other && return 1
	wait $!
	after=$(platter_json images | sort)
	[ "$before" = "$after" ]
}
check "a capture into that store goes through the origin" platter capture "$WORK/disk-2" lab/disk-2
check "clone, too" platter clone lab/disk-2 lab/clone
check "rename, too" platter rename lab/clone lab/renamed
check "protect, too" platter protect lab/disk-1@1
check "lock, too" platter lock take lab/renamed --holder somebody
check "release, too" platter lock release lab/renamed --holder somebody
check "forget, too" platter forget lab/renamed --all
check "quota, too" platter quota set lab 1T
check "gc, too" platter gc --keep-trash 0 --yes
check "a server of another store at that socket gets nothing" another_store
check_exit "$EXIT_FAILED" "with --retry-lock, a command waits" platter --retry-lock 1s rename lab/disk-1 lab/other
check_said "and says that it can go through the server" '--retry-lock TIME; .*--server'
check_exit "$EXIT_FAILED" "what an origin does not do waits, too" platter --retry-lock 1s discard-interrupted
check_said "and says how to wait longer" '--retry-lock TIME'
check "but not that it could go through the server" sh -c '! grep -q -- --server "$1"' - "$LOG"
check "all of them did so while the origin was writing" is_held
kill -CONT "$SLOW"
slow_finishes() { wait "$SLOW" || { cat "$WORK/slow.log"; return 1; }; }
check "the slow client finishes" slow_finishes
check "the log says that they came through the origin" \
	sh -c "'$PLATTER' --store '$STORE' --json log | jq -s -e '[.[] | select(.action == \"publish\") | .from] | .[0] == \"local\" and all(.[1:][]; . != \"local\")'"
stop_origin TERM
check "the right bytes" sh -c "'$PLATTER' --store '$STORE' --quiet export lab/disk-2 '$WORK/exported-2' && cmp '$WORK/exported-2' '$WORK/disk-2'"

SOCKET=$OTHER_SOCKET
# The client that is killed is one of the eight.
STORE=$WORK/killed
platter init >/dev/null
start_origin
"$PLATTER" --server "unix:$SOCKET" capture "$WORK/disk-$DISKS" lab/lost >/dev/null 2>&1 &
LOST=$!
has_sent() { [ "$(stored "$STORE")" -gt 1000000 ] || ! kill -0 "$LOST"; }
DISKS=$((DISKS - 1))
capture_all "$PLATTER" --server "unix:$SOCKET" >"$WORK/others.log" 2>&1 &
OTHERS=$!
until_true 60 has_sent
kill -KILL "$LOST" 2>/dev/null || true
others_finish() { wait "$OTHERS" || { cat "$WORK/others.log"; return 1; }; }
check "the others finish when a client is killed" others_finish
check "killed: the same bytes as one after the other" is_small "$STORE"
told
stop_origin TERM
check "killed: every disk is right" has_all
finish
