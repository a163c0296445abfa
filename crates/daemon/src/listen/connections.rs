//! How many connections there may be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::TURNED_AWAY_MAX;

/// Places for connections.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    /// For those that are told that there is none.
    turned_away: Arc<Semaphore>,
    count_max: usize,
}

/// What a client gets.
pub(crate) enum Place {
    Served(OwnedSemaphorePermit),
    TurnedAway(OwnedSemaphorePermit),
    /// Not even that.
    Closed,
}

impl Connections {
    pub(crate) fn new(count_max: usize) -> Self {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Self { places: Arc::new(Semaphore::new(count_max)), turned_away, count_max }
    }

    /// A place for one more.
    pub(crate) fn take(&self) -> Place {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Place::Served(place);
        }
        self.turned_away.clone().try_acquire_owned().map_or(Place::Closed, Place::TurnedAway)
    }

    /// Waits that long for all to end; gives how many have not.
    pub(crate) async fn wait_for_none(&self, time: Duration) -> usize {
        let all = self.places.acquire_many(self.count_max as u32);
        match tokio::time::timeout(time, all).await {
            Ok(_) => 0,
            Err(_) => self.count_max - self.places.available_permits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_too_many_is_told_so_and_those_after_are_closed() {
        let connections = Connections::new(2);
        let served: Vec<Place> = (0..2).map(|_| connections.take()).collect();
        assert!(served.iter().all(|place| matches!(place, Place::Served(_))));
        let told: Vec<Place> = (0..TURNED_AWAY_MAX).map(|_| connections.take()).collect();
        assert!(told.iter().all(|place| matches!(place, Place::TurnedAway(_))));
        assert!(matches!(connections.take(), Place::Closed));
        assert_eq!(connections.wait_for_none(Duration::from_millis(1)).await, 2);
        drop(served);
        assert!(matches!(connections.take(), Place::Served(_)));
        assert_eq!(connections.wait_for_none(Duration::from_secs(60)).await, 0);
    }
}
