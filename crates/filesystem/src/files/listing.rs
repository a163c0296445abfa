//! The names in a directory, and the files to which they refer.

use platter_image::{Error, Result};

/// The most names of one directory, and the most bytes of them, that are read: 900 MiB of memory.
const NAMES_MAX: usize = 1 << 24;
const NAME_BYTES_MAX: usize = 512 << 20;
/// The most faults of which the text is kept.
const FAULTS_MAX: usize = 32;

/// The names in a directory, sorted by bytes, without `.` and `..`. Encrypted names are in their stored form.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// All names, concatenated.
    text: Vec<u8>,
    names: Vec<Name>,
    faults: Vec<String>,
    unshown_faults: u64,
    /// Whether `.` and `..` have been seen, or are not stored.
    has_dots: [bool; 2],
}

#[derive(Clone, Copy, Debug)]
struct Name {
    inode: u64,
    start: u32,
    length: u32,
}

impl Listing {
    /// An empty listing of a directory that does not store `.` and `..`.
    pub(crate) fn without_dots() -> Self {
        Self { has_dots: [true, true], ..Self::default() }
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.text.capacity() + self.names.capacity() * size_of::<Name>()
    }

    /// The name at that index, and the number of its file.
    pub fn get(&self, place: usize) -> Option<(&[u8], u64)> {
        let name = self.names.get(place)?;
        Some((self.text_of(name), name.inode))
    }

    /// The number of the file to which a name refers.
    pub fn find(&self, name: &[u8]) -> Option<u64> {
        let place = self.names.binary_search_by(|known| self.text_of(known).cmp(name)).ok()?;
        Some(self.names[place].inode)
    }

    /// What is wrong with single names, which were left out; at most 33 sentences, of which the last counts the others.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The listing, if no name was left out.
    ///
    /// # Errors
    /// `Corrupt` with the first fault.
    pub fn complete(self) -> Result<Self> {
        match self.faults.first() {
            Some(fault) => Err(Error::corrupt(fault.clone())),
            None => Ok(self),
        }
    }

    fn text_of(&self, name: &Name) -> &[u8] {
        let start = name.start as usize;
        self.text.get(start..start + name.length as usize).unwrap_or_default()
    }

    /// Notes what is wrong with a name that is left out.
    pub(crate) fn fault(&mut self, what: String) {
        match self.faults.len() < FAULTS_MAX {
            true => self.faults.push(what),
            false => self.unshown_faults += 1,
        }
    }

    /// Adds a name and the number of its file. An impossible name is left out, as a fault; `.` and `..` may occur once.
    ///
    /// # Errors
    /// `Corrupt` if there are too many names.
    pub(crate) fn add(&mut self, name: &[u8], inode: u64) -> Result<()> {
        let dots = [&b"."[..], b".."].iter().position(|dots| *dots == name);
        if dots.is_some_and(|dots| !std::mem::replace(&mut self.has_dots[dots], true)) {
            return Ok(());
        }
        if dots.is_some() || name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            self.fault(format!("invalid file name: {:?}", String::from_utf8_lossy(name)));
            return Ok(());
        }
        if self.names.len() >= NAMES_MAX || self.text.len() >= NAME_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "the directory has more than {} names and is not read",
                self.names.len()
            )));
        }
        self.names.push(Name { inode, start: self.text.len() as u32, length: name.len() as u32 });
        self.text.extend_from_slice(name);
        Ok(())
    }

    /// Sorts the names; call it once all were added. Of a name that occurs twice, the first is kept, and the other is a fault.
    pub(crate) fn sorted(mut self) -> Self {
        let mut names = std::mem::take(&mut self.names);
        names.sort_by(|a, b| self.text_of(a).cmp(self.text_of(b)));
        let mut twice = Vec::new();
        names.dedup_by(|later, first| {
            let is_same = self.text_of(later) == self.text_of(first);
            if is_same && twice.len() < FAULTS_MAX {
                twice.push(format!(
                    "the name {:?} occurs twice",
                    String::from_utf8_lossy(self.text_of(first))
                ));
            }
            is_same
        });
        self.names = names;
        twice.into_iter().for_each(|fault| self.fault(fault));
        if self.unshown_faults > 0 {
            self.faults.push(format!("{} more names are wrong", self.unshown_faults));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_impossible_ones_are_faults() {
        let mut listing = Listing::default();
        for (name, inode) in
            [("b", 2), ("..", 9), ("a", 1), ("x/y", 3), ("", 4), ("b", 5), ("z\0", 6), ("..", 7)]
        {
            listing.add(name.as_bytes(), inode).unwrap();
        }
        let listing = listing.sorted();
        let names: Vec<_> = (0..listing.len()).filter_map(|at| listing.get(at)).collect();
        assert_eq!(names, [(&b"a"[..], 1), (b"b", 2)]);
        assert_eq!((listing.find(b"b"), listing.find(b"x/y")), (Some(2), None));
        let expected = [
            "invalid file name: \"x/y\"",
            "invalid file name: \"\"",
            "invalid file name: \"z\\0\"",
            "invalid file name: \"..\"",
            "the name \"b\" occurs twice",
        ];
        assert_eq!(listing.faults(), expected);
        assert!(listing.complete().is_err());
        let mut many = Listing::default();
        (0..100).for_each(|_| many.add(b"", 1).unwrap());
        let many = many.sorted();
        assert_eq!(
            (many.faults().len(), many.faults()[FAULTS_MAX].as_str()),
            (FAULTS_MAX + 1, "68 more names are wrong")
        );
    }
}
