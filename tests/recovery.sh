#!/usr/bin/env bash
# tests/recovery.sh
#
# Random mishaps of a store, and whether a rebuild makes it sound again: packs that are away, damaged, exchanged or come back from a backup, a lost
# catalog or log, killed commands (recovery.py). With PLATTER_SIZE=full, two hundred trials. SEED is the first one's.
. "$(dirname "$0")/lib.sh"

first=${SEED:-1}
trials=6
[ "${PLATTER_SIZE:-quick}" != full ] || trials=200
for seed in $(seq "$first" $((first + trials - 1))); do
	check "seed $seed" python3 "$TESTS/recovery.py" "$PLATTER" "$WORK/trial-$seed" "$seed" 100
	rm -rf "$WORK/trial-$seed"
done
finish
