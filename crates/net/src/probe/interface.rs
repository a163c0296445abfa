//! The name of the interface that has an address.

use std::net::Ipv4Addr;

/// Returns the interface whose own network has the address, according to the kernel's routes.
pub(super) fn name_of(address: Ipv4Addr) -> Option<String> {
    if address.is_loopback() {
        return Some("lo".into());
    }
    in_routes(&std::fs::read_to_string("/proc/net/route").ok()?, address)
}

/// Of `/proc/net/route`: a line for each route, its numbers in hexadecimal as they lie in memory.
fn in_routes(routes: &str, address: Ipv4Addr) -> Option<String> {
    let number = u32::from_ne_bytes(address.octets());
    let direct = routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hex = |field: usize| u32::from_str_radix(fields.get(field)?, 16).ok();
        let (network, gateway, mask) = (hex(1)?, hex(2)?, hex(7)?);
        (gateway == 0 && mask != 0 && number & mask == network).then(|| (mask.count_ones(), fields[0]))
    });
    direct.max_by_key(|(bits, _)| *bits).map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_narrowest_network_names_the_interface() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            wide\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n\
            eth1\t00004E0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let name = |text: &str| in_routes(routes, text.parse().unwrap());
        assert_eq!(name("10.78.0.5").as_deref(), Some("eth1"));
        assert_eq!(name("10.9.0.5").as_deref(), Some("wide"));
        assert_eq!(name("192.168.0.5"), None);
    }
}
