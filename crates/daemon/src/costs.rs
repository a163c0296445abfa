//! What each image costs, as counted last. Counting walks all recipes, so it happens only on request, once at a time, and only if
//! something has changed since.

use parking_lot::Mutex;
use platter_api::CostsReply;
use platter_image::Result;
use platter_records::ImageCosts;

use crate::config::COUNTS_WAITING_MAX;
use crate::origin::Origin;
use crate::pool::Pool;

/// The costs that were counted last, and the one thread that counts.
#[derive(Debug)]
pub(crate) struct Costs {
    last: Mutex<Option<ImageCosts>>,
    pub(crate) pool: Pool,
}

impl Default for Costs {
    fn default() -> Self {
        Self { last: Mutex::default(), pool: Pool::new(1, COUNTS_WAITING_MAX) }
    }
}

impl Origin {
    /// Returns the costs that were counted last.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(crate) fn known_costs(&self) -> Result<CostsReply> {
        Ok(CostsReply { last_change: self.store.last_change()?, costs: self.costs.last.lock().clone() })
    }

    /// Counts the costs again if something has changed. Runs in the pool of `Costs`: whoever waited there gets the same result.
    ///
    /// # Errors
    /// As `Store::image_costs`.
    pub(crate) fn count_costs(&self) -> Result<CostsReply> {
        let known = self.known_costs()?;
        if known.costs.as_ref().is_some_and(|costs| costs.change == known.last_change) {
            return Ok(known);
        }
        let costs = self.store.image_costs()?;
        *self.costs.last.lock() = Some(costs.clone());
        Ok(CostsReply { last_change: self.store.last_change()?, costs: Some(costs) })
    }
}
