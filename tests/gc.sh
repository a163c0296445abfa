#!/usr/bin/env bash
# tests/gc.sh: retention and garbage collection. Versions are forgotten by a policy; then collections run beside captures,
# installs and live disks, and are killed with SIGKILL. Everything that is kept reads back, what is forgotten is freed, and the
# store ends as small as a fresh one with the same versions.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) cycles=200 versions=16 ;; *) cycles=12 versions=8 ;; esac

SERVER=
READER=
UNDELETABLE=
suite_cleanup() {
	local pid
	for pid in $SERVER $READER $ORIGIN; do kill -9 "$pid" 2>/dev/null; done
	[ -z "$UNDELETABLE" ] || chattr -i "$UNDELETABLE"
}

uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }
pack_bytes() { "$PLATTER" --store "${1:-$STORE}" --quiet --json check | jq .pack_bytes; }
gc() { platter gc --keep-trash 0 --compact 100 --yes; }

# Disks that share most of their files, with something new in each.
file_tree "$WORK/tree" 12 base
ext4_image "$WORK/base" 48 "$WORK/tree"
next_disk() { # NAME
	cp --sparse=always "$WORK/base" "$WORK/disk-$1"
	random 2000000 "new in $1" >"$WORK/new"
	debugfs -w -R "write $WORK/new new" "$WORK/disk-$1" >/dev/null 2>&1
}
platter init
for n in $(seq "$versions"); do
	next_disk "$n"
	platter capture "$WORK/disk-$n" "lab/even-$((n % 2))" >/dev/null
	platter export "lab/even-$((n % 2))" "$WORK/shown-$n" >/dev/null
done

check "a dry run of a policy tells what it would do" platter forget lab/even-0 --keep-last 1 --dry-run
check_said "what it would forget" 'would forget lab/even-0@1'
check_said "what it would keep, and why" 'keep +lab/even-0@[0-9]+ +newest, last'
check "and forgets nothing" platter show lab/even-0@1
check_exit "$EXIT_USAGE" "options of a policy without a policy are refused" platter forget lab/even-0 --dry-run
check_exit "$EXIT_USAGE" "a policy for one version is refused" platter forget lab/even-0@1 --keep-last 1
check "a collection of a store without garbage" gc
check_said "gives up no pack" 'gave up 0 [^ ]+ in 0 packs'
check_said "and deletes none" 'deleted 0 [^ ]+ in 0 packs'
before=$(pack_bytes)
live_bytes() { platter_json gc --dry-run | jq .live_bytes; }
live_before=$(live_bytes)

# Half of the versions go. A reader of one of them, and a disk that is written, were attached before.
"$PLATTER" --store "$STORE" --quiet attach lab/even-0@1 --nbd "$WORK/reader.sock" >"$WORK/reader.log" 2>&1 &
READER=$!
for _ in $(seq 600); do [ ! -S "$WORK/reader.sock" ] || break; sleep 0.05; done
check "a disk is attached for writing" start_server --nbd "$WORK/nbd.sock" --write lab/even-1
qemu-io -f raw -c 'write -P 0x44 1m 100k' "$(uri lab/even-1)" >/dev/null
cp --sparse=always "$WORK/shown-$((versions - 1))" "$WORK/copy"
qemu-io -f raw -c 'write -P 0x44 1m 100k' "$WORK/copy" >/dev/null
check "a policy forgets" platter forget lab/even-0 --keep-last 1
check_exit "$EXIT_MISSING" "what it does not keep" platter show lab/even-0@1
live_after=$(live_bytes)
check "what nothing needs is counted ($live_after of $live_before bytes are needed)" [ "$live_after" -lt "$live_before" ]
check_exit "$EXIT_REFUSED" "a policy leaves an image alone that is edited" platter forget lab/even-1 --keep-last 1

# A capture, an install and the disks go on meanwhile.
next_disk meanwhile
platter capture "$WORK/disk-meanwhile" lab/meanwhile >"$WORK/capture.log" 2>&1 &
capturing=$!
platter install "lab/even-0" "$WORK/target" --free zero --verify --yes >"$WORK/install.log" 2>&1 &
installing=$!
check "a collection beside a capture, an install and live disks" gc
check "the capture succeeds" wait "$capturing"
check "the install succeeds" wait "$installing"
check "a disk of a forgotten version still reads as before" qemu-img compare -f raw -F raw "$WORK/shown-2" "nbd+unix:///lab/even-0?socket=$WORK/reader.sock"
check "so does the disk that is written" qemu-img compare -f raw -F raw "$WORK/copy" "$(uri lab/even-1)"
check "it is published" platter publish lab/even-1
check "the store checks clean" platter check --read-data
kill -TERM "$READER"
wait "$READER" 2>/dev/null || true
READER=
stop TERM
platter discard lab/even-1 >/dev/null 2>&1 || true
check "without them, more can be collected" gc
check "and the other image's versions, by the same policy" platter forget lab/even-1 --keep-last 1
check "a last collection" gc

# A fresh store with the same versions.
for image in $(platter_json images | jq -r .image); do platter export "$image" "$WORK/kept-${image//\//-}" >/dev/null; done
"$PLATTER" --store "$WORK/fresh" --quiet init
for image in $(platter_json images | jq -r .image); do
	"$PLATTER" --store "$WORK/fresh" --quiet capture "$WORK/kept-${image//\//-}" "$image" >/dev/null
done
after=$(pack_bytes)
fresh=$(pack_bytes "$WORK/fresh")
echo "# $before bytes before, $after after, $fresh in a fresh store"
check "the store is at most 1.05 of a fresh one" [ $((after * 100)) -le $((fresh * 105)) ]
for image in $(platter_json images | jq -r .image); do
	platter export "$image" "$WORK/again" >/dev/null
	check "$image reads as before" cmp "$WORK/again" "$WORK/kept-${image//\//-}"
	rm -f "$WORK/again"
done

# Trash.
check "an image is forgotten" platter forget lab/meanwhile --all
check "a collection that keeps the trash" platter gc --yes
check_said "tells how much" 'trash: [1-9]'
check "check tells it too" platter check
check_said "with its size" 'trash: .*gc'
check "and what forgetting an image would free" platter check
check_said "by its name" 'forgetting an image would free: .*lab/.*in several images: [1-9]'
check "the costs count what each image needs alone" sh -c "'$PLATTER' --store '$STORE' --quiet --json images --costs | jq -e '.images | map(.exclusive_bytes) | length > 1 and add > 0'"
check "and the trash" sh -c "'$PLATTER' --store '$STORE' --quiet --json images --costs | jq -e '.trash.packs > 0 and .one_of == 1'"
check "forgotten versions can be brought back from the trash" platter rebuild --resurrect lab/meanwhile@1
platter export lab/meanwhile "$WORK/again" >/dev/null
check "as they were" cmp "$WORK/again" "$WORK/kept-lab-meanwhile"
rm -f "$WORK/again"
check "the trash is emptied on request" gc
check "the store checks clean after that" platter check --read-data

# The brake.
random 20000000 big >"$WORK/big"
platter capture "$WORK/big" big >/dev/null
platter forget big --all >/dev/null
check_exit "$EXIT_REFUSED" "giving up much asks first" platter gc --keep-trash 0
check_said "and says how to confirm it" '--yes'
# What compaction drops counts, too.
collect_partly() {
	local STORE=$WORK/partly
	platter init
	random 3000000 kept >"$WORK/kept-part"
	cat "$WORK/kept-part" "$WORK/big" >"$WORK/whole"
	platter capture --raw "$WORK/whole" partly/whole
	platter capture --raw "$WORK/kept-part" partly/part
	platter forget partly/whole --all
	platter gc --dry-run && platter gc </dev/null
}
check_exit "$EXIT_REFUSED" "compacting away much asks first" collect_partly
check_said "and a dry run tells that it would" 'gc then asks'

# The trash has the last sound copy of something: it is not emptied, and the copy is stored again from it.
last_copy() { "$PLATTER" --store "$WORK/last-copy" --quiet "$@"; }
last_copy init
random 3145728 first >"$WORK/first-part"
random 3145728 second >"$WORK/second-part"
cat "$WORK/first-part" "$WORK/second-part" >"$WORK/both-parts"
last_copy capture --raw "$WORK/both-parts" both >/dev/null
last_copy capture --raw "$WORK/second-part" part >/dev/null
last_copy forget both --all >/dev/null
find "$WORK/last-copy/packs" -name '*.pack' | sort >"$WORK/packs-before"
check "a compaction copies what is needed" last_copy gc --yes --compact 90
copied=$(find "$WORK/last-copy/packs" -name '*.pack' | sort | comm -13 "$WORK/packs-before" - | head -n 1)
chmod 600 "$copied"
printf 'damaged!' | dd of="$copied" bs=1 seek=1000000 conv=notrunc 2>/dev/null
check_exit "$EXIT_CORRUPT" "damage of the copy is found" last_copy check --read-data
check_exit "$EXIT_CORRUPT" "while something is damaged, the trash is not emptied" last_copy gc --yes --keep-trash 0
check "the trash still has it" last_copy export part "$WORK/again"
check "as it was" cmp "$WORK/again" "$WORK/second-part"
check "heal stores it again from there" last_copy heal
check "then the trash is emptied" last_copy gc --yes --keep-trash 0
check "and everything reads back" last_copy check --read-data
rm -f "$WORK/again"
check "as before" sh -c "'$PLATTER' --store '$WORK/last-copy' --quiet export part '$WORK/again' && cmp '$WORK/again' '$WORK/second-part'"
rm -f "$WORK/again"

# An origin collects beside the uploads that it takes.
check "an origin starts" start_origin
next_disk afar
afar capture "$WORK/disk-1" far/old >/dev/null
check "an origin counts the costs, too" sh -c "'$PLATTER' --server 'unix:$SOCKET' --quiet --json images --costs | jq -e '.images | map(select(.image == \"far/old\")) | length == 1'"
afar forget far/old --all >/dev/null
afar capture "$WORK/disk-afar" far/new >"$WORK/capture.log" 2>&1 &
capturing=$!
for round in 1 2 3; do check "it collects beside an upload, round $round" afar gc --keep-trash 0 --compact 100 --yes; done
check "the upload succeeds" wait "$capturing"
afar export far/new "$WORK/again" >/dev/null
stop_origin TERM
platter export far/new "$WORK/local" >/dev/null
check "and reads the same afar and here" cmp "$WORK/again" "$WORK/local"
rm -f "$WORK/again" "$WORK/local"
check "the store checks clean after the origin" platter check --read-data

# Catalog and log from a backup beside newer packs: nothing is written or deleted until a rebuild.
STORE=$WORK/past
platter init >/dev/null
next_disk past
platter capture "$WORK/disk-past" lab/first >/dev/null
mkdir "$WORK/backup"
cp "$STORE/catalog.sqlite" "$STORE/changes.log" "$WORK/backup"
next_disk later
platter capture "$WORK/disk-later" lab/second >/dev/null
platter clone lab/second lab/cloned >/dev/null
platter forget lab/first --all >/dev/null
next_disk last
platter capture "$WORK/disk-last" lab/third >/dev/null
gc >/dev/null
images() { platter_json images | jq -r '"\(.image) \(.score)"' | sort; }
expected=$(images)
rm -f "$STORE"/catalog.sqlite*
cp "$WORK/backup"/* "$STORE"
files=$(find "$STORE/packs" -type f | sort)
for words in "gc --yes --keep-trash 0" discard-interrupted "clone lab/first lab/again" "capture $WORK/disk-past lab/new" \
	"lock take lab/first" "rename lab/first lab/new" "forget lab/first --all" "protect lab/first@1" "quota set lab 1T"; do
	# shellcheck disable=SC2086  # words
	check_exit "$EXIT_CORRUPT" "an older catalog with an older log: $words is refused" platter $words
	check_said "with the reason" '(older than the packs|is missing).*platter rebuild'
done
check_exit "$EXIT_CORRUPT" "a check finds damage" platter check
check_said "with the reason" 'older than the packs.*platter rebuild'
check "no pack was removed" [ "$files" = "$(find "$STORE/packs" -type f | sort)" ]
check "a rebuild" platter rebuild
check "restores all names" [ "$expected" = "$(images)" ]
check "and all data" platter check --read-data
check "writers work again" platter clone lab/second lab/again
STORE=$WORK/store

# In intervals, an origin does not give up much at once. Its metrics and its page say so until somebody confirms it.
STORE=$WORK/much
platter init >/dev/null
next_disk much
platter capture "$WORK/disk-much" lab/much >/dev/null
platter forget lab/much --all >/dev/null
"$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --gc 1s >"$WORK/origin.log" 2>&1 &
ORIGIN=$!
of_origin() { curl -s --unix-socket "$SOCKET" "http://platter$1"; }
needs_confirmation() {
	of_origin /metrics | grep -qx "platter_collection_needs_confirmation $1" &&
		of_origin /api/v1/store | jq -e ".collection_needs_confirmation == ($1 == 1)"
}
check "collections in intervals wait for confirmation, and say so" until_true 30 needs_confirmation 1
check "a confirmed one" afar gc --yes
check "ends that" needs_confirmation 0
stop_origin TERM
STORE=$WORK/store

# A pack of the trash that cannot be deleted, not even by root.
STORE=$WORK/undeletable
platter init >/dev/null
next_disk undeletable
platter capture "$WORK/disk-undeletable" lab/undeletable >/dev/null
platter forget lab/undeletable --all >/dev/null
platter gc --yes >/dev/null
UNDELETABLE=$(find "$STORE/packs" -name '*.pack' | head -n 1)
failures() { curl -s --unix-socket "$SOCKET" http://platter/metrics | sed -n 's/^platter_collections_failed_total //p'; }
if [ "$(id -u)" = 0 ] && chattr +i "$UNDELETABLE"; then
	check_exit "$EXIT_FAILED" "a collection that cannot delete a pack fails" platter gc --keep-trash 0 --yes
	check_said "and names it" "FAILED .*${UNDELETABLE##*/}"
	check "an origin has it in its trash" start_origin
	check "before its collections, none has failed" test "$(failures)" = 0
	check_exit "$EXIT_FAILED" "its collection fails, too" afar gc --keep-trash 0 --yes
	check_said "and names the pack" "FAILED .*${UNDELETABLE##*/}"
	check "it counts that" test "$(failures)" = 1
	chattr -i "$UNDELETABLE"
	check "then the pack can be deleted" afar gc --keep-trash 0 --yes
	check "and is" test ! -e "$UNDELETABLE"
	check "which is no failure" test "$(failures)" = 1
	stop_origin TERM
	check "the store checks clean after that" platter check --read-data
else
	skip "a file that cannot be deleted needs root and chattr +i"
fi
UNDELETABLE=
STORE=$WORK/store

# SIGKILL at random moments: nothing is lost, and the next run frees what the killed ones did not.
# The duration of an undisturbed run: the range of moments.
next_disk undisturbed
platter capture "$WORK/disk-undisturbed" cycle/0 >/dev/null
platter forget cycle/0 >/dev/null 2>&1 || platter forget cycle/0 --all >/dev/null
started=$(date +%s%N)
platter gc --keep-trash 0 --compact 90 --yes >/dev/null
typical_us=$((($(date +%s%N) - started) / 1000))
echo "# an undisturbed run takes $((typical_us / 1000)) ms"
killed=0
complaints=0
for cycle in $(seq "$cycles"); do
	next_disk "cycle-$cycle"
	platter capture "$WORK/disk-cycle-$cycle" "cycle/$((cycle % 3))" >/dev/null
	rm -f "$WORK/disk-cycle-$cycle"
	[ $((cycle % 3)) != 0 ] || platter forget "cycle/1" --keep-last 1 >/dev/null 2>&1 || true
	"$PLATTER" --store "$STORE" --quiet gc --keep-trash 0 --compact 90 --yes >"$WORK/gc.log" 2>&1 &
	pid=$!
	delay_us=$(number "gc $cycle" "$typical_us")
	sleep "$(printf '0.%06d' "$delay_us")"
	kill -9 "$pid" 2>/dev/null || true
	code=0
	wait "$pid" 2>/dev/null || code=$?
	case $code in
	0) ;;
	137) killed=$((killed + 1)) ;;
	*) echo "cycle $cycle: gc failed by itself: $(tail -n 1 "$WORK/gc.log")" | tee -a "$WORK/complaints"; complaints=$((complaints + 1)) ;;
	esac
	platter check >"$LOG" 2>&1 || { echo "cycle $cycle: $(tail -n 3 "$LOG")"; complaints=$((complaints + 1)); }
done
check "collections were killed ($killed of $cycles)" [ "$killed" -gt 0 ]
check "no killed collection lost anything ($complaints complaints)" [ "$complaints" = 0 ]
check "the data reads back" platter check --read-data
check "the next collection succeeds" gc
platter export lab/even-0 "$WORK/again" >/dev/null
check "a version from before all of it reads as before" cmp "$WORK/again" "$WORK/kept-lab-even-0"
# Compressing again: a store of level 1 becomes smaller, once, and has the same data. With keys, too.
{ seq 1 3400000 || true; } | head -c 24000000 >"$WORK/text"
for kind in plain encrypted; do
	small() { "$PLATTER" --store "$WORK/small-$kind" --unlock-file "$WORK/small-key" "$@"; }
	if [ $kind = plain ]; then small init >/dev/null; else small init --encrypt >/dev/null; fi
	small capture --raw --level 1 "$WORK/text" lab/text >/dev/null
	bytes=$(small --json check | jq .pack_bytes)
	check "$kind: a dry run counts what would be compressed again" sh -c "'$PLATTER' --store '$WORK/small-$kind' --unlock-file '$WORK/small-key' gc --recompress 12 --dry-run | grep -q 'would compact .* in 1 pack'"
	check "$kind: frames are compressed again" small gc --recompress 12 --keep-trash 0
	again=$(small --json check | jq .pack_bytes)
	echo "# $bytes bytes at level 1, $again at level 12"
	check "$kind: the store is smaller by a tenth" [ $((again * 10)) -lt $((bytes * 9)) ]
	check "$kind: the data reads back" small check --read-data
	rm -f "$WORK/text-again"
	check "$kind: the disk is exported" small export lab/text "$WORK/text-again"
	check "$kind: as it was" cmp "$WORK/text" "$WORK/text-again"
	check "$kind: a second time, nothing gets smaller" small gc --recompress 12 --keep-trash 0
	check_said "$kind: so nothing is rewritten" 'gave up 0 [^ ]+ in 0 packs'
done
check_exit "$EXIT_USAGE" "a level that does not exist is refused" platter gc --recompress 20
check "a second collection finds nothing to free" sh -c "'$PLATTER' --store '$STORE' --quiet --json gc --keep-trash 0 --yes | jq -e '.given_up.packs == 0 and .failed == []'"
finish
