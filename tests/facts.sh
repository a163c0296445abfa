#!/usr/bin/env bash
# Sourced by suites and by samples.sh: what must be the same in two trees of files.

# facts DIR: everything about its files, in a fixed order
facts() {
	(
		cd "$1" || exit
		find . -printf '%P %y %m %U %G %T@ %n %l\n' | sort
		find . -type f -printf '%P %s\n' | sort
		find . -type f -print0 | sort -z | xargs -0 -r sha256sum
		find . \( -type f -o -type d \) -print0 | sort -z | xargs -0 getfattr -h -d -m - 2>/dev/null
	)
}

# ext_facts FILE DIR: the facts of an ext, mounted at DIR if the kernel can, else as debugfs prints them
ext_facts() {
	if mount -o ro,noload "$1" "$2" 2>/dev/null || mount -o ro "$1" "$2" 2>/dev/null; then
		facts "$2"
		umount "$2"
		return
	fi
	rm -rf "$WORK/out"
	mkdir "$WORK/out"
	debugfs -R "rdump / $WORK/out" "$1" 2>/dev/null
	(
		cd "$WORK/out" || exit
		find . -type f -print0 | sort -z | xargs -0 -r sha256sum
		find . -printf 'stat "/%P"\n' | sort >"$WORK/commands"
	)
	debugfs -f "$WORK/commands" "$1" 2>/dev/null
}
