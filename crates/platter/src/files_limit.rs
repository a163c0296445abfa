//! The limit of open files, for commands with a connection for each of many clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to this number, as far as the system allows. Returns the new limit.
pub(crate) fn raise(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum })
        .map_or(current, |()| raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(300), maximum: limit.maximum }).unwrap();
        assert_eq!(raise(400), 400);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(400));
        assert_eq!(raise(200), 400);
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}
