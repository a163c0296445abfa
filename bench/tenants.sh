#!/usr/bin/env bash
# bench/tenants.sh: what the time of an answer tells one tenant about another. The token of one tenant asks for things that only
# the other tenant has, and for things that nobody has, in random order: blocks, a disk by its score, an image by its name, a
# boot set. For each, it prints the median times, and how often an answer about an existing thing took longer than one about a
# missing thing. 0.5 means that time tells nothing; `range` is what chance alone makes of it 19 times of 20. It also publishes two
# disks again and again, of which it has all blocks already: one that the other tenant has, too, and one that nobody has.
#
#   BENCH_REQUESTS   requests of each kind (default: 3000)
#   BENCH_PUBLISHES  publications of each disk (default: 400)
. "$(dirname "$0")/lib.sh"

port=$((20000 + $$ % 20000))
for disk in has lacks; do
	head -c 64M /dev/urandom >"$WORK/$disk"
	{ cat "$WORK/$disk" && head -c 512 /dev/urandom; } >"$WORK/$disk-longer"
done
new_store
head -c 16M /dev/urandom >"$WORK/disk"
platter capture --raw "$WORK/disk" lab/disk >/dev/null
platter capture --raw "$WORK/has" lab/has >/dev/null
begin "$WORK/attach.log" "$PLATTER" --store "$STORE" --quiet attach lab/disk --nbd "$WORK/nbd.sock" --record "$WORK/trace"
attached=$SERVER
wait_for test -S "$WORK/nbd.sock"
qemu-io -r -f raw -c 'read 0 16M' "nbd+unix:///lab/disk?socket=$WORK/nbd.sock" >/dev/null
end "$attached"
platter hoard import "$WORK/trace" lab/disk >/dev/null
PLATTER_TOKEN=$(platter_json serve token add shop --role admin --images 'shop/*' | jq -r .secret)
export PLATTER_TOKEN
score=$(platter_json show lab/disk | jq -r '[.. | .score? // empty] | first')
boot_set=$(platter_json hoard show lab/disk | jq -r .boot_set)
begin "$WORK/serve.log" "$PLATTER" --store "$STORE" serve --listen "unix:$WORK/serve.sock" --listen "127.0.0.1:$port"
wait_for curl -fs --unix-socket "$WORK/serve.sock" http://origin/healthz
curl -fs --unix-socket "$WORK/serve.sock" "http://origin/api/v1/hoard/boot-sets/$boot_set" >"$WORK/boot-set"
# The pages of the two disks, from stores of their own.
print=$(openssl x509 -in "$STORE/serve-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
for disk in has lacks; do
	"$PLATTER" --server "https://127.0.0.1:$port" --fingerprint "$print" --quiet capture --raw "$WORK/$disk-longer" "shop/$disk" >/dev/null
	"$PLATTER" --store "$WORK/of-$disk" --quiet init >/dev/null
	"$PLATTER" --store "$WORK/of-$disk" --quiet capture --raw "$WORK/$disk" "$disk" >/dev/null
	begin "$WORK/serve.log" "$PLATTER" --store "$WORK/of-$disk" serve --listen "unix:$WORK/of-$disk/origin.sock"
	wait_for curl -fs --unix-socket "$WORK/of-$disk/origin.sock" http://origin/healthz
done
python3 "$(dirname "$0")/tenants.py" "$port" "$WORK/boot-set" "$score" "$boot_set" "${BENCH_REQUESTS:-3000}" "$WORK" "${BENCH_PUBLISHES:-400}"
