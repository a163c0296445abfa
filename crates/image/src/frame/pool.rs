//! Idle decoders, so that not every frame needs a new zstd context and new buffers.

use std::fmt;

use parking_lot::Mutex;

use super::decode::FrameDecoder;
use crate::Result;

/// Maximum number of idle decoders in a pool.
const IDLE_MAX: usize = 16;

/// Decoders that many threads share. It grows to as many as decoded at once, up to a limit.
#[derive(Default)]
pub struct DecoderPool(Mutex<Vec<FrameDecoder>>);

impl DecoderPool {
    /// Runs `decode` with an idle decoder, or a new one if none is idle.
    ///
    /// # Errors
    /// Those of `decode`; `Bug` when zstd cannot allocate memory.
    pub fn with<T>(&self, decode: impl FnOnce(&mut FrameDecoder) -> Result<T>) -> Result<T> {
        let idle = self.0.lock().pop();
        let mut decoder = idle.map_or_else(FrameDecoder::new, Ok)?;
        let decoded = decode(&mut decoder);
        let mut idle = self.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(decoder);
        }
        decoded
    }
}

impl fmt::Debug for DecoderPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} idle decoders", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_are_reused_after_errors_too_and_a_nested_call_gets_another() {
        let pool = DecoderPool::default();
        let failed: Result<()> = pool.with(|_| Err(crate::Error::corrupt("a frame")));
        assert!(failed.is_err() && pool.0.lock().len() == 1);
        let idle_inside = pool.with(|_| pool.with(|_| Ok(pool.0.lock().len()))).unwrap();
        assert_eq!(idle_inside, 0);
        assert_eq!(pool.0.lock().len(), 2);
    }

    #[test]
    fn no_more_than_the_limit_stay() {
        fn nested(pool: &DecoderPool, depth: usize) -> Result<()> {
            pool.with(|_| if depth == 0 { Ok(()) } else { nested(pool, depth - 1) })
        }
        let pool = DecoderPool::default();
        nested(&pool, IDLE_MAX + 3).unwrap();
        assert_eq!(pool.0.lock().len(), IDLE_MAX);
    }
}
