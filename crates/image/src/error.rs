//! The one error type of all crates that speak of images: a kind, a context, a source.
//!
//! The kind says what the caller does next; the context says what was wrong and where, with values; the source is
//! the error underneath. `Display` shows the context only: whoever prints an error walks the sources.

use std::{error, fmt, io};

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It is not here: try elsewhere, or tell the user what exists.
    Missing,
    /// Bytes that are not what they must be: name them, never use them.
    Corrupt,
    /// The operating system failed us: out of space, I/O error, permission. The source says which.
    Io,
    /// It may work if tried again: a lock held, a peer gone.
    Transient,
    /// We will not do that: tell the user why and what would help.
    Refused,
    /// A promise inside Platter was broken.
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

    /// The word for it, wherever an error travels or is printed as JSON.
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize].1
    }

    /// The kind that such a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(kind, _)| kind)
    }
}

/// An error of kind, context and source.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

/// The result of everything that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of any kind without a source.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// Something is not here.
    pub fn missing(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Missing, context)
    }

    /// Bytes are not what they must be.
    pub fn corrupt(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, context)
    }

    /// We will not do that.
    pub fn refused(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, context)
    }

    /// It may work if tried again.
    pub fn transient(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transient, context)
    }

    /// A promise inside Platter was broken.
    pub fn bug(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Bug, context)
    }

    /// The operating system failed at `context`.
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::new(ErrorKind::Io, context).with_source(source)
    }

    /// The same error, caused by `source`.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// A wider context around this error, which becomes the source; the kind stays.
    #[must_use]
    pub fn within(self, context: impl Into<String>) -> Self {
        Self { kind: self.kind, context: context.into(), source: Some(Box::new(self)) }
    }

    /// Whether it says that what was to be read is not there or not readable, so that the rest may still be had.
    pub fn says_that_data_are_lost(&self) -> bool {
        matches!(self.kind, ErrorKind::Missing | ErrorKind::Corrupt | ErrorKind::Io)
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What it says, and what each of its sources says, down to the first cause.
    pub fn messages(&self) -> Vec<String> {
        let mut messages = vec![self.context.clone()];
        let mut source = error::Error::source(self);
        while let Some(error) = source {
            messages.push(error.to_string());
            source = error.source();
        }
        messages
    }

    /// The error that has a kind and such messages; the opposite of [`Error::messages`].
    pub fn from_messages(kind: ErrorKind, messages: Vec<String>) -> Self {
        let mut messages = messages.into_iter().rev();
        let Some(first_cause) = messages.next() else { return Self::new(kind, "an error without a word") };
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

/// Gives the errors of I/O calls a context: what was done to what, and where.
pub trait IoContext<T> {
    /// The same result, with an [`Error`] of kind [`ErrorKind::Io`].
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
    fn errors_travel_as_words() {
        for (kind, word) in ErrorKind::WORDS {
            assert_eq!((kind.as_str(), ErrorKind::from_word(word)), (word, Some(kind)));
        }
        let full = Error::io("writing a pack", io::ErrorKind::StorageFull.into()).within("capturing");
        let travelled = Error::from_messages(full.kind(), full.messages());
        assert_eq!(travelled.kind(), ErrorKind::Io);
        assert_eq!(travelled.messages(), full.messages());
        assert!(full.messages().len() >= 2);
    }
}
