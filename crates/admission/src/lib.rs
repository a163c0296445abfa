//! Decides which connections a server keeps, so that clients that never identify themselves cannot take all
//! places.
//!
//! A connection starts as a *stranger* and becomes *known* once the client has identified itself, for which
//! it has limited time. Strangers and known connections have separate places. When all strangers' places are
//! taken, a new stranger is still admitted: it displaces the oldest stranger of the address with the most
//! strangers. So connections opened to fill the places displace each other, while clients from other
//! addresses, and those that identify themselves at once, are served.
//!
//! It is a crate of its own because it is pure: it receives the time and returns which connection the caller
//! must close.

mod source;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

pub use source::Source;

/// The limits of a server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most strangers; at least 1.
    pub strangers_max: usize,
    /// The most strangers from one source; at least 1.
    pub strangers_of_one_max: usize,
    /// How long a connection may stay a stranger.
    pub stranger_time: Duration,
    /// The most known connections.
    pub known_max: usize,
    /// The most known connections from one source.
    pub known_of_one_max: usize,
}

/// The id of a connection's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// An admitted stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Its place.
    pub ticket: Ticket,
    /// The stranger that it displaced, which the caller must close. Its place is already free.
    pub displaced: Option<Ticket>,
}

/// Why a stranger cannot become known yet. It remains a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All places are taken; their number.
    Full(usize),
    /// All places of its source are taken; their number.
    FullForSource(usize),
    /// It has lost its place: it was displaced or too slow.
    Gone,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(count) => write!(f, "too many connections: all {count} places are taken"),
            Self::FullForSource(count) => {
                write!(f, "too many connections from your address: all {count} places are taken")
            }
            Self::Gone => f.write_str("the client did not identify itself in time"),
        }
    }
}

/// The connections of a server.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    next: u64,
    places: BTreeMap<Ticket, Slot>,
    sources: HashMap<Source, OfSource>,
    strangers: usize,
}

#[derive(Debug)]
struct Slot {
    source: Source,
    /// When its time as a stranger ends; `None` once it is known.
    stranger_until: Option<Instant>,
}

/// The connections of one source.
#[derive(Debug, Default)]
struct OfSource {
    /// Oldest first.
    strangers: VecDeque<Ticket>,
    known: usize,
}

impl Admission {
    /// Starts without connections.
    pub fn new(limits: Limits) -> Self {
        Self { limits, next: 0, places: BTreeMap::new(), sources: HashMap::new(), strangers: 0 }
    }

    /// Admits a stranger.
    pub fn enter(&mut self, source: Source, now: Instant) -> Entered {
        let displaced = self.displaced_by(source);
        if let Some(ticket) = displaced {
            self.leave(ticket);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let until = now + self.limits.stranger_time;
        self.places.insert(ticket, Slot { source, stranger_until: Some(until) });
        self.sources.entry(source).or_default().strangers.push_back(ticket);
        self.strangers += 1;
        Entered { ticket, displaced }
    }

    /// Returns whether a stranger may become known now.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn may_become_known(&self, ticket: Ticket) -> Result<(), Refusal> {
        let place = self.places.get(&ticket).ok_or(Refusal::Gone)?;
        if place.stranger_until.is_none() {
            return Ok(());
        }
        let of_source = self.known_of(place.source);
        if of_source >= self.limits.known_of_one_max {
            return Err(Refusal::FullForSource(of_source));
        }
        let known = self.known();
        if known >= self.limits.known_max {
            return Err(Refusal::Full(known));
        }
        Ok(())
    }

    /// Makes a stranger known. A known connection stays known.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn make_known(&mut self, ticket: Ticket) -> Result<(), Refusal> {
        self.may_become_known(ticket)?;
        let place = self.places.get_mut(&ticket).ok_or(Refusal::Gone)?;
        if place.stranger_until.is_none() {
            return Ok(());
        }
        let of_source = self.sources.entry(place.source).or_default();
        place.stranger_until = None;
        of_source.strangers.retain(|other| *other != ticket);
        of_source.known += 1;
        self.strangers -= 1;
        Ok(())
    }

    /// Whether the caller must close the connection, because its time as a stranger is over or it has lost
    /// its place. Its place is freed.
    pub fn is_over(&mut self, ticket: Ticket, now: Instant) -> bool {
        match self.places.get(&ticket) {
            None => true,
            Some(Slot { stranger_until: Some(until), .. }) if *until <= now => {
                self.leave(ticket);
                true
            }
            Some(_) => false,
        }
    }

    /// Frees the places of all strangers whose time is over. The caller must close these connections.
    pub fn expire(&mut self, now: Instant) -> Vec<Ticket> {
        let is_over = |place: &Slot| place.stranger_until.is_some_and(|until| until <= now);
        let over: Vec<Ticket> =
            self.places.iter().filter(|(_, place)| is_over(place)).map(|(ticket, _)| *ticket).collect();
        over.iter().for_each(|ticket| self.leave(*ticket));
        over
    }

    /// Frees the place of a connection that has ended.
    pub fn leave(&mut self, ticket: Ticket) {
        let Some(place) = self.places.remove(&ticket) else { return };
        let Some(of_source) = self.sources.get_mut(&place.source) else { return };
        if place.stranger_until.is_some() {
            of_source.strangers.retain(|other| *other != ticket);
            self.strangers -= 1;
        } else {
            of_source.known -= 1;
        }
        if of_source.strangers.is_empty() && of_source.known == 0 {
            self.sources.remove(&place.source);
        }
    }

    /// Number of known connections from one source.
    pub fn known_of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |of_source| of_source.known)
    }

    /// Number of strangers.
    pub fn strangers(&self) -> usize {
        self.strangers
    }

    /// Number of known connections.
    pub fn known(&self) -> usize {
        self.places.len() - self.strangers
    }

    /// The stranger that a new one from that source displaces, if any.
    fn displaced_by(&self, source: Source) -> Option<Ticket> {
        let own = self.sources.get(&source).map(|of_source| &of_source.strangers);
        if let Some(own) = own.filter(|own| own.len() >= self.limits.strangers_of_one_max) {
            return own.front().copied();
        }
        if self.strangers < self.limits.strangers_max {
            return None;
        }
        let crowds = self.sources.values().filter_map(|of_source| {
            let oldest = *of_source.strangers.front()?;
            Some((of_source.strangers.len(), std::cmp::Reverse(oldest)))
        });
        crowds.max().map(|(_, oldest)| oldest.0)
    }
}

#[cfg(test)]
mod tests;
