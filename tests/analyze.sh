#!/usr/bin/env bash
# tests/analyze.sh: `platter analyze`. What it counts on raw disks is what a program finds that compares all blocks of these disks
# with each other; what it says that images take is what the files of the store have, and what it predicts is what stores take that
# are then really made. Files of twins on two filesystems, partitions, scores, origins, encrypted and damaged stores. Needs no root.
. "$(dirname "$0")/lib.sh"

suite_cleanup() { [ -z "$ORIGIN" ] || kill -KILL "$ORIGIN" 2>/dev/null || true; }

# analyzed ARGUMENT...: leaves the JSON in $WORK/found.json
analyzed() { platter_json analyze "$@" >"$WORK/found.json"; }
# the_same EXPECTED-FILE: the counts found are those of the file
the_same() {
	local counts='{images: [.images[] | {data_bytes, blocks, distinct_bytes, shared_bytes, unique_bytes}], overlap_bytes, total: (.total
		| {data_bytes, blocks, distinct_bytes, dedup_ratio: (.dedup_ratio * 1000000 | round), cross_similarity: (.cross_similarity * 1000000 | round)})}'
	diff <(jq -S "$counts" "$1") <(jq -S "$counts" "$WORK/found.json")
}
found() { jq -e "${@:2}" "$1" "$WORK/found.json"; }
# near A B PERCENT: A differs from B by at most so much
near() { awk -v a="$1" -v b="$2" -v percent="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; if (d * 100 > b * percent) { print a, b; exit 1 } }'; }

check "init" platter init
check_exit "$EXIT_MISSING" "a store without images" platter analyze
check_said "says so" 'no images'

python3 "$TESTS/shared_blocks.py" make "$WORK" "$SEED" 5
for number in 0 1 2 3 4; do platter capture --raw "$WORK/disk-$number" "lab/$number" >/dev/null; done
python3 "$TESTS/shared_blocks.py" expect 32768 "$WORK"/disk-[0-4] >"$WORK/expected.json"
check "raw disks are analyzed" analyzed
check "every count is that of the oracle" the_same "$WORK/expected.json"
check "all blocks were counted" found '.sampled == 1 and .damage == [] and .total.missing_blocks == 0'
check "lengths are those of the disks" test "$(jq '[.images[].disk_bytes] | add' "$WORK/found.json")" = "$(cat "$WORK"/disk-[0-4] | wc -c)"
check "the oracle sees shared and other data" jq -e '.total.dedup_ratio > 1.2 and (.total.cross_similarity | . > 0.1 and . < 0.99)' "$WORK/expected.json"

# Named images count as if there were no others.
python3 "$TESTS/shared_blocks.py" expect 32768 "$WORK/disk-3" "$WORK/disk-1" >"$WORK/expected.json"
score=$(platter_json show lab/1 | jq -r .score)
check "two images, one named by its score" analyzed lab/3@1 "$score"
check "their counts are those of the oracle" the_same "$WORK/expected.json"
check "in the order in which they were named" found '.images[0].image == "lab/3@1" and .images[1].score == $score' --arg score "$score"
check "one image" analyzed lab/2
check "shares nothing" found '.total.cross_similarity == 0 and .images[0].shared_bytes == 0 and .images[0].blocks == .total.blocks'
check_exit "$EXIT_MISSING" "an unknown image" platter analyze lab/0 lab/none
check_exit "$EXIT_USAGE" "an invalid name" platter analyze lab//0
check_exit "$EXIT_MISSING" "an unknown partition" platter analyze lab/0:3
check_exit "$EXIT_USAGE" "a logical volume" platter analyze lab/0:group-volume
check_said "cannot be chosen" 'a logical volume cannot be chosen here'

# Other sizes of blocks: aligned ones are those of the oracle, whatever the size.
check "aligned blocks of four sizes" analyzed --cut aligned --block-size 512,4KiB,32KiB,1MiB
cp "$WORK/found.json" "$WORK/sizes.json"
for number in 0 1 2 3; do
	size=$(jq ".what_if[$number].block_bytes" "$WORK/sizes.json")
	python3 "$TESTS/shared_blocks.py" expect "$size" "$WORK"/disk-[0-4] >"$WORK/expected.json"
	jq ".what_if[$number]" "$WORK/sizes.json" >"$WORK/found.json"
	check "blocks of $size bytes are those of the oracle" the_same "$WORK/expected.json"
done
check "sizes that cuts along files do not have" analyzed lab/0 --cut files,aligned --block-size 4KiB,4096
check "are left out, with a note, and each plan is there once" found '(.what_if | length == 1) and .what_if[0].cut == "aligned" and (.notes | length == 1)'
check "without compression" analyzed --cut aligned --block-size 32KiB --compressor none
check "blocks take their length, an id each, and headers" found '.what_if[0].total | .stored_bytes - .distinct_bytes - .blocks * 36 | . > 0 and . < 60000'

# Contents that moved by 512 bytes.
random 3000320 moved >"$WORK/before"
{ random 512 first && cat "$WORK/before"; } >"$WORK/moved"
for name in before moved; do platter capture --raw "$WORK/$name" "moved/$name" >/dev/null; done
check "contents that moved" analyzed moved/before moved/moved --cut aligned,content --block-size 8KiB
check "are found by blocks cut by contents, and not by others" found '(.what_if | map(.cut)) == ["aligned", "content"]
	and .what_if[0].overlap_bytes[0][1] == 0 and .what_if[1].overlap_bytes[0][1] > 0.95 * .what_if[1].images[0].distinct_bytes'
check "nothing is lost between these blocks" found '.what_if[1].images[0].data_bytes == 3000320'
random 12000256 large >"$WORK/large"
platter capture --raw "$WORK/large" moved/large >/dev/null
check "with too little memory, a sample is counted" analyzed moved/large --cut aligned --block-size 512 --memory 1
check "and it says so" found '.what_if[0].sampled > 1 and .sampled == 1'
check "which gives nearly the same" near "$(jq '.what_if[0].total.distinct_bytes' "$WORK/found.json")" 12000256 5
check "also compressed" near "$(jq '.what_if[0].total.stored_bytes' "$WORK/found.json")" $((12000256 + 23438 * 36)) 5

for words in "--block-size 1000" "--block-size 4K" "--block-size 256" "--block-size 2MiB" "--block-size 4X" "--cut files --block-size 4KiB" "--cut fixed" "--compressor lz4" \
	"--compressor zstd-20" "--memory 0"; do
	# shellcheck disable=SC2086  # split into arguments
	check_exit "$EXIT_USAGE" "$words" platter analyze $words
done

# Tables.
platter analyze lab/0 lab/1 lab/2 lab/3 lab/4 >"$WORK/table"
check "the table lists every image" test "$(grep -c '^[1-5]  lab/' "$WORK/table")" = 5
check "and fits on 80 columns" awk 'length > 80 { print; bad = 1 } END { exit bad }' "$WORK/table"
check "an image shares all with itself" test "$(awk '/in percent/ { on = 1; next } on && /^[1-5] / && $($1 + 1) == 100' "$WORK/table" | wc -l)" = 5

# File systems, and what they take in the files of the store.
rm -rf "$STORE"
platter init >/dev/null
file_tree "$WORK/tree" 8 one
ext4_image "$WORK/one" 40 "$WORK/tree"
seq 200000 >"$WORK/tree/more.txt"
random 900000 more >"$WORK/tree/more.bin"
ext4_image "$WORK/two" 64 "$WORK/tree"
truncate -s 90M "$WORK/three"
printf 'label: gpt\nstart=2048, size=8192\nstart=10240, size=131072\n' | sfdisk -q "$WORK/three"
dd if="$WORK/two" of="$WORK/three" bs=1M seek=5 conv=notrunc status=none
for name in one two three; do platter capture "$WORK/$name" "fs/$name" >/dev/null; done
check "file systems are analyzed" analyzed
packs=$(find "$STORE/packs" -name '*.pack' -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
check "blocks and recipes take what the packs have, within 1 %" near "$(jq '.total.stored_bytes + .total.recipe_bytes' "$WORK/found.json")" "$packs" 1
check "what each image adds sums up to what all take" found '([.images[].added_bytes] | add) == .total.stored_bytes + .total.recipe_bytes'
check "the first image adds all that it takes" found '.images[0] | .added_bytes == .stored_bytes + .recipe_bytes'
check "no image takes more than all" found '.total as $all | all(.images[]; .stored_bytes <= $all.stored_bytes and .unique_stored_bytes <= .stored_bytes)'
check "the ratios belong together" found '.total | (.dedup_ratio * .compression_ratio - .combined_ratio | fabs) < 0.0001 and .compression_ratio > 1'
allocated=$(platter_json show fs/one | jq .allocated_bytes)
check "space in use is that of the record" found '[.images[] | select(.image == "fs/one@1")][0].allocated_bytes == $n' --argjson n "$allocated"
check "files that others have are shared" found '[.images[] | select(.image == "fs/one@1")][0] | .shared_bytes > 0.9 * .distinct_bytes'

# made OPTION...: a store really made of the three disks; the bytes of its packs
made() {
	local name
	rm -rf "$WORK/made"
	"$PLATTER" --store "$WORK/made" --quiet init >/dev/null
	for name in one two three; do "$PLATTER" --store "$WORK/made" --quiet capture "$WORK/$name" "fs/$name" "$@" >/dev/null; done
	find "$WORK/made/packs" -name '*.pack' -printf '%s\n' | awk '{ sum += $1 } END { print sum }'
}
predicted() { jq '.what_if[0].total | .stored_bytes + .recipe_bytes' "$WORK/found.json"; }
images=(fs/one fs/two fs/three)
check "a store made anew with the defaults is predicted" analyzed "${images[@]}" --cut files
check "within 1 % of the packs of one really made" near "$(predicted)" "$(made)" 1
for name in one two; do
	check "and so is what fs/$name adds" near "$(jq --arg n "fs/$name@1" '.what_if[0].images[] | select(.image == $n) | .added_bytes + .added_recipe_bytes' "$WORK/found.json")" \
		"$("$PLATTER" --store "$WORK/made" --json show "fs/$name" | jq .new_stored_bytes)" 1
done
check "the counts are those of the store" found '.what_if[0] as $p | $p.total.blocks == .total.blocks and $p.overlap_bytes[0][1] >= .overlap_bytes[0][1]'
check "with level 9, blocks of 32 KiB and frames of 64 KiB" analyzed "${images[@]}" --cut files --block-size 32KiB --compressor zstd-9 --frame-size 64
check "within 1 % of one really made" near "$(predicted)" "$(made --level 9 --block-size 32 --frame-size 64)" 1
check "the options matter" test "$(predicted)" -ne "$(analyzed "${images[@]}" --cut files && predicted)"

# Twins: the same tree on ext4 and FAT.
plain=$STORE STORE=$WORK/twins
platter init >/dev/null
for name in one two; do platter capture "$WORK/$name" "fs/$name" >/dev/null; done
truncate -s 64M "$WORK/fat"
mkfs.vfat "$WORK/fat" >/dev/null
mcopy -s -i "$WORK/fat" "$WORK"/tree/* ::
platter capture "$WORK/fat" fs/fat >/dev/null
truncate -s 112M "$WORK/blake2"
mkfs.btrfs -q --csum blake2 "$WORK/blake2"
platter capture "$WORK/blake2" fs/blake2 >/dev/null
check "a filesystem that is not read is no damage" analyzed fs/blake2 --files
check_exit "$EXIT_REFUSED" "its files are refused" platter ls fs/blake2:/
check "its files are listed as not readable" test "$(platter_json ls fs/blake2 | jq -c '[.is_readable, (.unreadable | length > 0)]')" = '[false,true]'
check "files are compared" analyzed fs/two fs/fat --files --svg "$WORK/map.svg"
check "twins on ext4 and FAT have the same files" found '.files | .images[0].filesystems == ["ext4"] and .images[1].filesystems == ["vfat"] and .total.unreadable == 0
	and .images[0].files == .images[1].files and .images[0].shared_bytes == .images[0].distinct_bytes and .images[0].distinct_bytes == .images[1].distinct_bytes
	and .overlap_bytes[0][1] == .images[0].distinct_bytes and .total.cross_similarity == 1'
check "as many as there are" test "$(jq '.files.images[0] | "\(.files) \(.distinct_files)"' "$WORK/found.json")" \
	= "\"$(find "$WORK/tree" -type f -size +0 | wc -l) $(find "$WORK/tree" -type f -size +0 -exec sha256sum {} + | cut -c 1-64 | sort -u | wc -l)\""
check "a file that one lacks" analyzed fs/one fs/two --files
check "is not shared" found '.files | .images[1].files - .images[0].files == 2 and .images[0].unique_bytes == 0 and .images[1].unique_bytes > 900000'
check "and a table" platter analyze fs/one fs/fat --files
rm -rf "$WORK/tree-zeros" "$WORK/zeros"
mkdir "$WORK/tree-zeros"
for name in 64K 1M 2M; do random 65536 zeros >"$WORK/tree-zeros/$name" && truncate -s "$name" "$WORK/tree-zeros/$name"; done
truncate -s 1M "$WORK/tree-zeros/zeros"
touch "$WORK/tree-zeros/empty"
ext4_image "$WORK/zeros" 16 "$WORK/tree-zeros"
platter capture "$WORK/zeros" fs/zeros >/dev/null
check "files that end with zeros, and one of zeros only" analyzed fs/zeros --files
check "are all counted, without zeros" found '.files.images[0] | .files == 4 and .distinct_files == 4 and .bytes == 3 * 65536'
check "heat maps are XML without scripts" python3 -c 'import sys, xml.dom.minidom as x; d = x.parse(sys.argv[1]); assert len(d.getElementsByTagName("rect")) == 9 and not d.getElementsByTagName("script")' "$WORK/map.svg"
check_exit "$EXIT_FAILED" "an existing file is not overwritten" platter analyze fs/one --svg "$WORK/map.svg"
STORE=$plain
# The same file system as a whole disk and in a partition: everything but the partition table is shared.
check "a partition and the same file system alone" analyzed fs/two fs/three:2
check "are the same" found '.images[1].image == "fs/three@1:2" and .images[0].distinct_bytes == .images[1].distinct_bytes
	and .overlap_bytes[0][1] == .images[0].distinct_bytes and .total.dedup_ratio > 1.99'
check "an empty partition" analyzed fs/three:1
check "has no data, and no ratios" found '.total.data_bytes == 0 and .total.dedup_ratio == null and .images[0].blocks == 0'
check "and a table" platter analyze fs/three:1

# An origin: the same counts, but its packs cannot be seen.
analyzed fs/one fs/three fs/two && cp "$WORK/found.json" "$WORK/local.json"
start_origin
check "the images of an origin are analyzed" bash -c '"$0" --server "unix:$1" --json --quiet analyze >"$2"' "$PLATTER" "$SOCKET" "$WORK/found.json"
check "with the same counts" the_same "$WORK/local.json"
check "without stored bytes" found '.total.stored_bytes == null and .images[0].stored_bytes == null and .total.compression_ratio == null and (.notes | length == 1)'
check "and a table" afar analyze
check_said "that says why" "an origin does not show its packs"
stop_origin TERM

# Damage is counted, and ends nothing.
cp -r "$STORE" "$WORK/sound"
# write_over FILE OFFSET LENGTH
write_over() { head -c "$3" /dev/zero | tr '\0' 'x' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
# The first pack of the store has the data of the first image; its footer names the blocks.
damaged=0
for pack in "$STORE"/packs/*/*.pack "$STORE"/packs/*.pack; do
	[ -f "$pack" ] || continue
	for at in 3 5 9; do
		rm -rf "$STORE" && cp -r "$WORK/sound" "$STORE"
		size=$(stat -c %s "$pack")
		write_over "$pack" $((size * at / 10)) 4096
		code=0
		platter_json analyze >"$WORK/found.json" 2>"$LOG" || code=$?
		case $code in
		0) found '.total.unreadable_bytes == 0' >/dev/null || not_ok "damage without a message" ;;
		"$EXIT_CORRUPT") damaged=$((damaged + 1)) ;;
		*) not_ok "$(basename "$pack") damaged at $at: exit code $code" ;;
		esac
		platter_json analyze --files --cut aligned,files --block-size 64KiB >"$WORK/found.json" 2>>"$LOG" || code=$?
		[ "$code" = "$EXIT_CORRUPT" ] || not_ok "$(basename "$pack") damaged at $at: its data was read, and the exit code is $code"
		found '.damage | length > 0' >/dev/null || not_ok "$(basename "$pack") damaged at $at: no message"
		! grep -qi panicked "$LOG" || not_ok "$(basename "$pack") damaged at $at: a panic"
	done
	# The end of a pack has the list of its blocks.
	rm -rf "$STORE" && cp -r "$WORK/sound" "$STORE"
	write_over "$pack" $(($(stat -c %s "$pack") - 600)) 600
	code=0
	platter_json analyze >"$WORK/found.json" 2>"$LOG" || code=$?
	if [ "$code" = "$EXIT_CORRUPT" ] && found '(.damage | length > 0) or .total.unreadable_bytes > 0 or .total.missing_blocks > 0' >/dev/null; then
		ok "$(basename "$pack" | cut -c 1-8) without a footer: exit code 4, and it is counted"
	else
		not_ok "$(basename "$pack") without a footer: exit code $code"
	fi
	check_exit "$EXIT_CORRUPT" "and the table says so" platter analyze
	check_said "in words" '^damaged: '
	rm -rf "$STORE" && cp -r "$WORK/sound" "$STORE"
	rm "$pack"
	check_exit "$EXIT_CORRUPT" "the same pack lost" platter_json analyze
done
check "damaged recipes were met ($damaged times)" test "$damaged" -gt 0
rm -rf "$STORE" && mv "$WORK/sound" "$STORE"

# An encrypted store needs its key, and then has the same counts.
rm -rf "$STORE"
check "an encrypted store" platter init --encrypt --unlock-file "$WORK/key"
locked() { setsid "$PLATTER" --store "$STORE" --quiet "$@" </dev/null; }
for name in one two three; do platter --unlock-file "$WORK/key" capture "$WORK/$name" "fs/$name" >/dev/null; done
check_exit "$EXIT_REFUSED" "is not analyzed without its key" locked analyze
check "is analyzed with its key" bash -c '"$0" --store "$1" --json --quiet --unlock-file "$2" analyze --files --cut files >"$3"' "$PLATTER" "$STORE" "$WORK/key" "$WORK/found.json"
check "with the same counts as a plain store" the_same "$WORK/local.json"
packs=$(find "$STORE/packs" -name '*.pack' -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
check "and what it takes is predicted" near "$(predicted)" "$packs" 1
check "its files are compared" found '.files.total.unreadable == 0 and .files.images[0].files > 100'

finish
