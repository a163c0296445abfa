#!/usr/bin/env bash
# bench/tenants.sh: what the time of an answer tells one tenant about another. The token of one tenant asks for things that only
# the other tenant has, and for things that nobody has, in random order: blocks, a disk by its score, an image by its name, a
# boot set. For each, it prints the median times, and how often an answer about an existing thing took longer than one about a
# missing thing. 0.5 means that time tells nothing; `range` is what chance alone makes of it 19 times of 20.
#
#   BENCH_REQUESTS  requests of each kind (default: 3000)
. "$(dirname "$0")/lib.sh"

port=$((20000 + $$ % 20000))
head -c 16M /dev/urandom >"$WORK/disk"
new_store
for image in lab/disk shop/disk; do platter capture --raw "$WORK/disk" "$image" >/dev/null && head -c 16M /dev/urandom >"$WORK/disk"; done
begin "$WORK/attach.log" "$PLATTER" --store "$STORE" --quiet attach lab/disk --nbd "$WORK/nbd.sock" --record "$WORK/trace"
attached=$SERVER
wait_for test -S "$WORK/nbd.sock"
qemu-io -r -f raw -c 'read 0 16M' "nbd+unix:///lab/disk?socket=$WORK/nbd.sock" >/dev/null
end "$attached"
platter hoard import "$WORK/trace" lab/disk >/dev/null
token=$(platter_json serve token add shop --role write --images 'shop/*' | jq -r .secret)
score=$(platter_json show lab/disk | jq -r '[.. | .score? // empty] | first')
boot_set=$(platter_json hoard show lab/disk | jq -r .boot_set)
begin "$WORK/serve.log" "$PLATTER" --store "$STORE" serve --listen "unix:$WORK/serve.sock" --listen "127.0.0.1:$port"
wait_for curl -fs --unix-socket "$WORK/serve.sock" http://origin/healthz
curl -fs --unix-socket "$WORK/serve.sock" "http://origin/api/v1/hoard/boot-sets/$boot_set" >"$WORK/boot-set"
PLATTER_TOKEN=$token python3 "$(dirname "$0")/tenants.py" "$port" "$WORK/boot-set" "$score" "$boot_set" "${BENCH_REQUESTS:-3000}"
