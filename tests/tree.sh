#!/usr/bin/env bash
# tests/tree.sh: the file tree, mounted over FUSE and read over 9P, with common programs: ls, cat, cmp, cp, mkdir, mv, rm,
# mount. Files copied into import/ are captured; a copy of a version is a clone; a live disk is mounted, written and
# published.
. "$(dirname "$0")/lib.sh"

need_root "mounting the tree" || { finish; exit 0; }
TREE=$WORK/tree
mkdir "$TREE"
SERVER=
suite_cleanup() {
	mountpoint -q "$MNT" && umount "$MNT"
	for device in "$WORK"/loops/*; do [ ! -e "$device" ] || detach_loop "/dev/${device##*/}"; done
	[ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null
	wait
	umount -l "$TREE" 2>/dev/null
}
# serve ARGUMENT...: serves the tree, and waits until it is mounted
serve() {
	"$PLATTER" --store "$STORE" attach --fuse "$TREE" --9p "$WORK/9p.sock" "$@" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	local tries=0
	until [ -d "$TREE/import" ] && [ -S "$WORK/9p.sock" ]; do
		tries=$((tries + 1))
		if [ "$tries" -gt 400 ] || ! kill -0 "$SERVER" 2>/dev/null; then
			cat "$WORK/server.log"
			return 1
		fi
		sleep 0.02
	done
}
packs_length() { du -sb "$STORE/packs" | cut -f 1; }

file_tree "$WORK/files" 8 tree
ext4_image "$WORK/disk" 64 "$WORK/files"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter export lab/disk "$WORK/shown" >/dev/null
score=$(platter_json show lab/disk | jq -r '[.. | .score? // empty] | first')

# The parent directory is the test's own; it must not be what denies access.
chmod 711 "$WORK"
others_read() { setpriv --reuid=65534 --regid=65534 --clear-groups cmp "$TREE/lab/disk/1.raw" - <"$WORK/shown"; }
check "the tree is served to all users" serve --allow-other --write
check "another user reads it" others_read
check_exit 1 "but cannot write" setpriv --reuid=65534 --regid=65534 --clear-groups mkdir "$TREE/import/theirs"
kill "$SERVER"
check "it ends" wait "$SERVER"

# In a tree that is served read-only, nobody can change anything in any way.
check "the tree is served read-only" serve
check "and mounted read-only" grep -q " $TREE fuse.platter ro," /proc/mounts
refused_as_read_only() { # NAME COMMAND...
	local name=$1
	shift
	check_exit 1 "read only: $name is refused" "$@"
	check_said "for that reason" 'read-only file system'
}
refused_as_read_only "rm" rm -f "$TREE/lab/disk/1.raw"
refused_as_read_only "rm -r" rm -rf "$TREE/lab/disk"
refused_as_read_only "mv" mv "$TREE/lab/disk" "$TREE/lab/other"
refused_as_read_only "mkdir" mkdir "$TREE/attic"
refused_as_read_only "mkdir in import/" mkdir "$TREE/import/attic"
refused_as_read_only "rmdir" rmdir "$TREE/lab"
refused_as_read_only "cp into import/" cp "$WORK/disk" "$TREE/import/copy.raw"
refused_as_read_only "writing" dd if=/dev/zero of="$TREE/lab/disk/1.raw" bs=4k count=1 conv=notrunc
refused_as_read_only "truncating" truncate -s 0 "$TREE/lab/disk/1.raw"
refused_as_read_only "touch" touch "$TREE/lab/disk/1.raw"
refused_as_read_only "chmod" chmod 777 "$TREE/lab/disk/1.raw"
refused_as_read_only "a link" ln -s x "$TREE/link"
ninep_refuses() { python3 "$TESTS/ninep_changes.py" "$@"; }
check "read only: every changing 9P request is refused" ninep_refuses "$WORK/9p.sock" lab/disk 1.raw
check "the version still has its bytes" cmp "$TREE/lab/disk/1.raw" "$WORK/shown"
check "and is still in the store" platter show lab/disk@1
kill "$SERVER"
check "it ends" wait "$SERVER"
check "the tree is served writable" serve --write
check_exit 2 "another user has no access" others_read
check "it lists the images" sh -c "[ \"\$(ls '$TREE' | tr '\n' ' ')\" = 'by-date import lab ' ]"
check "and an image's versions" sh -c "[ \"\$(ls '$TREE/lab/disk' | tr '\n' ' ')\" = '1.raw 1.score latest.raw latest.score ' ]"
check "a version reads as the disk" cmp "$TREE/lab/disk/1.raw" "$WORK/shown"
check "so does the latest" cmp "$TREE/lab/disk/latest.raw" "$WORK/shown"
check "the score file is right" test "$(cat "$TREE/lab/disk/latest.score")" = "$score"
day=$(date -u +%Y/%m/%d)
check "it is also found by date" cmp "$TREE/by-date/$day/lab/disk.raw" "$WORK/shown"
check_exit 1 "a version cannot be written" dd if=/dev/zero of="$TREE/lab/disk/1.raw" bs=4k count=1 conv=notrunc
check "holes are seen" sh -c "[ \$(du --block-size=1 --apparent-size '$TREE/lab/disk/1.raw' | cut -f 1) -gt \$(cp --sparse=always '$TREE/lab/disk/1.raw' '$WORK/sparse' && du --block-size=1 '$WORK/sparse' | cut -f 1) ]"
check "and cp copies every byte" cmp "$WORK/sparse" "$WORK/shown"
mkdir "$WORK/loop"
check "a version is mounted by a loop device" sh -c "mount -o ro,loop,noload '$TREE/lab/disk/1.raw' '$MNT' && diff -r '$WORK/files' '$MNT' -x lost+found; rc=\$?; umount '$MNT'; exit \$rc"

cp --sparse=always "$WORK/disk" "$WORK/second"
debugfs -w -R "write $WORK/disk other" "$WORK/second" >/dev/null 2>&1 || true
check "mkdir and cp into import/ capture" sh -c "mkdir -p '$TREE/import/lab' && cp '$WORK/second' '$TREE/import/lab/second.raw'"
check "and create an image" platter show lab/second
platter export lab/second "$WORK/second-shown" >/dev/null || true
check "with its bytes" cmp "$TREE/lab/second/latest.raw" "$WORK/second-shown"
check "import/ is empty again" sh -c "! find '$TREE/import' -type f | grep -q ."

check "a redirection into import/ captures" sh -c "cat '$WORK/disk' >'$TREE/import/by/cat.raw' 2>/dev/null || { mkdir -p '$TREE/import/by' && cat '$WORK/disk' >'$TREE/import/by/cat.raw'; }"
check "with its bytes" cmp "$TREE/by/cat/latest.raw" "$WORK/shown"
check "dd into import/ captures" dd if="$WORK/disk" of="$TREE/import/by/dd.raw" bs=1M status=none
check "with its bytes" cmp "$TREE/by/dd/latest.raw" "$WORK/shown"

before=$(packs_length)
check "cp of a version into import/" cp "$TREE/lab/disk/1.raw" "$TREE/import/lab/copy.raw"
grown=$(($(packs_length) - before))
platter_json history lab/copy >"$WORK/history.json" || true
check "is a clone" grep -q "$score" "$WORK/history.json"
if [ "$grown" -le 65536 ]; then ok "and adds only $grown bytes"; else not_ok "and adds only $grown bytes"; fi

check "mkdir creates a directory" mkdir "$TREE/attic"
check "mv renames an image" mv "$TREE/lab/copy" "$TREE/attic/copy"
check "under its new name" platter show attic/copy
check_exit "$EXIT_MISSING" "and not under the old" platter show lab/copy
check "mv renames all images below a name" sh -c "mv '$TREE/attic' '$TREE/cellar' && '$PLATTER' --store '$STORE' show cellar/copy"
check "rm -r removes an image" rm -r "$TREE/cellar/copy"
check_exit "$EXIT_MISSING" "it is gone" platter show cellar/copy
platter capture "$WORK/second" lab/disk >/dev/null
check "a version captured by another process appears" test -e "$TREE/lab/disk/2.raw"
sleep 1.1 # a name is believed for a second
check "latest.raw is the new version" cmp "$TREE/lab/disk/latest.raw" "$WORK/second-shown"
check "rm removes a version" rm "$TREE/lab/disk/2.raw"
check "latest.raw is the previous version" cmp "$TREE/lab/disk/latest.raw" "$WORK/shown"
check_exit 1 "an invalid name is refused" cp "$WORK/second" "$TREE/import/what is this?.raw"

if [ -n "$(type -P diodls)" ]; then
	check "diodls lists it over 9P" sh -c "diodls -s '$WORK/9p.sock' -a / lab/disk | grep -q latest.raw"
	diodcat -s "$WORK/9p.sock" -a / lab/disk/latest.raw >"$WORK/by-9p" 2>"$LOG" || true
	check "diodcat reads it over 9P" cmp "$WORK/by-9p" "$WORK/shown"
else
	skip "9P with diod's clients: no diodls"
fi
kill "$SERVER"
check "it ends" wait "$SERVER"
SERVER=
check "and nothing stays mounted" sh -c "! mountpoint -q '$TREE'"

check "a live disk is in the tree" serve --write lab/disk
live=$TREE/lab/disk/live.raw
check "it shows the latest version" cmp "$live" "$WORK/shown"
attach "$live"
write_files() { mount "$DEVICE" "$MNT" && cp -r "$WORK/files" "$MNT/again" && umount "$MNT"; }
check "it is mounted and written" write_files
detach_loop "$DEVICE"
check "it is published while attached" platter publish lab/disk
check "a new version is in the tree" sh -c "ls '$TREE/lab/disk' | grep -q '^3.raw$'"
check "number 2 was not used again" sh -c "! ls '$TREE/lab/disk' | grep -q '^2.raw$'"
check "the version is the live disk" cmp "$live" "$TREE/lab/disk/3.raw"
check "its file system is sound" e2fsck -fn "$TREE/lab/disk/3.raw"
exec 9<"$live"
kill "$SERVER"
check "it ends with a file still open" wait "$SERVER"
SERVER=
exec 9<&-
check "and nothing stays mounted" sh -c "! mountpoint -q '$TREE'"
check "its changes are kept" sh -c "'$PLATTER' --store '$STORE' disks | grep -q lab/disk"
check "the store is sound" platter check
finish
