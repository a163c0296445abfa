#!/usr/bin/env bash
# tests/kill9.sh [CYCLES]
#
# Kills a capture with signal 9 at a random moment, again and again, in one store on tmpfs. After each: the store
# checks clean, and every version whose capture had returned is there and exports to the bytes it was made from.
# The moments come from PLATTER_SEED. Cycles: 500 in full, 12 in quick.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) cycles=500 ;; *) cycles=12 ;; esac
cycles=${1:-$cycles}
readonly DISKS=4 DISK_MIB=48

# A tmpfs of its own: no disk's cache can hide what was not written, and 500 cycles wear nothing out.
if [ "$(id -u)" = 0 ]; then
	mkdir "$WORK/memory"
	mount -t tmpfs -o size=3g tmpfs "$WORK/memory"
	suite_cleanup() { umount "$WORK/memory"; }
	STORE=$WORK/memory/store
else
	STORE=$(mktemp -d /dev/shm/platter-kill9.XXXXXX)/store
	suite_cleanup() { rm -rf "$(dirname "$STORE")"; }
fi

# Disks that share most of their files, so that captures both find and add blocks.
file_tree "$WORK/tree" 24 base
for n in $(seq "$DISKS"); do
	random 3000000 "disk $n" >"$WORK/tree/own-$n"
	ext4_image "$WORK/disk-$n" "$DISK_MIB" "$WORK/tree"
done

platter init >/dev/null
# How long an undisturbed capture takes: the range of moments.
started=$(date +%s%N)
platter capture "$WORK/disk-1" warm/up >/dev/null
typical_us=$((($(date +%s%N) - started) / 1000))
echo "# $cycles cycles, seed $SEED, an undisturbed capture takes $((typical_us / 1000)) ms"
platter export warm/up "$WORK/export-1"
for n in $(seq 2 "$DISKS"); do # what each must export as, from a store of its own
	PLATTER_STORE='' "$PLATTER" --store "$WORK/reference" --quiet init >/dev/null 2>&1 || true
	"$PLATTER" --store "$WORK/reference" --quiet capture "$WORK/disk-$n" "d$n" >/dev/null
	"$PLATTER" --store "$WORK/reference" --quiet export "d$n" "$WORK/export-$n"
done
rm -rf "$WORK/reference"

returned=()
killed=0
bad=0
complain() {
	bad=$((bad + 1))
	echo "cycle $cycle: $*" | tee -a "$WORK/complaints"
}

for cycle in $(seq "$cycles"); do
	n=$((1 + $(number "disk $cycle" "$DISKS")))
	name=cycle/$((cycle % 7))
	delay_us=$(number "delay $cycle" $((typical_us * 2)))
	"$PLATTER" --store "$STORE" --quiet --json capture "$WORK/disk-$n" "$name" >"$WORK/out" 2>"$WORK/err" &
	pid=$!
	sleep "$(printf '%d.%06d' $((delay_us / 1000000)) $((delay_us % 1000000)))"
	kill -9 "$pid" 2>/dev/null || true
	code=0
	wait "$pid" 2>/dev/null || code=$?
	case $code in
	0) returned+=("$(jq -r .version "$WORK/out") $n") ;;
	137)
		killed=$((killed + 1))
		# Its summary is printed when all is durable: a printed version counts as returned.
		version=$(jq -r '.version // empty' "$WORK/out" 2>/dev/null || true)
		[ -z "$version" ] || returned+=("$version $n")
		;;
	*) complain "capture failed by itself with $code: $(tail -n 1 "$WORK/err")" ;;
	esac
	platter check >"$LOG" 2>&1 || complain "check: $(tail -n 3 "$LOG")"
	# The newest in each cycle, and one of the older ones.
	for pick in $((${#returned[@]} - 1)) "$(number "pick $cycle" $((${#returned[@]} + 1)))"; do
		if [ "$pick" -lt 0 ] || [ "$pick" -ge ${#returned[@]} ]; then continue; fi
		read -r version n <<<"${returned[$pick]}"
		rm -f "$STORE.export"
		if ! { platter export "$version" "$STORE.export" && cmp "$STORE.export" "$WORK/export-$n"; } >"$LOG" 2>&1; then
			complain "$version does not export as disk $n: $(tail -n 1 "$LOG")"
		fi
	done
done
rm -f "$STORE.export"

# A seed that killed nothing, or let nothing return, tested nothing.
check "captures were killed ($killed of $cycles)" [ "$killed" -gt 0 ]
check "captures returned (${#returned[@]} of $cycles)" [ ${#returned[@]} -gt 0 ]
cp "$WORK/complaints" "$LOG" 2>/dev/null || : >"$LOG"
if [ "$bad" = 0 ]; then ok "$cycles cycles without a loss"; else not_ok "$bad complaints in $cycles cycles"; fi
gone=0
for entry in "${returned[@]}"; do platter show "${entry% *}" >/dev/null 2>&1 || gone=$((gone + 1)); done
check "all ${#returned[@]} versions that returned are there" [ "$gone" = 0 ]
check "the data reads back" platter check --read-data
check "the next capture succeeds" platter capture "$WORK/disk-2" after/all
finish
