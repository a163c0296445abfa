#!/usr/bin/env bash
# bench/attack.sh [MIB] [RATE]
#
# A cast of MIB (400) at RATE (400M) to two receivers on a link of 1 Gbit/s, alone and attacked, with a join key and without. The attacker sees
# all of the link and sends 10,000 datagrams a second of every kind that tests/cast_disturber.py knows, in the name of sender and receivers, and
# answers joins in the sender's place; a rogue casts another disk under the same name. Runs alternate. Printed are the medians of the
# seconds that the cast takes, and their ratio; every receiver's disk is compared.
. "$(dirname "$0")/lib.sh"
MIB=${1:-400}
RATE=${2:-400M}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
bench_cleanup() {
	end_begun
	"$ROOM" down
	umount "$WORK/memory" 2>/dev/null
}
fail() {
	echo "attack: $*" >&2
	tail -n 5 "$WORK"/*.log >&2
	exit 1
}

mkdir "$WORK/memory"
mount -t tmpfs -o size=90% tmpfs "$WORK/memory"
STORE=$WORK/memory/store
ROGUE=$WORK/memory/rogue
new_store
head -c "${MIB}M" /dev/urandom >"$WORK/memory/right"
platter capture "$WORK/memory/right" bench/disk >/dev/null
head -c 8M /dev/urandom >"$WORK/memory/other"
"$PLATTER" --store "$ROGUE" --quiet init >/dev/null
"$PLATTER" --store "$ROGUE" --quiet capture "$WORK/memory/other" bench/disk >/dev/null
score=$(platter_json show bench/disk | jq -r '[.. | .score? // empty] | first')
(umask 077 && head -c 32 /dev/urandom >"$WORK/key")

cast() { # LOG MACHINE STORE RECEIVERS OPTION...
	begin "$1" "$ROOM" in "$2" "$PLATTER" --store "$3" --quiet --json cast bench/disk --interface eth0 --receivers "$4" --wait 120 --give-up 120 \
		--rate "$RATE" "${@:5}"
}
receive() { # I OPTION...
	begin "$WORK/receive-$1.log" "$ROOM" in "$1" "$PLATTER" --quiet receive "$score" "$WORK/memory/target-$1" --interface eth0 --yes "${@:2}"
	RECEIVERS+=("$SERVER")
}
disturber() { # COMMAND ARGUMENT...: its output is in disturber.log
	begin "$WORK/disturber.log" "$ROOM" in 3 "$ROOT/tests/cast_disturber.py" "$1" 10.78.0.3 "${@:2}"
}
# one_cast SERIES alone|attacked OPTION...: adds the seconds of a cast to the series
one_cast() {
	local series=$1 how=$2 sender pid i
	shift 2
	"$ROOM" up 4 1gbit
	"$ROOM" in switch ip link set bridge0 type bridge ageing_time 0
	RECEIVERS=()
	# What is recorded of an unattacked cast is repeated in the next one.
	case $how in alone) disturber record "$WORK/former" ;; *) disturber attack "$WORK/former" ;; esac
	cast "$WORK/cast.log" sender "$STORE" 2 "$@"
	sender=$SERVER
	receive 1 "$@"
	if [ "$how" = attacked ]; then
		wait_for grep -q attacking "$WORK/disturber.log"
		cast "$WORK/rogue.log" 4 "$ROGUE" 1
		wait_for grep -q 'sent 10000' "$WORK/disturber.log"
	fi
	receive 2 "$@"
	for pid in "${RECEIVERS[@]}" "$sender"; do
		wait "$pid" || fail "$series: a receiver or the sender fails"
		unset "RUNNING[$pid]"
	done
	for i in 1 2; do
		cmp "$WORK/memory/target-$i" "$WORK/memory/right" || fail "$series: receiver $i has other bytes"
		rm "$WORK/memory/target-$i"
	done
	jq -s 'map(.cast // empty) | last.seconds' "$WORK/cast.log" >>"$WORK/times/$series"
	end_begun
	"$ROOM" down
}

heading "a cast of $MIB MiB at $RATE to two receivers, under attack"
for key in without with; do
	options=()
	[ "$key" = without ] || options=(--key-file "$WORK/key")
	for _ in $(seq "$RUNS"); do
		for how in alone attacked; do one_cast "$key-$how" "$how" "${options[@]}"; done
	done
	result "$key a join key: alone, attacked" "$(median "$key-alone"), $(median "$key-attacked") s" "$(spread "$key-alone"), $(spread "$key-attacked") s"
	result "  attacked, of the time alone" "$(calculate "$(median "$key-attacked") / $(median "$key-alone")")" "at most 1.05"
done
