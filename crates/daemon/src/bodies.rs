//! The memory for bodies of requests. Each client has a share of it, so that one that states long bodies and sends them slowly
//! stops only its own requests. Clients of the unix socket have memory of their own: they manage the origin.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Principal;
use crate::config::{BODIES_KIB_MAX, BODIES_KIB_OF_ONE};

/// The memory, in permits of 1 KiB.
pub(crate) struct Bodies {
    /// For all access tokens together.
    of_tokens: Arc<Semaphore>,
    /// For each client, by the id of its access token; empty for the unix socket. Dropped when nobody uses it.
    of_one: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// The memory of one body, until it is dropped.
pub(crate) struct BodyMemory {
    _of_one: (OwnedSemaphorePermit, Arc<Semaphore>),
    _of_tokens: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(crate) fn new() -> Self {
        let of_tokens = Arc::new(Semaphore::new(BODIES_KIB_MAX - BODIES_KIB_OF_ONE));
        Self { of_tokens, of_one: Mutex::default() }
    }

    /// Waits for memory for a body of that many KiB, at most [`BODIES_KIB_OF_ONE`].
    pub(crate) async fn take(&self, who: &Principal, kib: u32) -> Option<BodyMemory> {
        let share = self.share_of(&who.id);
        let own = Arc::clone(&share).acquire_many_owned(kib).await.ok()?;
        let of_tokens = match who.id.is_empty() {
            true => None,
            false => Some(Arc::clone(&self.of_tokens).acquire_many_owned(kib).await.ok()?),
        };
        Some(BodyMemory { _of_one: (own, share), _of_tokens: of_tokens })
    }

    fn share_of(&self, id: &str) -> Arc<Semaphore> {
        let mut of_one = self.of_one.lock();
        if let Some(share) = of_one.get(id).and_then(Weak::upgrade) {
            return share;
        }
        of_one.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(BODIES_KIB_OF_ONE));
        of_one.insert(id.to_owned(), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platter_api::Role;
    use tokio::time::timeout;

    use super::*;
    use crate::access::Patterns;

    fn who(id: &str) -> Principal {
        Principal {
            id: id.into(),
            name: String::new(),
            role: Role::Write,
            patterns: Patterns(Vec::new()),
            quota_bytes: None,
        }
    }

    #[tokio::test]
    async fn a_client_that_holds_its_share_stops_only_itself() {
        let bodies = Bodies::new();
        let whole = BODIES_KIB_OF_ONE as u32;
        let held = bodies.take(&who("a"), whole).await.unwrap();
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, bodies.take(&who("a"), 1)).await.is_err(), "its share is in use");
        assert!(bodies.take(&who("b"), whole).await.is_some());
        drop(held);
        assert!(bodies.take(&who("a"), whole).await.is_some());
    }

    #[tokio::test]
    async fn all_tokens_together_leave_the_unix_socket_its_own() {
        let bodies = Bodies::new();
        let whole = BODIES_KIB_OF_ONE as u32;
        let mut held = Vec::new();
        for number in 0..BODIES_KIB_MAX / BODIES_KIB_OF_ONE - 1 {
            held.push(bodies.take(&who(&number.to_string()), whole).await.unwrap());
        }
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, bodies.take(&who("another"), whole)).await.is_err());
        assert!(bodies.take(&Principal::of_unix_socket(), whole).await.is_some());
    }
}
