#!/usr/bin/env bash
# tests/damage.sh: damages the files of a store one by one: flipped bits, truncated, removed, overwritten. `check` must
# name the damage with exit code 4, `install` and `export` must never produce wrong bytes, nothing may panic, and the
# undamaged copy of the store must still work. The next capture of the same disk stores damaged blocks again. PLATTER_SEED
# selects the places.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) rounds=40 ;; *) rounds=4 ;; esac

file_tree "$WORK/tree" 16 damage
ext4_image "$WORK/disk" 64 "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" image >/dev/null
cp --sparse=always "$WORK/disk" "$WORK/disk-1"
printf 'more\n' >"$WORK/more"
debugfs -w -R "write $WORK/more more" "$WORK/disk" >/dev/null 2>&1
platter capture "$WORK/disk" image >/dev/null
platter export image "$WORK/right" >/dev/null
platter export image@1 "$WORK/right-1" >/dev/null
ln "$WORK/right" "$WORK/right-2"
mv "$STORE" "$WORK/sound"

# Every file of the store that contains data, largest first.
mapfile -t files < <(cd "$WORK/sound" && find . -type f -size +0 -printf '%s %P\n' | sort -rn | cut -d ' ' -f 2-)
echo "# the store's files: ${files[*]}"

flip() { # FILE KEY
	local at bit size
	size=$(stat -c %s "$1")
	at=$(number "byte $2" "$size")
	bit=$(number "bit $2" 8)
	perl -e '
		my ($file, $at, $bit) = @ARGV;
		open my $h, "+<:raw", $file or die; seek $h, $at, 0; read $h, my $byte, 1;
		seek $h, $at, 0; print $h chr(ord($byte) ^ (1 << $bit)); close $h or die' "$1" "$at" "$bit"
	PLACE="bit $bit of byte $at"
}
cut_short() { # FILE KEY
	local size
	size=$(number "size $2" "$(stat -c %s "$1")")
	truncate -s "$size" "$1"
	PLACE="cut at $size"
}
lose() { # FILE KEY
	rm "$1"
	PLACE=removed
}
write_over() { # FILE KEY
	local at
	at=$(number "over $2" "$(stat -c %s "$1")")
	random 4096 "over $2" | dd of="$1" bs=4096 oflag=seek_bytes seek="$at" conv=notrunc status=none
	PLACE="4096 bytes over from $at"
}

# outcome NAME COMMAND...: the command must end by itself, without a panic, within 60 seconds and 2 GiB; its exit code
# is in $CODE
outcome() {
	local name=$1
	shift
	CODE=0
	(ulimit -v 2097152 && timeout 60 "$@") >"$LOG" 2>&1 || CODE=$?
	if [ "$CODE" -ge 100 ] || grep -q 'panicked at' "$LOG"; then not_ok "$name: exit code $CODE"; fi
}

damaged() { # KIND FILE KEY
	local name="$1 of $2"
	rm -rf "$STORE" "$WORK/target"
	cp -a "$WORK/sound" "$STORE"
	"$1" "$STORE/$2" "$3"
	name="$name ($PLACE)"
	# Wrong bytes on a target must never occur.
	outcome "$name: export" "$PLATTER" --store "$STORE" --quiet export image "$WORK/target"
	local exported=$CODE
	if [ "$exported" = 0 ] && ! cmp -s "$WORK/target" "$WORK/right"; then
		not_ok "$name: export succeeded with wrong bytes"
		return
	fi
	outcome "$name: check" "$PLATTER" --store "$STORE" --quiet check --read-data
	local checked=$CODE
	if [ "$exported" != 0 ] && [ "$checked" = 0 ]; then
		not_ok "$name: export failed with $exported, but check finds nothing"
	elif [[ $2 == *pack* ]] && [ "$checked" != 0 ] && ! grep -qE '[0-9a-f]{8}|offset|pack' "$LOG"; then
		not_ok "$name: check does not name the damaged file"
	elif [[ $2 == *pack* ]] && [ "$checked" != 0 ] && [ "$checked" != "$EXIT_CORRUPT" ] && [ "$checked" != "$EXIT_MISSING" ]; then
		not_ok "$name: check ends with $checked, not $EXIT_CORRUPT"
	else
		ok "$name: export ends with $exported, check with $checked"
	fi
	[[ $2 != *pack* ]] || [ "$1" = lose ] || seen=$((seen + (checked != 0)))
}

seen=0
for file in "${files[@]}"; do
	for kind in cut_short lose write_over; do damaged "$kind" "$file" "$kind $file"; done
	for round in $(seq "$rounds"); do damaged flip "$file" "$file $round"; done
done
# If `check` found no damage in any pack, the tests above would still pass.
check "check found damage in packs ($seen times)" [ "$seen" -gt 0 ]

# One damaged block must not affect later captures: whatever finds it, capturing the same disks again repairs every
# version.
# frames_of PACK KIND: offset and length of each of the pack's frames of this kind (1 data, 2 page, 3 record), from its
# footer
frames_of() {
	perl -e '
		my ($file, $kind) = @ARGV;
		open my $h, "<:raw", $file or die; local $/; my $bytes = <$h>;
		my ($footer, $unused, $frames) = unpack "Q< Q< L<", substr $bytes, -56, 20;
		for my $n (0 .. $frames - 1) {
			my ($at, $length, $raw, $blocks, $of) = unpack "Q< L< L< L< C", substr $bytes, $footer + 16 + 24 * $n, 21;
			print "$at $length\n" if $of == $kind;
		}
		print "$footer 64\n" if $kind == 9' "$1" "$2"
}
flip_at() { # FILE OFFSET
	perl -e '
		my ($file, $at) = @ARGV;
		open my $h, "+<:raw", $file or die; seek $h, $at, 0; read $h, my $byte, 1;
		seek $h, $at, 0; print $h chr(ord($byte) ^ 16); close $h or die' "$1" "$2"
}
both_are_right() { # NAME
	local version
	for version in 1 2; do
		rm -f "$WORK/target"
		check "$1: image@$version is exported" platter export "image@$version" "$WORK/target"
		check "$1: with the right bytes" cmp "$WORK/target" "$WORK/right-$version"
	done
}
largest=$(cd "$WORK/sound" && find packs -name '*.pack' -printf '%s %p\n' | sort -rn | head -n 1 | cut -d ' ' -f 2)

# heals PLACE OFFSET HOW: flips a byte there. The damage is found by the command HOW, or by the capture, which reads
# back what it relies on
heals() {
	local name="$1 damaged, noticed by $3" known=()
	rm -rf "$STORE" "$WORK/target"
	cp -a "$WORK/sound" "$STORE"
	flip_at "$STORE/$largest" "$2"
	case $3 in
	check) platter check --read-data >"$LOG" 2>&1 || true ;;
	export) for version in 1 2; do platter export "image@$version" "$WORK/target" >"$LOG" 2>&1 || true; rm -f "$WORK/target"; done ;;
	rebuild) platter rebuild >"$LOG" 2>&1 || true ;;
	nobody) known=(--verify-known) ;;
	esac
	check "$name: the disks are captured again" platter_json capture ${known[@]+"${known[@]}"} "$WORK/disk-1" again
	cp "$LOG" "$WORK/capture.json"
	check "$name: and the other disk" platter_json capture ${known[@]+"${known[@]}"} "$WORK/disk" again
	cat "$LOG" >>"$WORK/capture.json"
	case $1 in
	data | page) check "$name: the capture reports what it repaired" grep -q '"repaired":\["image@1"' "$WORK/capture.json" ;;
	esac
	both_are_right "$name"
	check "$name: rebuild" platter rebuild
	both_are_right "$name, rebuilt"
}
middle() { frames_of "$WORK/sound/$largest" "$1" | sed -n "${2}p" | awk '{ print $1 + int($2 / 2) }'; }
data=$(middle 1 20)
page=$(middle 2 1)
heals data "$data" check
heals data "$data" export
heals data "$data" nobody
heals page "$page" export
heals page "$page" nobody
heals header 20 nobody
heals footer "$(middle 9 1)" rebuild

# The catalog has the contents of a damaged record: the next capture writes it again, and a rebuild finds it.
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
flip_at "$STORE/$largest" "$(middle 3 1)"
check_exit "$EXIT_CORRUPT" "a damaged record is named" platter check
check "a capture of another disk repairs it" platter capture "$WORK/more" --raw other
check "and a rebuild finds the record" platter rebuild
both_are_right "a damaged record"

# The same with an origin: it requests damaged blocks, however the damage was found, and reports what was repaired.
rm -rf "$STORE" "$WORK/target"
cp -a "$WORK/sound" "$STORE"
flip_at "$STORE/$largest" "$data"
start_origin
check_exit "$EXIT_CORRUPT" "an origin does not serve a damaged frame" afar export image "$WORK/target"
check "a capture sends the origin its damaged blocks" afar --json capture "$WORK/disk" again
check_said "and reports what was repaired" '"repaired":\["image@[12]"'
afar capture "$WORK/disk-1" again >"$LOG" 2>&1
stop_origin TERM
both_are_right "an origin"
check "a repaired store has no damage" platter check --read-data
check_said "the damaged frames are kept" 'stored again'
check "check knows what was read back" platter check
if said 'never read back'; then not_ok "nothing is left to be read after --read-data"; else ok "nothing is left to be read after --read-data"; fi

# `export --holes` writes the readable parts of a damaged version and lists the rest: these are zeros, and nothing else
# is wrong.
# holed NAME OFFSET: flips a byte there, and exports with holes
holed() {
	local at length
	rm -rf "$STORE" "$WORK/target" "$WORK/expected"
	cp -a "$WORK/sound" "$STORE"
	flip_at "$STORE/$largest" "$2"
	check_exit "$EXIT_CORRUPT" "$1 damaged: the rest is exported" platter_json export --holes image "$WORK/target"
	cp "$LOG" "$WORK/holes.json"
	cp "$WORK/right" "$WORK/expected"
	jq -r '.lost[] | "\(.offset) \(.length)"' "$WORK/holes.json" >"$WORK/ranges"
	while read -r at length; do
		head -c "$length" /dev/zero | dd of="$WORK/expected" bs=1M oflag=seek_bytes seek="$at" conv=notrunc status=none
	done <"$WORK/ranges"
	check "$1 damaged: zeros in the reported ranges, right bytes elsewhere" cmp "$WORK/expected" "$WORK/target"
	check "$1 damaged: at most $3 bytes are lost" [ "$(jq .lost_bytes "$WORK/holes.json")" -le "$3" ]
}
# differing_files: files that differ between both file systems
differing_files() {
	rm -rf "$WORK/tree-a" "$WORK/tree-b"
	mkdir "$WORK/tree-a" "$WORK/tree-b"
	debugfs -R "rdump / $WORK/tree-a" "$WORK/right" >/dev/null 2>&1
	debugfs -R "rdump / $WORK/tree-b" "$WORK/target" >/dev/null 2>&1
	(cd "$WORK/tree-a" && find . -type f -exec sh -c 'cmp -s "$1" "../tree-b/$1" || printf "%s\n" "${1#.}"' _ {} \;) | sort
}
holed data "$(middle 1 60)" 262144
differing_files >"$WORK/differing"
jq -r '.lost_files[].path' "$WORK/holes.json" | sort >"$WORK/named"
check "the files in lost ranges are named" diff "$WORK/differing" "$WORK/named"
check "at least one file is named" [ -s "$WORK/named" ]
# A page next to a damaged one can be read; with the header of their frame, both are lost.
holed "page's frame" "$(frames_of "$WORK/sound/$largest" 2 | awk 'NR == 1 { print $1 + 60 }')" 67108864
rm -f "$WORK/target"
start_origin
check_exit "$EXIT_REFUSED" "export --holes from an origin is refused" afar export --holes image "$WORK/target"
check_said "and the reason is given" 'directory of this machine'
stop_origin TERM
rm -rf "$STORE" "$WORK/target"
cp -a "$WORK/sound" "$STORE"
check "an undamaged version is exported with --holes" platter export --holes image "$WORK/target"
check "with the right bytes" cmp "$WORK/target" "$WORK/right"

# A rebuild changes no name, number or edit lock, whether the catalog or the change log is left. Forgotten versions come
# back only on request.
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
platter capture --raw "$WORK/more" lab/one >/dev/null
platter capture --raw "$WORK/disk-1" lab/one >/dev/null
platter capture "$WORK/disk" lab/two >/dev/null
platter forget image@1 >/dev/null
platter forget lab/one@2 >/dev/null
platter rename lab/two shelf/two >/dev/null
platter lock take lab/one >/dev/null
platter lock take image >/dev/null
platter lock steal image --holder other@there >/dev/null
# facts: everything that the store reports about names, numbers and edit locks
facts() {
	local image
	platter_json images
	for image in image lab/one shelf/two; do platter_json history "$image"; done
	platter_json lock list
}
facts >"$WORK/facts"
rm -rf "$WORK/eventful"
cp -a "$STORE" "$WORK/eventful"
listed() { platter_json rebuild --resurrect | jq -c .forgotten; }
unchanged() { # NAME
	check "$1: rebuild" platter rebuild
	check "$1: no name, number or lock has changed" diff <(facts) "$WORK/facts"
	check "$1: check finds nothing wrong" platter check
	check "$1: forgotten versions are listed" [ "$(listed)" = '["image@1","lab/one@2"]' ]
}
unchanged "a sound store"
unchanged "rebuilt once more"
for lost in catalog.sqlite changes.log; do
	rm -rf "$STORE"
	cp -a "$WORK/eventful" "$STORE"
	rm "$STORE/$lost"
	if [ "$lost" = catalog.sqlite ]; then
		check_exit "$EXIT_CORRUPT" "a store without its catalog" platter images
		check_said "rebuild is suggested" 'platter rebuild'
	fi
	unchanged "$lost lost"
	rm -rf "$STORE"
	cp -a "$WORK/eventful" "$STORE"
	flip_at "$STORE/$lost" $(($(stat -c %s "$STORE/$lost") / 3))
	unchanged "$lost damaged"
done
check_exit "$EXIT_REFUSED" "nothing is resurrected in an image that is edited" platter rebuild --resurrect image@1
check_exit "$EXIT_MISSING" "a version that was not forgotten cannot be resurrected" platter rebuild --resurrect shelf/two@1
platter lock release image --holder other@there >/dev/null
check "a forgotten version is resurrected" platter rebuild --resurrect image@1
rm -f "$WORK/target"
check "with its number" platter export image@1 "$WORK/target"
check "with its bytes" cmp "$WORK/target" "$WORK/right-1"
check "the other one is still listed" [ "$(listed)" = '["lab/one@2"]' ]
platter_json images >"$WORK/facts"
platter_json history image >>"$WORK/facts"
check "and a rebuild" platter rebuild
check "changes nothing" diff <(platter_json images && platter_json history image) "$WORK/facts"
check "the next number is a new one" [ "$(platter_json capture "$WORK/more" --raw image | jq -r .version)" = image@3 ]

# A damaged record loses no name: the log has it, and a rebuild writes it again. The command that check suggests repairs
# a damaged header or footer.
for place in record header footer; do
	rm -rf "$STORE" "$WORK/target"
	cp -a "$WORK/sound" "$STORE"
	case $place in
	record) at=$(middle 3 1) ;;
	header) at=20 ;;
	footer) at=$(middle 9 1) ;;
	esac
	flip_at "$STORE/$largest" "$at"
	check_exit "$EXIT_CORRUPT" "a damaged $place is found" platter check
	check_said "and rebuild is suggested" 'platter rebuild'
	check "a damaged $place: rebuild" platter rebuild
	both_are_right "a damaged $place, rebuilt"
	check "a damaged $place: repaired" platter check
	packs=$(find "$STORE/packs" -type f -printf '%P %s\n' | sort)
	check "a damaged $place: rebuild again" platter rebuild
	check "a damaged $place: nothing is copied again" [ "$(find "$STORE/packs" -type f -printf '%P %s\n' | sort)" = "$packs" ]
done

# An old copy of the catalog is restored: the change log reveals it, and nothing that the catalog lacks is discarded.
rm -rf "$STORE" "$WORK/target"
cp -a "$WORK/sound" "$STORE"
cp "$STORE/catalog.sqlite" "$WORK/old-catalog"
printf 'still more\n' >"$WORK/more"
debugfs -w -R "write $WORK/more still-more" "$WORK/disk" >/dev/null 2>&1
check "capture, after the catalog was copied" platter capture "$WORK/disk" image
platter export image "$WORK/right-3" >/dev/null
cp "$WORK/old-catalog" "$STORE/catalog.sqlite"
check_exit "$EXIT_CORRUPT" "check finds an old catalog" platter check
check_said "and reports that it is older" 'older than the change log'
check_exit "$EXIT_CORRUPT" "discard-interrupted refuses an old catalog" platter discard-interrupted
check_exit "$EXIT_CORRUPT" "and so does a capture" platter capture "$WORK/disk" image
check "a rebuild restores it" platter rebuild
check "the newest version is exported" platter export image@3 "$WORK/target"
check "with the right bytes" cmp "$WORK/target" "$WORK/right-3"
check "and there is nothing to discard" test "$(platter_json discard-interrupted | jq -c '[.packs, .kept]')" = "[0,0]"
check "check" platter check

# Lost files that can be rebuilt from the packs.
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
find "$STORE" -type f ! -path '*pack*' ! -name '*lock*' -delete
check "rebuild from packs alone" platter rebuild
rm -f "$WORK/target"
check "export after it" platter export image "$WORK/target"
check "gives the right bytes" cmp "$WORK/target" "$WORK/right"

# Two names of one disk: a capture under one of them repairs both.
rm -rf "$STORE"
random 3000320 "two names" >"$WORK/two-names"
check "a store" platter init
check "a disk" platter capture --raw "$WORK/two-names" one
check "the same disk under another name, whose record is in no pack" platter capture --raw "$WORK/two-names" other
pack=$(find "$STORE/packs" -name '*.pack' -size +1M)
printf 'XX' | dd of="$pack" bs=1 seek=1000000 conv=notrunc status=none
check_exit "$EXIT_CORRUPT" "a block is damaged" platter check --read-data
check "the disk is captured again" "$PLATTER" --store "$STORE" capture --raw "$WORK/two-names" one
check_said "both versions are repaired" '^repaired: one@1, other@1$'
check "which is so" platter export other "$WORK/two-names-again"
check "with the right bytes" cmp "$WORK/two-names" "$WORK/two-names-again"

suite_cleanup() { [ -z "$ORIGIN" ] || kill -9 "$ORIGIN" 2>/dev/null; }
# The catalog of another store, and its log, prove nothing about this one.
foreign() { # NAME IMAGES FILE...: brings files of the other store, and rebuilds; IMAGES are there afterwards
	local name=$1 images=$2 file
	shift 2
	rm -rf "$STORE"
	cp -a "$WORK/own" "$STORE"
	for file in "$@"; do
		if [ -e "$WORK/other-store/$file" ]; then cp "$WORK/other-store/$file" "$STORE/$file"; else rm -f "$STORE/$file"; fi
	done
	check "$name: rebuild" "$PLATTER" --store "$STORE" rebuild
	check_said "$name: which says so" 'another store'
	check "$name: nothing is to be discarded" test "$(platter_json discard-interrupted | jq -c '[.packs, .kept]')" = "[0,0]"
	check "$name: everything reads back" platter check --read-data
	rm -f "$WORK/two-names-again"
	check "$name: export" platter export lab/a@2 "$WORK/two-names-again"
	check "$name: of the right bytes" cmp "$WORK/own-2" "$WORK/two-names-again"
	check "$name: no name of the other store is there" test "$(platter_json images | jq -r .image | sort -u | tr '\n' ' ')" = "$images "
}
for place in own other-store; do
	rm -rf "$STORE"
	platter init >/dev/null
	for n in 1 2; do
		random 1000448 "$place $n" >"$WORK/$place-$n"
		platter capture --raw "$WORK/$place-$n" lab/a >/dev/null
	done
	platter clone lab/a "lab/$([ "$place" = own ] && echo clone || echo foreign)" >/dev/null
	mv "$STORE" "$WORK/$place"
done
# No pack has the clone, because nothing was captured afterwards.
foreign "a catalog of another store, and its log" lab/a catalog.sqlite changes.log
foreign "a catalog of another store" "lab/a lab/clone" catalog.sqlite

# A pack is away while the catalog is made again, also without catalog and log, and comes back. So does one that a collection deleted.
for lost in "" "catalog.sqlite changes.log"; do
	name="a pack was away${lost:+, catalog and log lost}"
	rm -rf "$STORE"
	cp -a "$WORK/own" "$STORE"
	for file in $lost; do rm "$STORE/$file"; done
	for pack in "$STORE"/packs/*/*.pack; do
		mv "$pack" "$WORK/away"
		# Without catalog and log, nothing may tell of the version.
		if [ -z "$lost" ]; then
			check_exit "$EXIT_CORRUPT" "$name: a rebuild names what is incomplete" platter rebuild
			check_said "$name: namely" 'damaged: lab/(a|clone)@'
		else
			platter rebuild >/dev/null 2>&1 || true
		fi
		mv "$WORK/away" "$pack"
		platter discard-interrupted >/dev/null 2>&1 || true
		check "$name: it is not discarded" test -e "$pack"
		check "$name: a rebuild takes it over" platter rebuild
		check "$name: everything reads back" platter check --read-data
		for n in 1 2; do
			rm -f "$WORK/again"
			check "$name: lab/a@$n is there" platter export "lab/a@$n" "$WORK/again"
			check "$name: with its bytes" cmp "$WORK/own-$n" "$WORK/again"
		done
	done
done
rm -rf "$STORE"
cp -a "$WORK/own" "$STORE"
platter forget lab/a@1 >/dev/null
platter gc --yes --keep-trash 0 >/dev/null
kept=$(find "$STORE/packs" -name '*.pack')
mkdir "$WORK/collected"
for pack in $kept; do mv "$pack" "$WORK/collected/"; done
cp -an "$WORK/own/packs/." "$STORE/packs/"
check "a backup of packs from before a collection: a rebuild uses it" platter rebuild
check "and lab/a@2 is there" platter export lab/a@2 "$WORK/from-backup"
check "with its bytes" cmp "$WORK/own-2" "$WORK/from-backup"

# A pack that nothing needs is missing: no collection gives up anything, and a rebuild forgets the pack.
rm -rf "$STORE"
cp -a "$WORK/own" "$STORE"
for version in lab/clone@1 lab/a@1; do platter forget "$version" >/dev/null; done
for pack in "$STORE"/packs/*/*.pack; do
	mv "$pack" "$WORK/away"
	# The one of lab/a@2 is needed.
	rm -f "$WORK/probe"
	! platter export lab/a@2 "$WORK/probe" >/dev/null 2>&1 || break
	mv "$WORK/away" "$pack"
done
check_exit "$EXIT_CORRUPT" "gc without a pack" platter gc --yes
check_said "says what to do" 'nothing is collected while a pack is missing: .platter check.*platter rebuild'
check "a rebuild forgets the pack" platter rebuild
check "gc works again" platter gc --yes
check "and lab/a@2 is there" platter check --read-data

# A capture is killed, the next one uses what it stored, and lacks only its commit: nothing that this version needs is discarded.
rm -rf "$STORE"
platter init >/dev/null
random 200000000 waiting >"$WORK/waiting"
platter capture --raw "$WORK/own-1" lab/a >/dev/null
"$PLATTER" --store "$STORE" capture --raw "$WORK/waiting" lab/b >/dev/null 2>&1 &
KILLED=$!
check "a capture stores its first data" until_true 30 sh -c "[ \"\$(du -sm '$STORE/packs' | cut -f 1)\" -gt 20 ]"
kill -9 "$KILLED"
wait "$KILLED" 2>/dev/null || true
check_exit "$EXIT_MISSING" "and is killed" platter show lab/b
rm -rf "$WORK/before"
cp -a "$STORE" "$WORK/before"
random 1000000 changed | dd of="$WORK/waiting" conv=notrunc status=none
check "the next one uses it" platter capture --raw "$WORK/waiting" lab/b
cp "$WORK/before/catalog.sqlite" "$WORK/before/changes.log" "$STORE/"
rm -f "$STORE"/catalog.sqlite-*
packs=$(find "$STORE/packs" -name '*.pack' | wc -l)
check "it lacks its commit: nothing is discarded" platter discard-interrupted
check_said "which is said" 'kept [0-9]* interrupted pack.*lacks only its commit'
check "not one pack" test "$(find "$STORE/packs" -name '*.pack' | wc -l)" = "$packs"
check "the next command commits it" platter clone lab/a lab/c
rm -f "$WORK/again"
check "it is there" platter export lab/b "$WORK/again"
check "with its bytes" cmp "$WORK/waiting" "$WORK/again"
rm -f "$WORK/waiting" "$WORK/again"

# An old catalog without its log: packs know what happened since.
rm -rf "$STORE"
cp -a "$WORK/own" "$STORE"
cp "$STORE/catalog.sqlite" "$WORK/old-catalog"
platter rename lab/clone lab/moved >/dev/null
platter clone lab/a lab/second >/dev/null
random 500224 later >"$WORK/later"
platter capture --raw "$WORK/later" lab/later >/dev/null
cp "$WORK/old-catalog" "$STORE/catalog.sqlite"
rm "$STORE/changes.log"
check "an old catalog without its log: rebuild" "$PLATTER" --store "$STORE" rebuild
check_said "which says up to which change names are known" 'names are as of change [0-9]+'
check "names are as before, also renamed and cloned ones" test "$(platter_json images | jq -r .image | sort -u | tr '\n' ' ')" = "lab/a lab/later lab/moved lab/second "
check "and everything reads back" platter check --read-data

# Without store.json, nothing suggests to make a new store.
rm "$STORE/store.json"
check_exit "$EXIT_CORRUPT" "a store without store.json" platter images
check_said "is rebuilt" 'store.json is missing: .platter rebuild'
check "which works" platter rebuild
check "and it is as before" platter check

# A server that was idle during a rebuild goes on with the new catalog.
check "an origin starts" start_origin
check "a rebuild beside it" platter rebuild
platter rename lab/moved lab/renamed >/dev/null
check "the origin shows a name that changed afterwards" afar show lab/renamed
check "a capture through it" afar capture --raw "$WORK/own-1" lab/new
check "is shown" afar show lab/new
check "and is in the store" platter show lab/new
stop_origin TERM
# A forgotten version is damaged before it is brought back.
STORE=$WORK/hurt
platter init >/dev/null
random 3000000 hurt >"$WORK/hurt-disk"
platter capture --raw "$WORK/hurt-disk" hurt/disk >/dev/null
platter forget hurt/disk@1 >/dev/null
damage_pack "$WORK/hurt-disk" 1000000
platter check --read-data >/dev/null || true
check_exit "$EXIT_CORRUPT" "a damaged version is brought back" platter rebuild --resurrect hurt/disk@1
check_said "and called damaged" 'damaged: hurt/disk@1: block'
finish
