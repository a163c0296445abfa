//! A target that nothing speaks against, and whether what it holds may be overwritten.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use platter_image::{Error, Result};

use super::contents::TargetContents;
use super::decide::{self, Agreement, Step};
use crate::device::Identity;

/// Shows what a target holds, and gives whether it may be overwritten.
type Ask = dyn Fn(&TargetContents) -> Result<bool> + Send + Sync;

/// How the user agrees to what is overwritten.
#[derive(Clone)]
pub enum Consent {
    /// He did beforehand.
    Given,
    /// He is asked.
    Ask(Arc<Ask>),
    /// Nobody can be asked: nothing is overwritten.
    Absent,
    /// The command makes new files: nothing is overwritten, and nobody asked.
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

/// A target that may be written. While this lives, the device is held open: its number cannot become another one's.
#[derive(Debug)]
pub struct CheckedTarget {
    pub(super) identity: Identity,
    pub(super) is_exclusive: bool,
    pub(super) contents: Option<TargetContents>,
    pub(super) _held: Option<File>,
}

impl CheckedTarget {
    /// What was checked: to be compared with what is opened.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether nobody uses it, so that it is opened exclusively. False only where the user insists on a device in use.
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// What it holds; `None` if there is nothing that could be lost.
    pub fn contents(&self) -> Option<&TargetContents> {
        self.contents.as_ref()
    }

    /// Makes sure that what it holds may be overwritten.
    ///
    /// # Errors
    /// `Refused` when nobody can be asked, or the answer is no; what asking says.
    pub fn agree(&self, consent: &Consent) -> Result<()> {
        let step = decide::overwrite(self.contents.is_some(), consent.agreement());
        match (step, &self.contents, consent) {
            (Step::Refuse, Some(contents), Consent::NewFile) => Err(Error::refused(format!(
                "{} is there already, and only a new file is written: choose another name, or remove it",
                contents.path.display()
            ))),
            (Step::Refuse, Some(contents), _) => Err(Error::refused(format!(
                "nobody can be asked whether this may be overwritten; say --yes to overwrite it: {}",
                contents.to_string().replace("\n ", ";")
            ))),
            (Step::Ask, Some(contents), Consent::Ask(ask)) => match ask(contents)? {
                true => Ok(()),
                false => Err(Error::refused(format!(
                    "{} is as it was: nobody agreed that it is overwritten",
                    contents.path.display()
                ))),
            },
            _ => Ok(()),
        }
    }
}
