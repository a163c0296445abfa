#!/usr/bin/env bash
# tests/kill9.sh [CYCLES]
#
# Kills a capture with SIGKILL at a random moment, repeatedly, in one store on tmpfs. After each kill the store checks
# clean, and every version whose capture had returned exists and exports to its source's bytes. PLATTER_SEED selects the
# moments. Cycles: 500 in full, 12 in quick.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) cycles=500 ;; *) cycles=12 ;; esac
cycles=${1:-$cycles}
# All cycles fit the tmpfs, even if few captures are killed early.
readonly DISK_MIB=64 NEW_BYTES=5000000

# A tmpfs of its own: no disk cache can hide unwritten data, and 500 cycles wear out no device.
if [ "$(id -u)" = 0 ]; then
	mkdir "$WORK/memory"
	mount -t tmpfs -o size=3g tmpfs "$WORK/memory"
	suite_cleanup() { umount "$WORK/memory"; }
	STORE=$WORK/memory/store
	EXPORTED=$WORK/memory/exported
else
	STORE=$(mktemp -d /dev/shm/platter-kill9.XXXXXX)/store
	EXPORTED=$(dirname "$STORE")/exported
	suite_cleanup() { rm -rf "$(dirname "$STORE")"; }
fi

# A disk with new contents in every cycle, so that there is always something to store. mke2fs makes it in a sparse file,
# so its free space is zeros and an export must have the same bytes.
file_tree "$WORK/tree" 24 base
ext4_image "$WORK/base" "$DISK_MIB" "$WORK/tree"
next_disk() { # CYCLE
	cp --sparse=always "$WORK/base" "$WORK/disk"
	random "$NEW_BYTES" "new in $1" >"$WORK/new"
	debugfs -w -R "write $WORK/new new" "$WORK/disk" >/dev/null 2>&1
}

platter init >/dev/null
# The duration of an undisturbed capture: the range of moments.
next_disk warm
platter capture "$WORK/disk" warm/up >/dev/null
next_disk up
started=$(date +%s%N)
platter capture "$WORK/disk" warm/up >/dev/null
typical_us=$((($(date +%s%N) - started) / 1000))
echo "# $cycles cycles, seed $SEED, an undisturbed capture takes $((typical_us / 1000)) ms"

returned=()
killed=0
bad=0
complain() {
	bad=$((bad + 1))
	echo "cycle $cycle: $*" | tee -a "$WORK/complaints"
}

for cycle in $(seq "$cycles"); do
	next_disk "$cycle"
	sum=$(sha256sum <"$WORK/disk")
	name=cycle/$((cycle % 7))
	delay_us=$(number "delay $cycle" $((typical_us * 3 / 2)))
	# Emptied here, because a capture may be killed before its shell opens the file.
	: >"$WORK/out"
	"$PLATTER" --store "$STORE" --quiet --json capture "$WORK/disk" "$name" >"$WORK/out" 2>"$WORK/err" &
	pid=$!
	sleep "$(printf '%d.%06d' $((delay_us / 1000000)) $((delay_us % 1000000)))"
	kill -9 "$pid" 2>/dev/null || true
	code=0
	wait "$pid" 2>/dev/null || code=$?
	case $code in
	0) returned+=("$(jq -r .version "$WORK/out") $sum") ;;
	137)
		killed=$((killed + 1))
		# The summary is printed when everything is durable: a printed version counts as returned.
		version=$(jq -r '.version // empty' "$WORK/out" 2>/dev/null || true)
		[ -z "$version" ] || returned+=("$version $sum")
		;;
	*) complain "capture failed by itself with $code: $(tail -n 1 "$WORK/err")" ;;
	esac
	platter check >"$LOG" 2>&1 || complain "check: $(tail -n 3 "$LOG")"
	# Exports the newest version in each cycle, and one of the older ones.
	for pick in $((${#returned[@]} - 1)) "$(number "pick $cycle" $((${#returned[@]} + 1)))"; do
		if [ "$pick" -lt 0 ] || [ "$pick" -ge ${#returned[@]} ]; then continue; fi
		read -r version sum <<<"${returned[$pick]}"
		rm -f "$EXPORTED"
		if ! platter export "$version" "$EXPORTED" >"$LOG" 2>&1; then
			complain "$version does not export: $(tail -n 1 "$LOG")"
		elif [ "$(sha256sum <"$EXPORTED")" != "$sum" ]; then
			complain "$version exports to other bytes"
		fi
	done
done
rm -f "$EXPORTED"

# If nothing was killed, or nothing returned, nothing was tested.
check "captures were killed ($killed of $cycles)" [ "$killed" -gt 0 ]
check "captures returned (${#returned[@]} of $cycles)" [ ${#returned[@]} -gt 0 ]
cp "$WORK/complaints" "$LOG" 2>/dev/null || : >"$LOG"
if [ "$bad" = 0 ]; then ok "$cycles cycles without a loss"; else not_ok "$bad errors in $cycles cycles"; fi
gone=0
for entry in "${returned[@]}"; do platter show "${entry%% *}" >/dev/null 2>&1 || gone=$((gone + 1)); done
check "all ${#returned[@]} returned versions exist" [ "$gone" = 0 ]
check "all data is readable" platter check --read-data
check "the next capture succeeds" platter capture "$WORK/base" after/all
finish
