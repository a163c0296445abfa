//! The last two stages: compresses frames in parallel, and appends them in the order in which they were
//! filled.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, Sender};
use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder};
use platter_image::{FrameStore, PinSet, Result};

use super::assemble::InFlight;

/// A frame that accepts no more blocks.
pub(super) struct Full {
    /// Its position among all frames, from 0.
    pub(super) number: u64,
    pub(super) frame: FrameBuilder,
}

/// Counts of the data added to the store.
#[derive(Default)]
pub(super) struct Appended {
    /// Stored bytes.
    pub(super) stored: u64,
    pub(super) frames: u64,
}

/// Encodes frames until there are no more.
pub(super) fn encode_frames(
    level: i32,
    full: &Receiver<Full>,
    encoded: &Sender<(u64, EncodedFrame)>,
) -> Result<()> {
    let mut compressor = Compressor::new(level)?;
    for Full { number, frame } in full {
        if encoded.send((number, frame.encode(&mut compressor)?)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Appends frames in order until there are no more.
pub(super) fn append_frames<S: FrameStore>(
    store: &S,
    in_flight: &InFlight,
    encoded: Receiver<(u64, EncodedFrame)>,
) -> Result<(Appended, PinSet)> {
    let (mut early, mut next) = (BTreeMap::new(), 0);
    let (mut appended, mut pins) = (Appended::default(), PinSet::default());
    for (number, frame) in encoded {
        early.insert(number, frame);
        while let Some(frame) = early.remove(&next) {
            pins.insert(store.append(&frame)?);
            let mut in_flight = in_flight.lock();
            for block in &frame.blocks {
                in_flight.remove(&block.id);
            }
            appended.stored += frame.stored.len() as u64;
            appended.frames += 1;
            next += 1;
        }
    }
    Ok((appended, pins))
}
