//! Random ids of stores and packs: 128 bits, never reused, written as 32 hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a store. Every pack contains its store's id, so that a pack never counts in another store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub [u8; 16]);

/// The id of a pack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackId(pub [u8; 16]);

macro_rules! hexadecimal {
    ($name:ident) => {
        impl $name {
            /// Parses 32 lower-case hexadecimal digits.
            pub fn from_hex(text: &str) -> Option<Self> {
                let digits = text.as_bytes();
                let mut id = [0; 16];
                if digits.len() != 2 * id.len() {
                    return None;
                }
                for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
                    *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
                }
                Some(Self(id))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hexadecimal!(StoreId);
hexadecimal!(PackId);

impl Serialize for PackId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PackId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("not 32 lower-case hexadecimal digits"))
    }
}

/// Parses a hexadecimal digit. Upper case is refused: each pack has exactly one file name.
fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_one_text_form() {
        let id = PackId(std::array::from_fn(|n| n as u8 * 17));
        assert_eq!(PackId::from_hex(&id.to_string()), Some(id));
        for bad in ["", "00", &"g".repeat(32), &"A".repeat(32), &"é".repeat(16)] {
            assert_eq!(PackId::from_hex(bad), None, "{bad}");
        }
    }
}
