//! The error type shared by all crates that handle images: kind, context and source.
//!
//! The kind tells the caller what to do next, the context what was wrong and where, with values; the source
//! is the underlying error. `Display` prints the context only: to print a whole error, walk its sources.

use std::{error, fmt, io};

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Not found: try elsewhere, or tell the user what exists.
    Missing,
    /// Bytes are not what they must be: report them, never use them.
    Corrupt,
    /// The operating system reported an error, such as no space, an I/O error or missing permission. The
    /// source tells which.
    Io,
    /// May succeed if tried again: a lock is held, a peer is gone.
    Transient,
    /// Not allowed: tell the user why and what would help.
    Refused,
    /// An invariant of Platter was broken.
    Bug,
}

impl ErrorKind {
    const WORDS: [(Self, &'static str); 6] = [
        (Self::Missing, "missing"),
        (Self::Corrupt, "corrupt"),
        (Self::Io, "io"),
        (Self::Transient, "transient"),
        (Self::Refused, "refused"),
        (Self::Bug, "bug"),
    ];

    /// The words for all kinds.
    pub fn words() -> [&'static str; 6] {
        Self::WORDS.map(|(_, word)| word)
    }

    /// The number for this kind in binary formats.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The kind with that number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::WORDS.into_iter().map(|(kind, _)| kind).find(|kind| kind.number() == number)
    }

    /// The word for this kind in API answers and JSON output.
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize].1
    }

    /// The kind with that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(kind, _)| kind)
    }
}

/// An error: kind, context and source.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

/// The result of functions that fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of any kind without a source.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// An error of kind `Missing`: something was not found.
    pub fn missing(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Missing, context)
    }

    /// An error of kind `Corrupt`: bytes are not what they must be.
    pub fn corrupt(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, context)
    }

    /// An error of kind `Refused`: the request is not allowed.
    pub fn refused(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, context)
    }

    /// An error of kind `Transient`: it may succeed if tried again.
    pub fn transient(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transient, context)
    }

    /// An error of kind `Bug`: an invariant of Platter was broken.
    pub fn bug(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Bug, context)
    }

    /// An error of kind `Io`: the operating system failed while doing `context`. If `source` only carries an [`Error`] through an
    /// I/O trait, that error's kind stays.
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        match source.downcast::<Self>() {
            Ok(carried) => carried.within(context),
            Err(source) => Self::new(ErrorKind::Io, context).with_source(source),
        }
    }

    /// Sets the error's source.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds an outer context; this error becomes its source. The kind stays.
    #[must_use]
    pub fn within(self, context: impl Into<String>) -> Self {
        Self { kind: self.kind, context: context.into(), source: Some(Box::new(self)) }
    }

    /// Whether the data is damaged or not there, and not that it could not be asked for.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind, ErrorKind::Missing | ErrorKind::Corrupt)
    }

    /// Whether the data could not be found or read; the rest of a disk may still be readable.
    pub fn is_data_loss(&self) -> bool {
        self.is_damage() || self.is_unreadable()
    }

    /// Whether the system cannot read the data: the medium failed, or its file is gone.
    pub fn is_unreadable(&self) -> bool {
        self.kind == ErrorKind::Io && !self.is_of_process()
    }

    /// Whether this process lacks permission, memory, open files or threads. That says nothing about the data: whatever was asked must fail,
    /// and must never be taken for damage.
    pub fn is_of_process(&self) -> bool {
        /// The last one: no more threads.
        const OF_PROCESS: [io::ErrorKind; 4] = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::OutOfMemory,
            io::ErrorKind::Interrupted,
            io::ErrorKind::WouldBlock,
        ];
        /// ENFILE and EMFILE: no more open files.
        const NO_FILES: [i32; 2] = [23, 24];
        let mut cause = error::Error::source(self);
        while let Some(source) = cause {
            if let Some(io) = source.downcast_ref::<io::Error>() {
                let no_files = io.raw_os_error().is_some_and(|number| NO_FILES.contains(&number));
                return OF_PROCESS.contains(&io.kind()) || no_files;
            }
            cause = source.source();
        }
        false
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The texts of the error and of all its sources, outermost first.
    pub fn messages(&self) -> Vec<String> {
        let mut messages = vec![self.context.clone()];
        let mut source = error::Error::source(self);
        while let Some(error) = source {
            messages.push(error.to_string());
            source = error.source();
        }
        messages
    }

    /// The error and its causes in one line. A cause that the text already ends with is left out.
    pub fn with_causes(&self) -> String {
        let add = |text: String, cause: String| match text.ends_with(&cause) {
            true => text,
            false => format!("{text}: {cause}"),
        };
        self.messages().into_iter().reduce(add).unwrap_or_default()
    }

    /// Rebuilds an error from its kind and texts; the inverse of [`Error::messages`].
    pub fn from_messages(kind: ErrorKind, messages: Vec<String>) -> Self {
        let mut messages = messages.into_iter().rev();
        let Some(first_cause) = messages.next() else { return Self::new(kind, "unspecified error") };
        messages
            .fold(Self::new(kind, first_cause), |cause, message| Self::new(kind, message).with_source(cause))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn error::Error + 'static))
    }
}

/// Adds a context to I/O errors: what was done to what, and where.
pub trait IoContext<T> {
    /// Turns an error into an [`Error`] with that context, as [`Error::io`] does.
    fn context(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::io(context(), source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_messages_round_trip() {
        for (kind, word) in ErrorKind::WORDS {
            assert_eq!((kind.as_str(), ErrorKind::from_word(word)), (word, Some(kind)));
        }
        let full = Error::io("writing a pack", io::ErrorKind::StorageFull.into()).within("capturing");
        let travelled = Error::from_messages(full.kind(), full.messages());
        assert_eq!(travelled.kind(), ErrorKind::Io);
        assert_eq!(travelled.messages(), full.messages());
        assert!(full.messages().len() >= 2);
    }

    #[test]
    fn what_the_process_lacks_is_no_loss_of_data() {
        let opening = |source: io::Error| Error::io("opening a pack", source).within("checking");
        // EAGAIN, ENOMEM, EACCES, ENFILE and EMFILE; then ENOENT and EIO.
        for number in [11, 12, 13, 23, 24] {
            let error = opening(io::Error::from_raw_os_error(number));
            assert_eq!((error.is_of_process(), error.is_data_loss()), (true, false), "{number}");
        }
        for number in [2, 5] {
            let error = opening(io::Error::from_raw_os_error(number));
            assert_eq!((error.is_of_process(), error.is_data_loss()), (false, true), "{number}");
        }
        assert!(Error::corrupt("a frame").is_data_loss() && !Error::transient("a lock").is_data_loss());
    }

    #[test]
    fn an_error_carried_by_an_io_error_keeps_its_kind() {
        let carried: io::Result<()> = Err(io::Error::other(Error::corrupt("bad checksum")));
        let error = carried.context(|| "reading a file".into()).unwrap_err();
        assert_eq!(
            (error.kind(), error.with_causes().as_str()),
            (ErrorKind::Corrupt, "reading a file: bad checksum")
        );
    }
}
