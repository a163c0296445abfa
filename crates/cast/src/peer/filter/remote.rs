//! The reader's side of a filter: a peer's filter, built from pieces and changes.
//!
//! Owns the checks: a filter grows only as its pieces arrive and never past its limit, changes must continue exactly the
//! present version, and no layer may claim more than an honest one can.

use platter_image::{BlockId, Error, Result};

use super::changes::FilterChanges;
use super::layer::{FILTER_BYTES_MAX, LAYERS_MAX, Layer, LayerSize};
use super::{FilterVersion, key_of};

/// Maximum bytes of a filter in one message.
pub const PIECE_BYTES_MAX: usize = 64 << 10;

/// A piece of a whole filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPiece {
    /// The owner's salt.
    pub salt: u64,
    /// The filter's version. All pieces have the same generation; the additions of the first piece count.
    pub version: FilterVersion,
    /// The filter's layers: 1 to [`LAYERS_MAX`].
    pub layers: Vec<LayerSize>,
    /// Offset of these bytes in the layers' bits, one layer after another.
    pub offset: u32,
    /// The bits: at most [`PIECE_BYTES_MAX`] bytes.
    pub bytes: Vec<u8>,
}

impl FilterPiece {
    /// Returns the bytes of the whole filter, if its layers are possible.
    fn total(&self) -> Option<u64> {
        let possible =
            (1..=LAYERS_MAX).contains(&self.layers.len()) && self.layers.iter().all(LayerSize::is_possible);
        let total: u64 = self.layers.iter().map(LayerSize::bytes).sum();
        (possible && total <= FILTER_BYTES_MAX).then_some(total)
    }
}

/// A complete filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whole {
    salt: u64,
    version: FilterVersion,
    layers: Vec<Layer>,
}

/// A peer's filter. Until the first one is complete, it claims no blocks.
#[derive(Clone, Debug, Default)]
pub struct RemoteFilter {
    whole: Option<Whole>,
    /// The first piece of the next filter, with all bytes received so far.
    incoming: Option<FilterPiece>,
}

impl RemoteFilter {
    /// Returns the version of the complete filter.
    pub fn version(&self) -> Option<FilterVersion> {
        self.whole.as_ref().map(|whole| whole.version)
    }

    /// Returns whether the peer claims to hold a block. The claim can be wrong.
    pub fn contains(&self, id: &BlockId) -> bool {
        self.whole.as_ref().is_some_and(|whole| {
            let key = key_of(whole.salt, id) as u32;
            whole.layers.iter().any(|layer| layer.contains(key))
        })
    }

    /// Adds a piece. Returns whether it completes a filter.
    ///
    /// # Errors
    /// `Corrupt`: it does not fit, is too large, or claims too much.
    pub fn handle_piece(&mut self, piece: FilterPiece) -> Result<bool> {
        let total = piece.total().ok_or_else(|| Error::corrupt("a filter has impossible layers"))?;
        if piece.bytes.is_empty() || piece.bytes.len() > PIECE_BYTES_MAX {
            return Err(Error::corrupt(format!("a piece of a filter has {} bytes", piece.bytes.len())));
        }
        let incoming = match self.incoming.take() {
            // A filter may start over before it was complete.
            _ if piece.offset == 0 => piece,
            Some(mut before) if continues(&before, &piece) => {
                before.bytes.extend_from_slice(&piece.bytes);
                before
            }
            _ => {
                return Err(Error::corrupt(format!("unexpected piece of a filter at byte {}", piece.offset)));
            }
        };
        let here = incoming.bytes.len() as u64;
        if here > total {
            return Err(Error::corrupt(format!("a filter of {total} bytes has {here} bytes of pieces")));
        }
        if here < total {
            self.incoming = Some(incoming);
            return Ok(false);
        }
        self.whole = Some(assemble(&incoming)?);
        Ok(true)
    }

    /// Adds changes.
    ///
    /// # Errors
    /// `Corrupt`: they do not continue the present version, or exceed a layer's capacity.
    pub fn handle_changes(&mut self, changes: &FilterChanges) -> Result<()> {
        let misfit = || Error::corrupt("changes do not continue the present version of the filter");
        let whole = self.whole.as_mut().ok_or_else(misfit)?;
        if (FilterVersion { generation: changes.generation, additions: changes.from }) != whole.version {
            return Err(misfit());
        }
        if changes.opens > 0 {
            let size = LayerSize { capacity: changes.opens, blocks: 0 };
            let bytes: u64 = whole.layers.iter().map(|layer| layer.size.bytes()).sum();
            let fits = size.is_possible() && bytes + size.bytes() <= FILTER_BYTES_MAX;
            // An honest owner opens no layer while the last one has room. So memory grows only with received keys.
            let is_due = whole.layers.last().is_some_and(Layer::is_full);
            if !fits || !is_due || whole.layers.len() == LAYERS_MAX {
                return Err(Error::corrupt(format!("a layer of {} blocks may not be opened", changes.opens)));
            }
            whole.layers.push(Layer::new(changes.opens));
        }
        let layer = whole.layers.last_mut().ok_or_else(misfit)?;
        let room = (layer.size.capacity - layer.size.blocks) as usize;
        let additions = whole.version.additions.checked_add(changes.keys.len() as u32);
        let (true, Some(additions)) = (changes.keys.len() <= room, additions) else {
            return Err(Error::corrupt(format!(
                "changes add {} blocks to a layer with room for {room}",
                changes.keys.len()
            )));
        };
        changes.keys.iter().for_each(|key| layer.insert(*key));
        whole.version.additions = additions;
        Ok(())
    }
}

/// Returns whether a piece directly follows the previous ones.
fn continues(before: &FilterPiece, piece: &FilterPiece) -> bool {
    let capacities = |piece: &FilterPiece| piece.layers.iter().map(|size| size.capacity).collect::<Vec<_>>();
    before.salt == piece.salt
        && before.version.generation == piece.version.generation
        && before.bytes.len() == piece.offset as usize
        && capacities(before) == capacities(piece)
}

fn assemble(piece: &FilterPiece) -> Result<Whole> {
    let (mut rest, mut layers) = (piece.bytes.as_slice(), Vec::new());
    for size in &piece.layers {
        let (bits, behind) = rest.split_at_checked(size.bytes() as usize).unwrap_or((rest, &[]));
        let layer = Layer::from_bytes(*size, bits);
        layers.push(layer.ok_or_else(|| Error::corrupt("a filter claims too many blocks"))?);
        rest = behind;
    }
    Ok(Whole { salt: piece.salt, version: piece.version, layers })
}
