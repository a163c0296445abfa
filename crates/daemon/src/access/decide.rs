//! The one function that decides who may use which endpoint. Pure, and tested as a table.
//!
//! Must never ask the store: if the existence of an image changed the decision, the response would reveal it.

use platter_api::{Endpoint, Scope};
use platter_records::ImageName;

use super::Principal;

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    /// The client is not authenticated.
    Unknown,
    /// The role or the restriction to some images does not allow this. Reveals nothing about existing images.
    Forbidden,
    /// The image does not exist for this principal, whether it exists or not.
    NotThere,
}

/// Decides whether `who` may use endpoint `what`. `image` is the image concerned, or `None` while it is not yet known:
/// such a verdict is the first of two.
pub(crate) fn decide(who: Option<&Principal>, what: Endpoint, image: Option<&ImageName>) -> Verdict {
    let Some(role) = what.role() else { return Verdict::Allow };
    let Some(who) = who else { return Verdict::Unknown };
    let is_hidden = match (what.scope(), image) {
        (Scope::Image, Some(image)) => !who.patterns.matches(image),
        (Scope::Tree, Some(image)) => !who.patterns.matches_tree(image),
        _ => false,
    };
    if is_hidden {
        Verdict::NotThere
    } else if who.role < role || (what.scope() == Scope::Everything && !who.reads_everything()) {
        Verdict::Forbidden
    } else {
        Verdict::Allow
    }
}

#[cfg(test)]
mod tests {
    use platter_api::Role;

    use super::*;
    use crate::access::Patterns;

    fn who(role: Role, patterns: &[&str]) -> Principal {
        let patterns = Patterns(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect());
        Principal { id: "t".into(), name: String::new(), role, patterns, quota_bytes: None }
    }

    /// For each endpoint: the verdicts for the images `lab/a` and `other/a`, and before the image is known. Columns:
    /// the roles read, write, admin for `lab/*`; then the same for `*`. A allow, F forbidden, N not there.
    const TABLE: [(Endpoint, &str, &str, &str); 54] = [
        (Endpoint::Health, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Metrics, "FFF AAA", "FFF AAA", "FFF AAA"),
        (Endpoint::OpenApi, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Store, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::StoreKeys, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Images, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Versions, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::Resolve, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::Partitions, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::Files, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::FileContents, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::Frames, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::Nodes, "FFF AAA", "FFF AAA", "FFF AAA"),
        (Endpoint::ReportNode, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Events, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::BeginUpload, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::Need, "FAA FAA", "FAA FAA", "FAA FAA"),
        (Endpoint::UploadFrames, "FAA FAA", "FAA FAA", "FAA FAA"),
        (Endpoint::PublishUpload, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::ImportUpload, "FFA FFA", "NNN FFA", "FFA FFA"),
        (Endpoint::EndUpload, "FAA FAA", "FAA FAA", "FAA FAA"),
        (Endpoint::EditLocks, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::TakeEditLock, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::ReleaseEditLock, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::Clone, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::Forget, "FFA FFA", "NNN FFA", "FFA FFA"),
        (Endpoint::Rename, "FFA FFA", "NNN FFA", "FFA FFA"),
        (Endpoint::Sign, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::Protect, "FFA FFA", "NNN FFA", "FFA FFA"),
        (Endpoint::ProtectedVersions, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Quotas, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::SetQuota, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::Changes, "FFA FFA", "FFA FFA", "FFA FFA"),
        (Endpoint::Hoard, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::HoardChanges, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::BootSet, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::RecordBootSet, "FAA FAA", "NNN FAA", "FAA FAA"),
        (Endpoint::UnregisterBootSet, "FFA FFA", "NNN FFA", "FFA FFA"),
        (Endpoint::AccessTokens, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::AddAccessToken, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::RemoveAccessToken, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::Growth, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Costs, "FFF AAA", "FFF AAA", "FFF AAA"),
        (Endpoint::Disks, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::Casts, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::AskForCast, "AAA AAA", "NNN AAA", "AAA AAA"),
        (Endpoint::AskForHoardCast, "AAA AAA", "AAA AAA", "AAA AAA"),
        (Endpoint::TellOfCast, "FFA FFA", "NNN FFA", "FFA FFA"),
        (Endpoint::Collect, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::Standing, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::Fence, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::Replica, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::Followers, "FFF FFA", "FFF FFA", "FFF FFA"),
        (Endpoint::RemoveFollower, "FFF FFA", "FFF FFA", "FFF FFA"),
    ];

    #[test]
    fn every_role_and_pattern_at_every_endpoint() {
        let ours: ImageName = "lab/a".parse().unwrap();
        let theirs: ImageName = "other/a".parse().unwrap();
        for (endpoint, (what, own, other, early)) in Endpoint::ALL.into_iter().zip(TABLE) {
            assert_eq!(endpoint, what);
            for (image, expected) in [(Some(&ours), own), (Some(&theirs), other), (None, early)] {
                let mut decided = String::new();
                for pattern in ["lab/*", "*"] {
                    for role in [Role::Read, Role::Write, Role::Admin] {
                        decided.push(match decide(Some(&who(role, &[pattern])), what, image) {
                            Verdict::Allow => 'A',
                            Verdict::Forbidden => 'F',
                            Verdict::NotThere => 'N',
                            Verdict::Unknown => 'U',
                        });
                    }
                    decided.push(' ');
                }
                assert_eq!(decided.trim(), expected, "{what:?} of {image:?}");
                let unknown = if what == Endpoint::Health { Verdict::Allow } else { Verdict::Unknown };
                assert_eq!(decide(None, what, image), unknown);
            }
        }
    }

    /// A token for one image may not rename it, because that moves all images below it as well. A token without
    /// patterns may do nothing.
    #[test]
    fn patterns_of_one_image_and_of_none() {
        let image: ImageName = "lab/a".parse().unwrap();
        let one = who(Role::Admin, &["lab/a"]);
        assert_eq!(decide(Some(&one), Endpoint::Rename, Some(&image)), Verdict::NotThere);
        assert_eq!(decide(Some(&one), Endpoint::Forget, Some(&image)), Verdict::Allow);
        let none = who(Role::Admin, &[]);
        assert_eq!(decide(Some(&none), Endpoint::Versions, Some(&image)), Verdict::NotThere);
    }

    #[test]
    fn every_endpoint_has_a_route_of_its_own() {
        let mut routes: Vec<_> = Endpoint::ALL.iter().map(|endpoint| endpoint.route()).collect();
        routes.sort_unstable();
        routes.dedup();
        assert_eq!(routes.len(), Endpoint::ALL.len());
    }
}
