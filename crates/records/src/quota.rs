//! Quotas: how many bytes the images below a name may hold.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::ImageName;

/// A limit for an image and all images below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// The image, and the start of the names of those below it.
    pub prefix: ImageName,
    /// Most bytes of distinct blocks and pages, uncompressed.
    pub limit_bytes: u64,
}

impl Quota {
    /// Whether the quota counts this image.
    pub fn covers(&self, image: &ImageName) -> bool {
        let rest = image.as_str().strip_prefix(self.prefix.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "quota of {}", self.prefix)
    }
}

/// A quota, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaUse {
    /// The quota.
    #[serde(flatten)]
    pub quota: Quota,
    /// Bytes of distinct blocks and pages in the versions of these images, uncompressed.
    pub used_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_covers_an_image_and_those_below_it() {
        let quota = Quota { prefix: "lab".parse().unwrap(), limit_bytes: 1 };
        let covers = |image: &str| quota.covers(&image.parse().unwrap());
        assert!(covers("lab") && covers("lab/a") && covers("lab/a/b"));
        assert!(!covers("laboratory") && !covers("x/lab") && !covers("la"));
    }
}
