#!/usr/bin/env bash
# bench/similarity.sh CATALOG...: what the disks of catalogs share: by blocks of many sizes (Squirrel, figures 2 to 4; Venti-Frisbee,
# tables 2 and 3), by cut, by compressor, and for every two disks (Liguori and Van Hensbergen, figures 1 to 5). Predictions by
# `platter analyze`; the one for the defaults is compared with the store that is made here.
. "$(dirname "$0")/lib.sh"

: "${1:?usage: bench/similarity.sh CATALOG...}"
MEMORY=${BENCH_MEMORY:-1024}

new_store
names=()
for catalog in "$@"; do
	while read -r disk; do
		name=catalog/$(basename "$disk" .raw)
		platter capture "$disk" "$name" >/dev/null
		names+=("$name")
	done < <(images "$catalog")
done

# predicted FILE: a line for each prediction
predicted() {
	jq -r '.what_if[] | [.cut, .block_bytes, .compressor, .total.blocks, .total.distinct_bytes / 1e6, .total.stored_bytes / 1e6, .total.dedup_ratio,
		.total.compression_ratio, .total.combined_ratio, .total.cross_similarity, .sampled] | @tsv' "$1" |
		awk -F'\t' '{ printf "%-8s %8d  %-8s %10d %12.1f %12.1f %8.2f %8.2f %8.2f %8.3f %8d\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 }'
}
head='cut         block  compr.       blocks distinct, MB   stored, MB    dedup   compr. combined  similar  sampled'

platter_json analyze --memory "$MEMORY" "${names[@]}" >"$WORK/stored.json"
echo "As stored: every image, in MB"
jq -r '.images[] | [.image, .data_bytes / 1e6, .distinct_bytes / 1e6, .shared_bytes / 1e6, .stored_bytes / 1e6, .unique_stored_bytes / 1e6] | @tsv' "$WORK/stored.json" |
	awk -F'\t' 'BEGIN { printf "%-32s %10s %10s %10s %10s %10s\n", "image", "data", "distinct", "shared", "stored", "unique" }
		{ printf "%-32s %10.1f %10.1f %10.1f %10.1f %10.1f\n", $1, $2, $3, $4, $5, $6 }'

heading "by size of aligned blocks, and by cut"
echo "$head"
timed sizes platter_json analyze --memory "$MEMORY" "${names[@]}" --cut aligned --block-size 512,1KiB,2KiB,4KiB,8KiB,16KiB,32KiB,64KiB,128KiB,256KiB,512KiB,1MiB
cp "$WORK/output" "$WORK/sizes.json"
predicted "$WORK/sizes.json"
for sizes in 4KiB 32KiB 64KiB; do
	platter_json analyze --memory "$MEMORY" "${names[@]}" --cut content --block-size "$sizes" >"$WORK/content.json"
	predicted "$WORK/content.json"
done
for size in 32KiB 64KiB; do
	platter_json analyze --memory "$MEMORY" "${names[@]}" --cut files --block-size "$size" >"$WORK/files-$size.json"
	predicted "$WORK/files-$size.json"
done
result "time for twelve sizes" "$(median sizes) s"

heading "by compressor"
echo "$head"
for compressor in none zstd-1 zstd-3 zstd-9; do
	platter_json analyze --memory "$MEMORY" "${names[@]}" --cut files --compressor "$compressor" >"$WORK/compressor.json"
	predicted "$WORK/compressor.json"
done

heading "a prediction beside the store"
packs=$(find "$STORE/packs" -name '*.pack' -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
predicted=$(jq '.what_if[0].total | .stored_bytes + .recipe_bytes' "$WORK/files-64KiB.json")
result "packs of the store" "$(calculate "$packs / 1e6") MB"
result "predicted, as a ratio to it" "$(calculate "$predicted / $packs")" "0.99 to 1.01"

heading "growth of the store with each image, by the curves that Squirrel compares"
jq -r '.what_if[0].images[].added_bytes' "$WORK/files-64KiB.json" | "$ROOT/bench/fits.py" "${#names[@]}" 100 607

heading "how much of the row the column has, in percent"
# matrix FILTER FILE
matrix() { jq -r "$1"' as $m | [range($m | length)] as $all | $all[] | . as $a | [.+1] + [$all[] | $m[$a][.] / ([$m[$a][$a], 1] | max) * 100 | round] | @tsv' "$2" | column -t; }
for number in 0 3 6 11; do
	echo "aligned blocks of $(jq ".what_if[$number].block_bytes" "$WORK/sizes.json") bytes"
	matrix ".what_if[$number].overlap_bytes" "$WORK/sizes.json"
done
echo "as stored"
matrix .overlap_bytes "$WORK/stored.json"
echo "files"
platter_json analyze --memory "$MEMORY" "${names[@]}" --files --svg "$WORK/map.svg" >"$WORK/by-files.json"
matrix .files.overlap_bytes "$WORK/by-files.json"
[ -z "${BENCH_SVG:-}" ] || cp "$WORK/map.svg" "$BENCH_SVG"
