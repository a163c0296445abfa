#!/usr/bin/env python3
"""Reads and writes logical volumes without device-mapper, and changes the metadata of LVM.

    lvm_volume.py put GROUP/VOLUME FILE      writes FILE to the start of the volume
    lvm_volume.py get GROUP/VOLUME FILE      writes the volume to FILE
    lvm_volume.py wipe GROUP/VOLUME FILE     writes FILE over the whole volume, again and again
    lvm_volume.py edit DEVICE OLD NEW        replaces OLD in the metadata of a physical volume, and corrects the checksums
    lvm_volume.py damage DEVICE OLD NEW      the same, but the checksums become wrong
    lvm_volume.py move DEVICE OFFSET         moves the metadata of a physical volume to this place in its first area

The places of a volume are those that LVM's own commands print; where stripes lie in a segment is defined by dm-stripe: one
stripe in each place in turn. Devices are found by the environment's LVM_SYSTEM_DIR.
"""

import json
import struct
import subprocess
import sys


def report(kind, *arguments):
    command = ["lvm", *arguments, "--driverloaded", "n", "--reportformat", "json", "--units", "b", "--nosuffix"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return [row for part in json.loads(out)["report"] for row in part[kind]]


def pieces(volume):
    """Yields device, offset on the device and length for every piece of the volume, in order."""
    starts = {row["pv_name"]: int(row["pe_start"]) for row in report("pv", "pvs", "-o", "pv_name,pe_start")}
    fields = "vg_extent_size,seg_start_pe,seg_pe_ranges,stripe_size,seg_size"
    rows = report("seg", "lvs", "--segments", "-o", fields, volume)
    if not rows:
        sys.exit(f"there is no volume {volume}")
    for row in sorted(rows, key=lambda row: int(row["seg_start_pe"])):
        extent = int(row["vg_extent_size"])
        places = []
        for part in row["seg_pe_ranges"].split():
            device, extents = part.rsplit(":", 1)
            places.append((device, starts[device] + int(extents.split("-")[0]) * extent))
        stripe = int(row["stripe_size"]) if len(places) > 1 else int(row["seg_size"])
        for number in range(int(row["seg_size"]) // stripe):
            device, offset = places[number % len(places)]
            yield device, offset + number // len(places) * stripe, stripe


def transfer(action, volume, path):
    devices = {}

    def device(name):
        if name not in devices:
            devices[name] = open(name, "r+b")
        return devices[name]

    with open(path, "wb" if action == "get" else "rb") as file:
        for name, offset, length in pieces(volume):
            device(name).seek(offset)
            if action == "get":
                file.write(device(name).read(length))
                continue
            data = file.read(length)
            while action == "wipe" and len(data) < length:
                file.seek(0)
                data += file.read(length - len(data))
            device(name).write(data)
            if len(data) < length:
                break
    for file in devices.values():
        file.close()


def checksum(data):
    crc = 0xF597A6CF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc


def edit(path, old, new, is_damage):
    with open(path, "r+b") as device:
        device.seek(4096)
        header = bytearray(device.read(512))
        offset, length = struct.unpack_from("<QQ", header, 40)
        device.seek(4096 + offset)
        text = device.read(length)
        if old.encode() not in text:
            sys.exit(f"{path}: its metadata does not contain {old!r}")
        text = text.replace(old.encode(), new.encode())
        device.seek(4096 + offset)
        device.write(text)
        if is_damage:
            return
        struct.pack_into("<QI", header, 48, len(text), checksum(text))
        struct.pack_into("<I", header, 0, checksum(header[4:]))
        device.seek(4096)
        device.write(header)


def move(path, place):
    with open(path, "r+b") as device:
        device.seek(4096)
        header = bytearray(device.read(512))
        offset, length = struct.unpack_from("<QQ", header, 40)
        device.seek(4096 + offset)
        text = device.read(length)
        device.seek(4096 + offset)
        device.write(bytes(length))
        device.seek(place)
        device.write(text)
        struct.pack_into("<Q", header, 40, place - 4096)
        struct.pack_into("<I", header, 0, checksum(header[4:]))
        device.seek(4096)
        device.write(header)


def main():
    action, place, *rest = sys.argv[1:]
    if action == "move":
        move(place, int(rest[0]))
    elif action in ("put", "get", "wipe"):
        transfer(action, place, *rest)
    else:
        edit(place, *rest, action == "damage")


main()
