//! Parsing and formatting of sizes, rates, times and addresses on the command line.

use std::time::Duration;

use platter_live::ServeAddress;

/// `400M` or `2.5G` bits per second.
pub(crate) fn bits_per_second(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.to_ascii_lowercase().trim_end_matches("bit").trim_end_matches("bps") {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(format!("unit {unit:?}: use K, M or G bits per second, such as 400M")),
    };
    let number: f64 =
        number.parse().map_err(|_| format!("invalid rate {text:?}: write it like 400M or 2.5G"))?;
    let rate = (number * factor) as u64;
    if rate < 64_000 {
        return Err(format!("{rate} bits per second is too slow: the minimum is 64K"));
    }
    Ok(rate)
}

/// `500M`, `20G`, `1T` bytes by thousands, or `20GiB` by 1024.
pub(crate) fn byte_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.to_ascii_lowercase();
    let (unit, base) = match unit.strip_suffix("ib") {
        Some(unit) => (unit, 1024_u64),
        None => (unit.strip_suffix('b').unwrap_or(&unit), 1000),
    };
    let power = match unit {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(format!("unit {unit:?}: use K, M, G or T, such as 20G, or KiB, MiB, GiB or TiB")),
    };
    let number: u64 =
        number.parse().map_err(|_| format!("invalid size {text:?}: write it like 500M or 20G"))?;
    number.checked_mul(base.pow(power)).ok_or_else(|| format!("{text:?} is too large"))
}

/// `30s`, `10m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(format!("unit {unit:?}: use s, m, h or d, such as 10m")),
    };
    let number: u64 =
        number.parse().map_err(|_| format!("invalid time {text:?}: write it like 30s or 1h"))?;
    match number.checked_mul(factor) {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is out of range: the minimum is one second")),
    }
}

/// As [`duration`], or `0`.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => duration(text),
    }
}

/// Seconds, such as `2` or `0.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(number).map_err(|_| format!("{text:?} is out of range"))
}

/// `1G` or `512M` of memory, in MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u32, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u32 = match unit {
        "" | "M" | "m" => 1,
        "G" | "g" => 1024,
        _ => return Err(format!("unit {unit:?}: use M or G, such as 512M")),
    };
    let number: u32 =
        number.parse().map_err(|_| format!("invalid size {text:?}: write it like 512M or 1G"))?;
    match number.checked_mul(factor) {
        Some(mebibytes) if (16..=1 << 20).contains(&mebibytes) => Ok(mebibytes),
        _ => Err(format!("{text:?} is out of range: 16M to 1024G")),
    }
}

/// A path, or `ADDRESS:PORT`. Text that looks like an invalid `ADDRESS:PORT` is an error, not a file name.
pub(crate) fn serve_address(text: &str) -> Result<ServeAddress, String> {
    match text.parse() {
        Ok(address) => Ok(ServeAddress::Tcp(address)),
        Err(_) if text.is_empty() => Err("expected a path or ADDRESS:PORT".into()),
        Err(_) if is_like_an_address(text) => {
            Err(format!("{text} is not a valid ADDRESS:PORT; for a socket with that name, write ./{text}"))
        }
        Err(_) => Ok(ServeAddress::Unix(text.into())),
    }
}

fn is_like_an_address(text: &str) -> bool {
    !text.contains('/')
        && text.rsplit_once(':').is_some_and(|(_, port)| port.starts_with(|c: char| c.is_ascii_digit()))
}

/// `on` or `off`, or QEMU's synonyms for them.
pub(crate) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" | "true" => Ok(true),
        "off" | "no" | "false" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// `KEY=VALUE`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no '=': write KEY=VALUE"))?;
    if key.is_empty() {
        return Err("the label has no key before '='".into());
    }
    Ok((key.into(), value.into()))
}

/// `KIND`, or `NUMBER=KIND` for a partition.
pub(crate) fn filesystem(text: &str) -> Result<(Option<u32>, String), String> {
    let (number, kind) = match text.split_once('=') {
        Some((number, kind)) => {
            let number = number.parse().map_err(|_| format!("{number:?} is no number of a partition"))?;
            (Some(number), kind)
        }
        None => (None, text),
    };
    let kinds: Vec<&str> = platter_jobs::filesystem_names().collect();
    match kinds.contains(&kind) {
        true => Ok((number, kind.to_owned())),
        false => Err(format!("{kind:?} is none of {}", kinds.join(", "))),
    }
}

/// Bytes with three digits and a decimal unit.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{number} B"),
        (_, value) if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        (_, value) if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        (_, value) => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Bytes per second.
pub(crate) fn rate(number: u64, seconds: f64) -> String {
    if seconds <= 0.0 { "-".into() } else { format!("{}/s", bytes((number as f64 / seconds) as u64)) }
}

/// `3 versions`, `1 version`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let shown: Vec<String> = [0, 999, 1000, 9_994, 99_940, 999_499, 999_500, 1 << 40].map(bytes).into();
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "9.99 kB", "99.9 kB", "999 kB", "1.00 MB", "1.10 TB"]);
    }

    #[test]
    fn byte_sizes() {
        let read = ["7", "500M", "20g", "1TB", "2GiB", "3kib"].map(|text| byte_size(text).unwrap());
        assert_eq!(read, [7, 500_000_000, 20_000_000_000, 1_000_000_000_000, 2 << 30, 3072]);
        for bad in ["", "G", "2.5G", "1X", "99999999999T", "-1"] {
            assert!(byte_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(bits_per_second("400M"), Ok(400_000_000));
        assert_eq!(bits_per_second("2.5gbit"), Ok(2_500_000_000));
        assert!(bits_per_second("10").is_err());
        assert!(bits_per_second("10X").is_err());
        assert!(bits_per_second("M").is_err());
    }

    #[test]
    fn fractions_of_seconds() {
        assert_eq!(
            (seconds("2"), seconds("0.5")),
            (Ok(Duration::from_secs(2)), Ok(Duration::from_millis(500)))
        );
        for bad in ["", "-1", "inf", "nan", "1e30", "2s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory() {
        assert_eq!((mebibytes("1G"), mebibytes("512M"), mebibytes("64")), (Ok(1024), Ok(512), Ok(64)));
        for bad in ["", "G", "1T", "8M", "9999999G"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
        }
    }
}
