//! Decides which connections a server keeps, so that clients who never prove who they are cannot take all places.
//!
//! A connection begins as a *stranger* and becomes *known* when it proves who it is; it has a limited time for that.
//! Strangers and known connections have separate places. When the strangers' places are full, a new stranger is still let
//! in, and the oldest stranger of the address that holds most of them is closed: connections that somebody opened to fill
//! the places displace each other, while a client from elsewhere, or one that proves who it is at once, is served.
//!
//! A crate of its own, because it is pure: it is given the time and says which connection to close. The caller closes it.

mod source;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

pub use source::Source;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Strangers; at least 1.
    pub strangers_max: usize,
    /// Strangers from one source; at least 1.
    pub strangers_of_one_max: usize,
    /// Time for a stranger to become known.
    pub stranger_time: Duration,
    /// Known connections.
    pub known_max: usize,
    /// Known connections from one source.
    pub known_of_one_max: usize,
}

/// A connection's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A stranger that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Its place.
    pub ticket: Ticket,
    /// The stranger that has to go for it: its place is free already.
    pub displaced: Option<Ticket>,
}

/// Why a stranger cannot become known. It is a stranger still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All places are taken: so many.
    Full(usize),
    /// All places of its source are taken: so many.
    FullForSource(usize),
    /// It has no place any more: it had to go.
    Gone,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(count) => write!(f, "there are {count} connections already"),
            Self::FullForSource(count) => {
                write!(f, "there are {count} connections from your address already")
            }
            Self::Gone => f.write_str("the connection took too long to show who it is"),
        }
    }
}

/// The connections of a server.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    next: u64,
    places: BTreeMap<Ticket, Place>,
    sources: HashMap<Source, OfSource>,
    strangers: usize,
}

#[derive(Debug)]
struct Place {
    source: Source,
    /// Until when it may stay a stranger; `None` once it is known.
    stranger_until: Option<Instant>,
}

/// The connections of one source.
#[derive(Debug, Default)]
struct OfSource {
    /// The oldest first.
    strangers: VecDeque<Ticket>,
    known: usize,
}

impl Admission {
    /// No connections yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, next: 0, places: BTreeMap::new(), sources: HashMap::new(), strangers: 0 }
    }

    /// Lets a stranger in.
    pub fn enter(&mut self, source: Source, now: Instant) -> Entered {
        let displaced = self.displaced_by(source);
        if let Some(ticket) = displaced {
            self.leave(ticket);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let until = now + self.limits.stranger_time;
        self.places.insert(ticket, Place { source, stranger_until: Some(until) });
        self.sources.entry(source).or_default().strangers.push_back(ticket);
        self.strangers += 1;
        Entered { ticket, displaced }
    }

    /// A stranger has proven who it is. Who is known already stays so.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn make_known(&mut self, ticket: Ticket) -> Result<(), Refusal> {
        let known = self.known();
        let place = self.places.get_mut(&ticket).ok_or(Refusal::Gone)?;
        if place.stranger_until.is_none() {
            return Ok(());
        }
        let of_source = self.sources.entry(place.source).or_default();
        if of_source.known >= self.limits.known_of_one_max {
            return Err(Refusal::FullForSource(of_source.known));
        }
        if known >= self.limits.known_max {
            return Err(Refusal::Full(known));
        }
        place.stranger_until = None;
        of_source.strangers.retain(|other| *other != ticket);
        of_source.known += 1;
        self.strangers -= 1;
        Ok(())
    }

    /// Whether a stranger's time is over, or it has no place any more: then it has to go. Its place is free.
    pub fn is_over(&mut self, ticket: Ticket, now: Instant) -> bool {
        match self.places.get(&ticket) {
            None => true,
            Some(Place { stranger_until: Some(until), .. }) if *until <= now => {
                self.leave(ticket);
                true
            }
            Some(_) => false,
        }
    }

    /// The strangers whose time is over: they have to go, and their places are free.
    pub fn expire(&mut self, now: Instant) -> Vec<Ticket> {
        let is_over = |place: &Place| place.stranger_until.is_some_and(|until| until <= now);
        let over: Vec<Ticket> =
            self.places.iter().filter(|(_, place)| is_over(place)).map(|(ticket, _)| *ticket).collect();
        over.iter().for_each(|ticket| self.leave(*ticket));
        over
    }

    /// A connection has ended.
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

    /// Number of strangers.
    pub fn strangers(&self) -> usize {
        self.strangers
    }

    /// Number of known connections.
    pub fn known(&self) -> usize {
        self.places.len() - self.strangers
    }

    /// The stranger that has to go when another one comes from that source.
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
