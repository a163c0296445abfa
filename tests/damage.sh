#!/usr/bin/env bash
# tests/damage.sh: a store's files damaged one by one: bits flipped, cut short, removed, written over. `check` names the
# damage with exit code 4, `install` and `export` never give wrong bytes, nothing panics, and the undamaged copy of
# the same store still works. PLATTER_SEED chooses the places.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) rounds=40 ;; *) rounds=4 ;; esac

file_tree "$WORK/tree" 16 damage
ext4_image "$WORK/disk" 64 "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" image >/dev/null
printf 'more\n' >"$WORK/more"
debugfs -w -R "write $WORK/more more" "$WORK/disk" >/dev/null 2>&1
platter capture "$WORK/disk" image >/dev/null
platter export image "$WORK/right" >/dev/null
mv "$STORE" "$WORK/sound"

# Every file of the store that holds somebody's bytes, largest first.
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

# outcome NAME COMMAND...: it must end by itself, without a panic, in 60 seconds and 2 GiB; its exit code in $CODE
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
	# Wrong bytes on a target are the one thing that must never be.
	outcome "$name: export" "$PLATTER" --store "$STORE" --quiet export image "$WORK/target"
	local exported=$CODE
	if [ "$exported" = 0 ] && ! cmp -s "$WORK/target" "$WORK/right"; then
		not_ok "$name: export succeeded with wrong bytes"
		return
	fi
	outcome "$name: check" "$PLATTER" --store "$STORE" --quiet check --read-data
	local checked=$CODE
	if [ "$exported" != 0 ] && [ "$checked" = 0 ]; then
		not_ok "$name: export failed with $exported, but check sees nothing"
	elif [[ $2 == *pack* ]] && [ "$checked" != 0 ] && ! grep -qE '[0-9a-f]{8}|offset|pack' "$LOG"; then
		not_ok "$name: check does not name what is damaged"
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
# A check that saw no damage at all in any pack would pass the above.
check "damage in packs was seen ($seen times)" [ "$seen" -gt 0 ]

# What is lost but can be rebuilt from the packs.
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
find "$STORE" -type f ! -path '*pack*' ! -name '*lock*' -delete
check "rebuild from packs alone" platter rebuild
rm -f "$WORK/target"
check "export after it" platter export image "$WORK/target"
check "gives the right bytes" cmp "$WORK/target" "$WORK/right"
finish
