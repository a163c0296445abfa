//! Limits the payload bytes that all clients of a server have in flight.
//!
//! Owns the sum. Each client may use an eighth of the bytes that are free at that moment (a dynamic threshold, as
//! switches limit their port queues). A single client gets many, several clients get equal shares, and something is
//! always left for a new client. So a client that reads replies slowly, or not at all, slows itself down before it
//! affects others.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A client may use 1/N of the free bytes.
const PART_OF_FREE: u64 = 8;
/// The first request of a client may exceed its share, if 1/N of the total stays free for others.
const PART_KEPT: u64 = 4;
/// Interval at which a waiting thread checks whether to continue waiting.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    used: u64,
    waiting: usize,
}

/// The payload budget of a server.
pub(crate) struct Budget {
    bytes_max: u64,
    state: Mutex<State>,
    freed: Condvar,
}

/// The bytes that one client uses.
#[derive(Default)]
pub(crate) struct Account(Arc<AtomicU64>);

/// Bytes taken by a request; freed on drop.
pub(crate) struct Share {
    budget: Arc<Budget>,
    account: Arc<AtomicU64>,
    bytes: u64,
}

impl Budget {
    /// A budget of `bytes_max` for all clients together.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default(), freed: Condvar::new() })
    }

    /// Takes `bytes` for a request of the client, if permitted now.
    pub(crate) fn take(self: &Arc<Self>, account: &Account, bytes: u64) -> Option<Share> {
        self.take_in(&mut self.state.lock(), account, bytes)
    }

    /// As [`Budget::take`], but waits until the bytes are free, or `is_vain` returns true. At most `bytes_max / 2`
    /// bytes.
    pub(crate) fn wait(
        self: &Arc<Self>,
        account: &Account,
        bytes: u64,
        is_vain: impl Fn() -> bool,
    ) -> Option<Share> {
        let mut state = self.state.lock();
        state.waiting += 1;
        let mut share = self.take_in(&mut state, account, bytes);
        while share.is_none() && !is_vain() {
            self.freed.wait_for(&mut state, LOOK);
            share = self.take_in(&mut state, account, bytes);
        }
        state.waiting -= 1;
        share
    }

    fn take_in(self: &Arc<Self>, state: &mut State, account: &Account, bytes: u64) -> Option<Share> {
        let own = account.0.load(Ordering::Relaxed);
        if !may_take(self.bytes_max, state.used, own, bytes) {
            return None;
        }
        state.used += bytes;
        account.0.fetch_add(bytes, Ordering::Relaxed);
        Some(Share { budget: Arc::clone(self), account: Arc::clone(&account.0), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.fetch_sub(self.bytes, Ordering::Relaxed);
        let mut state = self.budget.state.lock();
        state.used -= self.bytes;
        if state.waiting > 0 {
            self.budget.freed.notify_all();
        }
    }
}

/// Whether a client with `own` bytes may take `bytes` more while all clients use `used` of `bytes_max`.
fn may_take(bytes_max: u64, used: u64, own: u64, bytes: u64) -> bool {
    let free = bytes_max.saturating_sub(used);
    own + bytes <= free / PART_OF_FREE || (own == 0 && used + bytes <= bytes_max - bytes_max / PART_KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MAX: u64 = 256 * MIB;

    /// The number of requests of `bytes` that each client may have in flight if none is ever finished.
    fn stuck(budget: &Arc<Budget>, clients: usize, bytes: u64) -> Vec<Share> {
        let accounts: Vec<Account> = (0..clients).map(|_| Account::default()).collect();
        let mut shares = Vec::new();
        loop {
            let before = shares.len();
            shares.extend(accounts.iter().filter_map(|account| budget.take(account, bytes)));
            if shares.len() == before {
                return shares;
            }
        }
    }

    #[test]
    fn however_many_are_stuck_one_more_has_room() {
        for clients in [1, 10, 50, 128] {
            for bytes in [4096, 64 << 10, MIB, 32 * MIB] {
                let budget = Budget::new(MAX);
                let _stuck = [stuck(&budget, clients, bytes), stuck(&budget, clients, 4096)];
                let used = budget.state.lock().used;
                assert!(used <= MAX - MIB / 2, "{clients} clients with {bytes} bytes have {used}");
                assert!(budget.take(&Account::default(), 64 << 10).is_some(), "{clients}, {bytes}");
            }
        }
    }

    #[test]
    fn one_that_is_alone_has_much_and_cannot_have_all() {
        let budget = Budget::new(MAX);
        let shares = stuck(&budget, 1, MIB);
        assert!((16..=32).contains(&shares.len()), "{}", shares.len());
        assert!(budget.take(&Account::default(), 32 * MIB).is_some(), "the largest request of another");
    }

    #[test]
    fn what_is_done_is_free_again_and_who_waits_hears_of_it() {
        let budget = Budget::new(MAX);
        let account = Account::default();
        let large = budget.take(&account, 100 * MIB).unwrap();
        assert!(budget.take(&account, 32 * MIB).is_none());
        assert!(budget.wait(&account, 32 * MIB, || true).is_none(), "in vain");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| budget.wait(&account, 32 * MIB, || false).is_some());
            drop(large);
            assert!(waiter.join().unwrap());
        });
        let state = budget.state.lock();
        assert_eq!((state.used, state.waiting, account.0.load(Ordering::Relaxed)), (0, 0, 0));
    }
}
