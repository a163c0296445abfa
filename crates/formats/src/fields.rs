//! Structures of a file, read as a whole, with fields by their offsets. Errors name the structure and where it is.

use platter_image::{DiskRead, Error, IoContext, Result};

/// The bytes of a structure.
#[derive(Debug)]
pub(crate) struct Structure {
    name: &'static str,
    offset: u64,
    bytes: Vec<u8>,
}

impl Structure {
    /// Reads the `length` bytes at `offset`.
    ///
    /// # Errors
    /// `Corrupt` if they do not lie inside the file; `Io`.
    pub(crate) fn read(file: &dyn DiskRead, name: &'static str, offset: u64, length: usize) -> Result<Self> {
        let is_inside = offset.checked_add(length as u64).is_some_and(|end| end <= file.length());
        if !is_inside {
            return Err(Error::corrupt(format!(
                "{name} at offset {offset}: its {length} bytes are not inside the file of {} bytes",
                file.length()
            )));
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).context(|| format!("reading {name} at offset {offset}"))?;
        Ok(Self { name, offset, bytes })
    }

    /// An error in this structure.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format!("{} at offset {}: {what}", self.name, self.offset))
    }

    /// A part of this structure that is not supported.
    pub(crate) fn refused(&self, what: impl std::fmt::Display) -> Error {
        Error::refused(format!("{} at offset {}: {what}", self.name, self.offset))
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// `N` bytes at a place that lies in the structure.
    pub(crate) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[at..at + N]);
        array
    }

    pub(crate) fn u16_le(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(crate) fn u32_le(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64_le(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(crate) fn u32_be(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(crate) fn u64_be(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }
}
