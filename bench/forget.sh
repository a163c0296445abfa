#!/usr/bin/env bash
# bench/forget.sh CATALOG-DIR
#
# Every second disk of a catalog is forgotten and collected while others are captured, installed, cast, and read and written as
# live disks. Whether all of that ends well, the size of the store compared with a fresh store of what is kept, and the time.
# The same with `restic prune` and `borg compact`, without work beside them. Needs about twice the space of restic's and borg's repositories.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/forget.sh CATALOG-DIR}
RUNS=1

mapfile -t disks < <(images "$CATALOG")
kept=() dropped=()
for number in "${!disks[@]}"; do
	if [ $((number % 2)) = 0 ]; then kept+=("${disks[number]}"); else dropped+=("${disks[number]}"); fi
done
name() { basename "$1" .raw; }
packs() { platter_json check | jq .pack_bytes; }
bytes() { du -sb "$1" | cut -f 1; }
now() { echo "$EPOCHREALTIME"; }
seconds_since() { calculate "$EPOCHREALTIME - $1"; }

heading "Every second of ${#disks[@]} disks forgotten and collected, meanwhile a capture, an install, a cast and two live disks"
new_store
# The last disk that is kept is captured beside the collection.
last=${kept[-1]}
for disk in "${disks[@]}"; do [ "$disk" = "$last" ] || platter capture "$disk" "catalog/$(name "$disk")" >/dev/null; done
before=$(packs)
for disk in "${kept[@]:0:3}" "${dropped[0]}"; do
	[ "$disk" = "$last" ] || platter export "catalog/$(name "$disk")" "$WORK/shown-$(name "$disk")" >/dev/null
done
first=$(name "${kept[0]}") second=$(name "${kept[1]}") third=$(name "${kept[2]}") gone=$(name "${dropped[0]}")

# A version that will be forgotten is read; a disk of a version that is kept is written.
begin "$WORK/reader.log" "$PLATTER" --store "$STORE" --quiet attach "catalog/$gone" --nbd "$WORK/reader.sock"
begin "$WORK/writer.log" "$PLATTER" --store "$STORE" --quiet attach --write "catalog/$first" --nbd "$WORK/writer.sock"
wait_for test -S "$WORK/reader.sock"
wait_for test -S "$WORK/writer.sock"
reader="nbd+unix:///catalog/$gone?socket=$WORK/reader.sock" writer="nbd+unix:///catalog/$first?socket=$WORK/writer.sock"
qemu-io -f raw -c 'write -P 0x44 1g 64m' "$writer" >/dev/null
qemu-io -f raw -c 'write -P 0x44 1g 64m' "$WORK/shown-$first" >/dev/null
for disk in "${dropped[@]}"; do platter forget "catalog/$(name "$disk")" --all >/dev/null; done

declare -A work=()
work() { # NAME COMMAND...: runs beside the collection
	local what=$1
	shift
	timeout 900 "$@" >"$WORK/$what.log" 2>&1 &
	work[$what]=$!
}
work capture "$PLATTER" --store "$STORE" --quiet capture "$last" "catalog/$(name "$last")"
work install "$PLATTER" --store "$STORE" --quiet install "catalog/$second" "$WORK/installed" --yes
work cast "$PLATTER" --store "$STORE" --quiet cast "catalog/$third" --interface lo --receivers 1
work receive "$PLATTER" --quiet receive "catalog/$third" "$WORK/received" --interface lo --trust-any --yes
work read qemu-img compare -f raw -F raw "$WORK/shown-$gone" "$reader"
work write qemu-io -f raw -c 'write -P 0x55 2g 64m' -c flush "$writer"
started=$(now)
platter --retry-lock 10m gc --keep-trash 0 --compact 90 --yes >"$WORK/gc.log" 2>&1
beside=$(seconds_since "$started")
failed=0
for what in "${!work[@]}"; do
	wait "${work[$what]}" || { failed=$((failed + 1)); echo "$BENCH: $what failed: $(tail -n 3 "$WORK/$what.log")" >&2; }
done
qemu-io -f raw -c 'write -P 0x55 2g 64m' "$WORK/shown-$first" >/dev/null
wrong=0
same() { cmp -s "$1" "$2" || { wrong=$((wrong + 1)); echo "$BENCH: $1 and $2 differ" >&2; }; }
same "$WORK/installed" "$WORK/shown-$second"
same "$WORK/received" "$WORK/shown-$third"
qemu-img compare -q -f raw -F raw "$WORK/shown-$first" "$writer" || wrong=$((wrong + 1))
platter publish "catalog/$first" >/dev/null
qemu-img compare -q -f raw -F raw "$WORK/shown-$first" "$writer" || wrong=$((wrong + 1))
end_begun
platter discard "catalog/$first" >/dev/null 2>&1 || true
result "of capture, install, cast, receive, two live disks failed" "$failed" "0; $wrong wrong results"
rm -f "$WORK"/shown-* "$WORK/installed" "$WORK/received"
# What readers held while the collection ran, and the version without the data that was published.
platter forget "catalog/$first" --keep-last 1 >/dev/null 2>&1 || true
started=$(now)
platter --retry-lock 10m gc --keep-trash 0 --compact 90 --yes >"$WORK/gc.log" 2>&1
after=$(seconds_since "$started")
platter check --read-data >"$WORK/check.log" 2>&1 || { tail -n 5 "$WORK/check.log" >&2; exit 1; }
now_bytes=$(packs)
mapfile -t names < <(platter_json images | jq -r .image | sort -u)
"$PLATTER" --store "$WORK/fresh" --quiet init >/dev/null
# In the order of the catalog, because each disk is cut and packed beside what is there.
for disk in "${kept[@]}"; do platter push "catalog/$(name "$disk")" "$WORK/fresh" >/dev/null; done
[ "${#names[@]}" = "${#kept[@]}" ] || { echo "$BENCH: ${#names[@]} images are left, not ${#kept[@]}" >&2; exit 1; }
pushed=$("$PLATTER" --store "$WORK/fresh" --quiet --json check | jq .pack_bytes)
rm -rf "$WORK/fresh"
STORE_ALL=$STORE STORE=$WORK/recaptured
new_store
for disk in "${kept[@]}"; do platter capture "$disk" "catalog/$(name "$disk")" >/dev/null; done
recaptured=$(packs)
rm -rf "$STORE_ALL" "$STORE"
result "bytes of packs before, after, of a fresh store, MB" "$(calculate "$before / 1e6"), $(calculate "$now_bytes / 1e6"), $(calculate "$pushed / 1e6")"
result "after, as a ratio to a fresh store" "$(calculate "$now_bytes / $pushed")" "at most 1.05"
result "the kept disks captured again into an empty store, MB" "$(calculate "$recaptured / 1e6")" "without the 128 MB that a live disk wrote"
result "seconds of the collection beside the work, of a second one" "$beside, $after"

# Other tools keep everything else the same, but nothing runs beside them.
export RESTIC_PASSWORD=bench BORG_RELOCATED_REPO_ACCESS_IS_OK=yes XDG_CACHE_HOME=$WORK/cache BORG_BASE_DIR=$WORK/borg-base
if command -v restic >/dev/null; then
	heading "restic"
	restic -q init --repo "$WORK/restic"
	for disk in "${disks[@]}"; do restic -q --repo "$WORK/restic" backup --tag "$(name "$disk")" "$disk"; done
	before=$(bytes "$WORK/restic")
	started=$(now)
	for disk in "${dropped[@]}"; do
		restic -q --repo "$WORK/restic" forget "$(restic --repo "$WORK/restic" snapshots --tag "$(name "$disk")" --json | jq -r '.[0].id')"
	done
	restic -q --repo "$WORK/restic" prune --max-unused 0
	took=$(seconds_since "$started")
	now_bytes=$(bytes "$WORK/restic")
	rm -rf "$WORK/restic"
	restic -q init --repo "$WORK/restic"
	for disk in "${kept[@]}"; do restic -q --repo "$WORK/restic" backup "$disk"; done
	result "bytes before, after, of a fresh repository, MB" "$(calculate "$before / 1e6"), $(calculate "$now_bytes / 1e6"), $(calculate "$(bytes "$WORK/restic") / 1e6")"
	result "after, as a ratio to a fresh repository" "$(calculate "$now_bytes / $(bytes "$WORK/restic")")"
	result "forget and prune, seconds; against Platter's collections" "$took; $(calculate "($beside + $after) / $took")"
	rm -rf "$WORK/restic" "$WORK/cache"
fi
if command -v borg >/dev/null; then
	heading "borg"
	borg init --encryption none "$WORK/borg"
	for disk in "${disks[@]}"; do borg create --compression zstd,3 --sparse "$WORK/borg::$(name "$disk")" "$disk"; done
	before=$(bytes "$WORK/borg")
	started=$(now)
	for disk in "${dropped[@]}"; do borg delete "$WORK/borg::$(name "$disk")"; done
	borg compact --threshold 0 "$WORK/borg"
	took=$(seconds_since "$started")
	now_bytes=$(bytes "$WORK/borg")
	rm -rf "$WORK/borg"
	borg init --encryption none "$WORK/borg"
	for disk in "${kept[@]}"; do borg create --compression zstd,3 --sparse "$WORK/borg::$(name "$disk")" "$disk"; done
	result "bytes before, after, of a fresh repository, MB" "$(calculate "$before / 1e6"), $(calculate "$now_bytes / 1e6"), $(calculate "$(bytes "$WORK/borg") / 1e6")"
	result "after, as a ratio to a fresh repository" "$(calculate "$now_bytes / $(bytes "$WORK/borg")")"
	result "delete and compact, seconds; against Platter's collections" "$took; $(calculate "($beside + $after) / $took")"
fi
