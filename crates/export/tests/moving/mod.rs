//! For the tests of every protocol's handover: a server that is paused, and parcels that another process receives.

use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::thread;

use platter_export::{Pause, RunEnd};
use platter_transport::Parcel;

const PARCEL_BYTES_MAX: usize = 64 << 20;

/// Orders the pause when it is dropped.
struct Ordered<'a>(&'a Pause);

impl Drop for Ordered<'_> {
    fn drop(&mut self) {
        self.0.order();
    }
}

/// Runs a server while `act` runs; then pauses it.
pub(crate) fn run_while<T>(
    run: impl FnOnce(&AtomicBool) -> RunEnd + Send,
    pause: &Pause,
    act: impl FnOnce() -> T,
) -> (RunEnd, T) {
    thread::scope(|scope| {
        let running = scope.spawn(move || run(&AtomicBool::new(false)));
        // A failing test must not leave a running server.
        let ordered = Ordered(pause);
        let done = act();
        drop(ordered);
        let end = running.join().unwrap();
        pause.lift();
        (end, done)
    })
}

/// The parcels as another process receives them. They may be larger than the socket's buffer, so sender and receiver run at the
/// same time.
pub(crate) fn through_a_socket(parcels: &[Parcel]) -> Vec<Parcel> {
    let (from, to) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| parcels.iter().for_each(|parcel| parcel.send(&from).unwrap()));
        parcels.iter().map(|_| Parcel::receive(&to, PARCEL_BYTES_MAX).unwrap()).collect()
    })
}
