#!/usr/bin/env bash
# tests/nbd-interop.sh: the NBD server with the programs of libnbd and nbdkit: every command of libnbd, with nbdsh;
# nbdkit as a proxy, whose filters check and disturb the traffic; copies while the server is killed, which nbdkit's
# retry filter hides.
. "$(dirname "$0")/lib.sh"

SERVER=
PROXY=
SOCKET=$WORK/nbd.sock
DISK_BYTES=$((16 << 20))
suite_cleanup() {
	[ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null
	[ -z "$PROXY" ] || kill "$PROXY" 2>/dev/null
}
serve() { start_server --nbd "$SOCKET" "$@"; }
uri() { echo "nbd+unix:///lab/disk?socket=$SOCKET"; }
# proxy FILTER...: runs nbdkit in front of the server, with these filters and arguments
proxy() {
	local tries=0
	rm -f "$WORK/proxy.sock"
	nbdkit -f -U "$WORK/proxy.sock" "$@" >"$WORK/proxy.log" 2>&1 &
	PROXY=$!
	until [ -S "$WORK/proxy.sock" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || return 1
		sleep 0.05
	done
}
end_proxy() {
	kill "$PROXY"
	wait "$PROXY" 2>/dev/null || true
	PROXY=
}
PROXIED="nbd+unix:///?socket=$WORK/proxy.sock"
# Arguments by which nbdkit finds the server.
US=(nbd "socket=$SOCKET" export=lab/disk)
# Debian's module works only with Debian's Python.
export PATH=/usr/bin:$PATH
shell() { timeout 60 nbdsh --base-allocation -u "$(uri)" -c "$1"; }

random "$DISK_BYTES" disk >"$WORK/disk"
platter init
platter capture "$WORK/disk" lab/disk >/dev/null
check "a disk is served for writing" serve --write lab/disk

# Goes through libnbd's interface like its own tests.
check "flags match a writable disk" shell '
for flag in (h.can_flush, h.can_fua, h.can_trim, h.can_zero, h.can_fast_zero, h.can_df, h.can_cache, h.can_multi_conn):
    assert flag(), flag
assert not h.is_read_only() and not h.is_rotational() and h.get_structured_replies_negotiated()
assert h.get_size() == 16 << 20 and h.get_protocol() == "newstyle-fixed"
assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20 and h.get_block_size(nbd.SIZE_MINIMUM) == 1'
check "reads and writes at any offset and length" shell '
for offset, length in ((0, 1), (511, 2), (4095, 4098), (1000000, 123457)):
    data = bytes((offset + i) % 251 for i in range(length))
    h.pwrite(data, offset, nbd.CMD_FLAG_FUA)
    assert h.pread(length, offset) == data
h.flush()'
check "structured reads report their pieces, or one piece on request" shell '
h.zero(1 << 20, 4 << 20)
seen = []
buffer = h.pread_structured(3 << 20, 3 << 20, lambda data, offset, status, error: seen.append((offset, len(data), status)))
assert sum(length for _, length, _ in seen) == 3 << 20 and nbd.READ_HOLE in [status for _, _, status in seen], seen
assert buffer[1 << 20:2 << 20] == bytes(1 << 20)
seen.clear()
h.pread_structured(3 << 20, 3 << 20, lambda data, offset, status, error: seen.append(status), nbd.CMD_FLAG_DF)
assert seen == [nbd.READ_DATA], seen'
check "block status reports zeros, or one extent on request" shell '
def status(*arguments):
    told = []
    h.block_status(*arguments[:2], lambda context, offset, entries, error: told.append((context, list(entries))), *arguments[2:])
    return told
assert status(1 << 20, 4 << 20) == [("base:allocation", [1 << 20, 3])]
h.trim(1 << 20, 6 << 20)
[(_, entries)] = status(6 << 20, 3 << 20, nbd.CMD_FLAG_REQ_ONE)
assert len(entries) == 2, entries
assert h.pread(1 << 20, 6 << 20) == bytes(1 << 20)
h.zero(4096, 8 << 20, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
h.cache(1 << 20, 0)'
check "64 concurrent requests with libnbd's event loop" shell '
h.pwrite(b"\x07" * (4 << 20), 8 << 20)
buffers = [nbd.Buffer(65536) for _ in range(64)]
done = []
for n, buffer in enumerate(buffers):
    h.aio_pread(buffer, (8 << 20) + n * 65536, lambda error: done.append(error.value) or 1)
while len(done) < 64:
    h.poll(-1)
assert done == [0] * 64, done
assert all(buffer.to_bytearray() == b"\x07" * 65536 for buffer in buffers)'
check "out-of-range requests are refused, and the connection continues" shell '
h.set_strict_mode(0)
def error_of(call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        return error.errno
assert error_of(h.pread, 512, 16 << 20) == "EINVAL"
assert error_of(h.pwrite, b"x", 16 << 20) == "ENOSPC"
assert error_of(h.zero, 2, (16 << 20) - 1) == "ENOSPC"
assert h.pread(1, (16 << 20) - 1)'
check "an export is chosen by list and by option" timeout 60 nbdsh -c "
h.set_opt_mode(True)
h.connect_unix('$SOCKET')
names = []
h.opt_list(lambda name, description: names.append(name))
assert names == ['lab/disk'], names
h.set_export_name('other')
try:
    h.opt_info()
    assert False
except nbd.Error:
    pass
h.set_export_name('lab/disk')
h.opt_info()
assert h.get_size() == $DISK_BYTES
h.opt_go()
h.pread(512, 0)
h.shutdown()"
check "a client that refuses structured replies is served" timeout 60 nbdsh -c "
h.set_request_structured_replies(False)
h.set_handshake_flags(0)
h.connect_uri('$(uri)')
assert not h.get_structured_replies_negotiated() and len(h.pread(1 << 20, 3)) == 1 << 20"

# nbdkit in between. Its filters are the tests: checkwrite and log see what arrives, blocksize splits requests.
check "nbdkit connects" proxy -r "${US[@]}"
check "and delivers the same bytes" sh -c 'nbdcopy "$1" "$2/a" && nbdcopy "$3" "$2/b" && cmp "$2/a" "$2/b"' - "$PROXIED" "$WORK" "$(uri)"
end_proxy
check "nbdkit with checkwrite connects" proxy --filter=checkwrite "${US[@]}"
check "and finds all bytes unchanged" timeout 60 nbdcopy "$WORK/a" "$PROXIED"
end_proxy
check "nbdkit with blocksize and delay connects" proxy --filter=blocksize --filter=delay "${US[@]}" shared=false maxdata=64K delay-read=1ms
check "and eight connections copy the same bytes" sh -c 'timeout 60 nbdcopy -C 8 "$1" "$2/c" && cmp "$2/a" "$2/c"' - "$PROXIED" "$WORK"
end_proxy
check "nbdkit passes the map on without extentlist" proxy -r "${US[@]}"
check "as the server reports it" sh -c 'nbdinfo --map "$1" >"$3/m1"; nbdinfo --map "$2" >"$3/m2"; cmp "$3/m1" "$3/m2" && test -s "$3/m1"' - "$(uri)" "$PROXIED" "$WORK"
end_proxy
stop TERM

# The server is killed during copies: nbdkit's retry filter reconnects.
check "the disk is served again" serve --write lab/disk
check "nbdkit with retry connects" proxy --filter=retry --filter=rate "${US[@]}" retries=20 retry-delay=1 retry-exponential=no rate=64M
timeout 120 nbdcopy "$PROXIED" "$WORK/d" >"$LOG" 2>&1 &
copy=$!
for _ in 1 2 3; do
	sleep 0.4
	stop KILL
	serve --write lab/disk
done
check "a copy survives three kills" wait "$copy"
check "and has the right bytes" cmp "$WORK/a" "$WORK/d"
end_proxy
stop TERM
platter discard lab/disk >/dev/null 2>&1 || true
check "the store is sound" platter check --read-data
finish
