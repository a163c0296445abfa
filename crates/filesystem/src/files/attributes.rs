//! The extended attributes of one file, within a limit of memory.

use platter_image::{Error, Result};

use super::Attribute;

/// Longer attributes of one file are not read. Linux lists at most 64 KiB of names, and files have far less than this.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of memory of an attribute besides those of its name and its value.
const OVERHEAD: usize = 64;

/// Collects the attributes of one file. Names and values on the disk may overlap, so few blocks can state very many.
#[derive(Debug, Default)]
pub(crate) struct AttributeList {
    found: Vec<Attribute>,
    bytes: usize,
}

impl AttributeList {
    /// Adds an attribute.
    ///
    /// # Errors
    /// `Corrupt` if all of them are too long.
    pub(crate) fn add(&mut self, attribute: Attribute) -> Result<()> {
        self.check_room(&attribute.name, attribute.value.len() as u64)?;
        self.bytes += attribute.name.len() + attribute.value.len() + OVERHEAD;
        self.found.push(attribute);
        Ok(())
    }

    /// Checks whether there is room for an attribute with that name and a value of that length.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub(crate) fn check_room(&self, name: &[u8], value: u64) -> Result<()> {
        let bytes = value.saturating_add((self.bytes + name.len() + OVERHEAD) as u64);
        if bytes > BYTES_MAX as u64 {
            return Err(Error::corrupt(format!(
                "its {} first attributes take more than {BYTES_MAX} bytes and are not read",
                self.found.len() + 1
            )));
        }
        Ok(())
    }

    /// All attributes, sorted by name.
    pub(crate) fn sorted(mut self) -> Vec<Attribute> {
        self.found.sort_unstable();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &[u8], length: usize) -> Attribute {
        Attribute { name: name.to_vec(), value: vec![7; length] }
    }

    #[test]
    fn all_attributes_together_are_limited() {
        let mut list = AttributeList::default();
        let most = BYTES_MAX / 65536 - 2;
        for _ in 0..most {
            list.add(attribute(b"user.b", 65536)).unwrap();
        }
        list.add(attribute(b"user.a", 0)).unwrap();
        let error = list.add(attribute(b"user.c", 200_000)).unwrap_err().to_string();
        assert_eq!(error, "its 1024 first attributes take more than 67108864 bytes and are not read");
        assert_eq!(list.sorted()[0].name, b"user.a");
    }
}
