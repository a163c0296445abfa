//! A target without objections, and the consent to overwrite its contents.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use platter_image::{Error, Result};

use super::contents::TargetContents;
use super::decide::{self, Agreement, Step};
use crate::device::Identity;

/// Shows the contents of a target, and returns whether they may be overwritten.
type Ask = dyn Fn(&TargetContents) -> Result<bool> + Send + Sync;

/// How the user consents to overwriting.
#[derive(Clone)]
pub enum Consent {
    /// Consent was given beforehand.
    Given,
    /// The user is asked.
    Ask(Arc<Ask>),
    /// No one can be asked: nothing is overwritten.
    Absent,
    /// The command creates new files: nothing is overwritten, and no one is asked.
    NewFile,
}

impl Consent {
    fn agreement(&self) -> Agreement {
        match self {
            Self::Given => Agreement::Given,
            Self::Ask(_) => Agreement::Askable,
            Self::Absent | Self::NewFile => Agreement::Absent,
        }
    }
}

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.agreement().fmt(f)
    }
}

/// A target that may be written. While this exists, the device is held open, so that its number cannot be
/// reassigned.
#[derive(Debug)]
pub struct CheckedTarget {
    pub(super) identity: Identity,
    pub(super) is_exclusive: bool,
    pub(super) contents: Option<TargetContents>,
    pub(super) _held: Option<File>,
}

impl CheckedTarget {
    /// The checked device or file, for comparison with the opened one.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether no one uses it, so that it is opened exclusively. False only if the user insists on a device
    /// in use.
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// Its contents; `None` if nothing could be lost.
    pub fn contents(&self) -> Option<&TargetContents> {
        self.contents.as_ref()
    }

    /// Makes sure that its contents may be overwritten.
    ///
    /// # Errors
    /// `Refused` when no one can be asked, or the answer is no; errors of asking.
    pub fn agree(&self, consent: &Consent) -> Result<()> {
        let step = decide::overwrite(self.contents.is_some(), consent.agreement());
        match (step, &self.contents, consent) {
            (Step::Refuse, Some(contents), Consent::NewFile) => Err(Error::refused(format!(
                "{} already exists, but only a new file is written: choose another name, or remove it",
                contents.path.display()
            ))),
            (Step::Refuse, Some(contents), _) => Err(Error::refused(format!(
                "consent is needed, but no terminal is available for the question; use --yes to overwrite: {}",
                contents.to_string().replace("\n ", ";")
            ))),
            (Step::Ask, Some(contents), Consent::Ask(ask)) => match ask(contents)? {
                true => Ok(()),
                false => Err(Error::refused(format!(
                    "{} is unchanged: overwriting was not confirmed",
                    contents.path.display()
                ))),
            },
            _ => Ok(()),
        }
    }
}
