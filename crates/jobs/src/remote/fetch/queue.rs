//! What is wanted and not here: which ids go into the next request.
//!
//! What somebody waits for goes before what was only hinted at, and each id is in one request at a time, whoever wants
//! it. Of what was hinted at before somebody waited for it, not so much is asked for that more comes than the way holds:
//! readers in order wait for their turn, and only who reads here and there is let through at once. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use platter_image::frame::stream::REQUEST_IDS_MAX;
use platter_image::{BlockId, Kind};

/// Most ids that were hinted at and wait; what comes on top is left out, and asked for when somebody waits for it.
const HINTS_MAX: usize = 1 << 16;

/// Hints behind one that somebody waits for which go with it: what stands beside it is likely in its frame, which would come
/// twice otherwise.
const NEIGHBOURS: usize = 15;

/// A block or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) id: BlockId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Hinted,
    /// Somebody waits for what was hinted at.
    Awaited,
    /// Somebody waits for what nobody knew of, or for a page.
    Demanded,
    UnderWay,
}

/// What there is room for, beside what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    /// Only what must be had at once.
    None,
    /// Also what was hinted at, if somebody waits for it by now.
    ForHinted,
    /// Also what is only hinted at.
    ForHints,
}

/// What is wanted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    stages: HashMap<Key, Stage>,
    /// What was taken out of `stages`, or has another stage, is passed over here.
    pages: Lane,
    data: Lane,
}

#[derive(Debug, Default)]
struct Lane {
    demanded: VecDeque<BlockId>,
    awaited: VecDeque<BlockId>,
    hinted: VecDeque<BlockId>,
}

impl Queue {
    /// Somebody waits for it.
    pub(super) fn demand(&mut self, key: Key) {
        // Without pages nobody knows what else there is.
        let stage = match self.stages.get(&key) {
            Some(Stage::Awaited | Stage::Demanded | Stage::UnderWay) => return,
            Some(Stage::Hinted) if key.kind != Kind::Page => Stage::Awaited,
            Some(Stage::Hinted) | None => Stage::Demanded,
        };
        self.stages.insert(key, stage);
        self.lane(key.kind).of(stage).push_back(key.id);
    }

    /// Somebody will want it.
    pub(super) fn hint(&mut self, key: Key) {
        let waiting = self.pages.hinted.len() + self.data.hinted.len();
        if waiting < HINTS_MAX && !self.stages.contains_key(&key) {
            self.stages.insert(key, Stage::Hinted);
            self.lane(key.kind).hinted.push_back(key.id);
        }
    }

    /// Takes out what the next request asks for: what somebody waits for, and, as there is room, as much of what was hinted at
    /// as makes `ids` together. Pages first.
    pub(super) fn next(&mut self, ids: usize, room: Room) -> Option<(Kind, Vec<BlockId>)> {
        let kinds = [Kind::Page, Kind::Data];
        let ids = ids.clamp(1, REQUEST_IDS_MAX);
        for kind in kinds {
            let mut taken = self.take(kind, Stage::Demanded, REQUEST_IDS_MAX, Vec::new());
            if room >= Room::ForHinted {
                // Each comes with its neighbours.
                let awaited = (ids / (NEIGHBOURS + 1)).max(1);
                taken = self.take(kind, Stage::Awaited, taken.len() + awaited, taken);
            }
            if !taken.is_empty() {
                self.take_neighbours(kind, &mut taken);
                if room == Room::ForHints {
                    taken = self.take(kind, Stage::Hinted, ids, taken);
                }
                return Some((kind, taken));
            }
        }
        for kind in kinds.into_iter().filter(|_| room == Room::ForHints) {
            let taken = self.take(kind, Stage::Hinted, ids, Vec::new());
            if !taken.is_empty() {
                return Some((kind, taken));
            }
        }
        None
    }

    /// It came, or is known not to come.
    pub(super) fn remove(&mut self, key: Key) {
        self.stages.remove(&key);
    }

    /// A request did not bring it: it is asked for again, before others.
    pub(super) fn give_back(&mut self, key: Key, demanded: bool) {
        let Some(stage) = self.stages.get_mut(&key).filter(|stage| **stage == Stage::UnderWay) else {
            return;
        };
        *stage = if demanded { Stage::Demanded } else { Stage::Hinted };
        let stage = *stage;
        self.lane(key.kind).of(stage).push_front(key.id);
    }

    /// Forgets all that is in no request.
    pub(super) fn clear(&mut self) {
        self.stages.retain(|_, stage| *stage == Stage::UnderWay);
        (self.pages, self.data) = (Lane::default(), Lane::default());
    }

    fn lane(&mut self, kind: Kind) -> &mut Lane {
        if kind == Kind::Page { &mut self.pages } else { &mut self.data }
    }

    /// Adds what was hinted at right behind ids of `taken`.
    fn take_neighbours(&mut self, kind: Kind, taken: &mut Vec<BlockId>) {
        let lane = if kind == Kind::Page { &self.pages } else { &self.data };
        let wanted: HashSet<BlockId> = taken.iter().copied().collect();
        let mut left = 0;
        for id in &lane.hinted {
            if wanted.contains(id) {
                left = NEIGHBOURS;
            } else if left > 0 && taken.len() < REQUEST_IDS_MAX {
                left -= 1;
                if let Some(stage) =
                    self.stages.get_mut(&Key { kind, id: *id }).filter(|it| **it == Stage::Hinted)
                {
                    *stage = Stage::UnderWay;
                    taken.push(*id);
                }
            }
        }
    }

    /// Adds ids of that kind and stage to `taken` until it has `length`.
    fn take(&mut self, kind: Kind, stage: Stage, length: usize, mut taken: Vec<BlockId>) -> Vec<BlockId> {
        let lane = if kind == Kind::Page { &mut self.pages } else { &mut self.data };
        let ids = lane.of(stage);
        while taken.len() < length {
            let Some(id) = ids.pop_front() else { break };
            if let Some(found) = self.stages.get_mut(&Key { kind, id }).filter(|found| **found == stage) {
                *found = Stage::UnderWay;
                taken.push(id);
            }
        }
        taken
    }
}

impl Lane {
    /// What waits in that stage. What is under way, waits in none: it goes back as what is demanded.
    fn of(&mut self, stage: Stage) -> &mut VecDeque<BlockId> {
        match stage {
            Stage::Hinted => &mut self.hinted,
            Stage::Awaited => &mut self.awaited,
            Stage::Demanded | Stage::UnderWay => &mut self.demanded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(n: u8) -> Key {
        Key { kind: Kind::Data, id: BlockId([n; 32]) }
    }

    fn page(n: u8) -> Key {
        Key { kind: Kind::Page, id: BlockId([n; 32]) }
    }

    fn numbers(request: Option<(Kind, Vec<BlockId>)>) -> (Kind, Vec<u8>) {
        let (kind, ids) = request.unwrap();
        (kind, ids.iter().map(|id| id.0[0]).collect())
    }

    #[test]
    fn what_somebody_waits_for_goes_first_and_hints_fill_up() {
        let mut queue = Queue::default();
        (0..10).for_each(|n| queue.hint(data(n)));
        queue.demand(data(20));
        queue.demand(data(7));
        assert_eq!(numbers(queue.next(5, Room::ForHints)), (Kind::Data, vec![20, 7, 8, 9, 0]));
        assert_eq!(queue.next(5, Room::ForHinted), None);
        assert_eq!(numbers(queue.next(100, Room::ForHints)), (Kind::Data, vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(queue.next(5, Room::ForHints), None);
    }

    #[test]
    fn neighbours_of_what_somebody_waits_for_go_with_it() {
        let mut queue = Queue::default();
        (0..100).for_each(|n| queue.hint(data(n)));
        queue.demand(data(50));
        assert_eq!(numbers(queue.next(1, Room::ForHinted)), (Kind::Data, (50..66).collect()));
        assert_eq!(numbers(queue.next(60, Room::ForHints)).1[48..52], [48, 49, 66, 67]);
    }

    #[test]
    fn who_reads_in_order_waits_for_room_and_who_does_not_is_let_through() {
        let mut queue = Queue::default();
        (0..4).for_each(|n| queue.hint(data(n)));
        queue.hint(page(8));
        queue.demand(data(1));
        assert_eq!(queue.next(9, Room::None), None);
        queue.demand(data(9));
        assert_eq!(numbers(queue.next(9, Room::None)), (Kind::Data, vec![9]));
        queue.demand(page(8));
        assert_eq!(numbers(queue.next(9, Room::None)), (Kind::Page, vec![8]));
        assert_eq!(numbers(queue.next(9, Room::ForHinted)), (Kind::Data, vec![1, 2, 3]));
        assert_eq!(queue.next(9, Room::ForHinted), None);
    }

    #[test]
    fn pages_go_before_data() {
        let mut queue = Queue::default();
        queue.hint(data(1));
        queue.hint(page(2));
        queue.demand(data(3));
        assert_eq!(numbers(queue.next(9, Room::ForHints)), (Kind::Data, vec![3, 1]));
        queue.hint(data(4));
        assert_eq!(numbers(queue.next(9, Room::ForHints)), (Kind::Page, vec![2]));
        assert_eq!(numbers(queue.next(9, Room::ForHints)), (Kind::Data, vec![4]));
    }

    #[test]
    fn an_id_is_in_one_request_at_a_time() {
        let mut queue = Queue::default();
        queue.demand(data(1));
        queue.demand(data(1));
        assert_eq!(numbers(queue.next(9, Room::ForHints)), (Kind::Data, vec![1]));
        queue.demand(data(1));
        queue.hint(data(1));
        assert_eq!(queue.next(9, Room::ForHints), None);
        queue.remove(data(1));
        queue.hint(data(1));
        assert_eq!(numbers(queue.next(9, Room::ForHints)), (Kind::Data, vec![1]));
    }

    #[test]
    fn what_did_not_come_is_asked_for_again_and_first() {
        let mut queue = Queue::default();
        (1..4).for_each(|n| queue.demand(data(n)));
        assert!(queue.next(9, Room::ForHints).is_some());
        queue.demand(data(9));
        queue.give_back(data(2), true);
        queue.give_back(data(8), true);
        queue.give_back(data(3), false);
        assert_eq!(numbers(queue.next(9, Room::ForHints)), (Kind::Data, vec![2, 9, 3]));
    }

    #[test]
    fn what_came_by_another_request_is_not_asked_for() {
        let mut queue = Queue::default();
        queue.hint(data(1));
        queue.demand(data(2));
        queue.remove(data(1));
        queue.remove(data(2));
        assert_eq!(queue.next(9, Room::ForHints), None);
    }

    #[test]
    fn hints_are_bounded() {
        let mut queue = Queue::default();
        for n in 0..100_000_u32 {
            let mut id = BlockId([0; 32]);
            id.0[..4].copy_from_slice(&n.to_le_bytes());
            queue.hint(Key { kind: Kind::Data, id });
        }
        assert_eq!(queue.stages.len(), HINTS_MAX);
        assert_eq!(queue.next(usize::MAX, Room::ForHints).unwrap().1.len(), REQUEST_IDS_MAX);
        queue.clear();
        assert_eq!((queue.stages.len(), queue.next(1, Room::ForHints)), (REQUEST_IDS_MAX, None));
    }
}
