//! The limit of open files, for servers with a connection for each of many clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit to `wanted`, as far as the system allows; never lowers it. Returns the limit now.
pub fn raise_files_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let Some(raised) = raised(current, limit.maximum, wanted) else { return current };
    setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum })
        .map_or(current, |()| raised)
}

/// The new limit; `None` if the current one stays. No `maximum` means no limit.
fn raised(current: u64, maximum: Option<u64>, wanted: u64) -> Option<u64> {
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    (raised > current).then_some(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_allowed_and_never_lowered() {
        assert_eq!(raised(1_024, Some(524_288), 4_608), Some(4_608));
        assert_eq!(raised(1_024, None, 4_608), Some(4_608));
        assert_eq!(raised(1_024, Some(2_048), 4_608), Some(2_048));
        assert_eq!(raised(1_024, Some(1_024), 4_608), None);
        assert_eq!(raised(4_608, Some(524_288), 4_608), None);
        assert_eq!(raised(u64::MAX, None, 4_608), None);
    }

    /// Only reads: the limit is that of all tests of this process.
    #[test]
    fn a_limit_that_suffices_stays() {
        let before = getrlimit(Resource::Nofile);
        assert_eq!(raise_files_limit(1), before.current.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile), before);
    }
}
