//! How the casts of one machine share its rate.
//!
//! Owns the decision only: it keeps no state. The shares together must never exceed the total.

/// A cast that uses at least this percentage of its share would use more.
const BUSY_PERCENT: u64 = 80;
/// How much more than it used last a cast may use, in percent, so that it can speed up.
const GROWTH_PERCENT: u64 = 25;
/// What an idle cast may use, as a part of the total, so that it can start.
const IDLE_PART: u64 = 20;

/// Returns the rate that a cast can use if it used `used` of its `share` until now, in bits per second. `total` is the rate of all
/// casts together.
pub fn demand(total: u64, share: u64, used: u64) -> u64 {
    if u128::from(used) * 100 >= u128::from(share) * u128::from(BUSY_PERCENT) {
        return total;
    }
    let more = u128::from(used) * u128::from(100 + GROWTH_PERCENT) / 100;
    u64::try_from(more).unwrap_or(u64::MAX).max(total / IDLE_PART).min(total)
}

/// Divides a rate among casts by what they can use: equally, but none gets more than its demand while another lacks some. What
/// nobody needs is divided equally.
pub fn shares(total: u64, demands: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|index| demands[*index]);
    let mut shares = vec![0; demands.len()];
    let (mut left, mut open) = (total, demands.len() as u64);
    for index in order {
        shares[index] = demands[index].min(left / open);
        left -= shares[index];
        open -= 1;
    }
    let extra = left.checked_div(demands.len() as u64).unwrap_or(0);
    shares.iter_mut().for_each(|share| *share += extra);
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn busy_casts_get_equal_shares_and_the_rest_of_the_idle_ones() {
        for (demands, expected) in [
            (&[][..], &[][..]),
            (&[100], &[100]),
            (&[0], &[100]),
            (&[100, 100, 100, 100], &[25, 25, 25, 25]),
            (&[10, 100, 100], &[10, 45, 45]),
            (&[100, 30, 10], &[60, 30, 10]),
            (&[10, 20], &[45, 55]),
        ] {
            assert_eq!(shares(100, demands), expected, "{demands:?}");
        }
    }

    #[test]
    fn a_cast_that_uses_its_share_demands_more() {
        assert_eq!(demand(1000, 500, 400), 1000);
        assert_eq!(demand(1000, 500, 200), 250);
        assert_eq!(demand(1000, 500, 0), 50);
        assert_eq!(demand(1000, 0, 0), 1000);
        assert_eq!(demand(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    }

    /// Two casts: one can use everything, the other begins idle and then can, too.
    #[test]
    fn shares_become_equal_within_a_few_steps() {
        let (total, mut now) = (1000, vec![1000, 0]);
        now = shares(total, &[demand(total, now[0], now[0]), 0]);
        for _ in 0..3 {
            let wanted: Vec<u64> = now.iter().map(|share| demand(total, *share, *share)).collect();
            now = shares(total, &wanted);
        }
        assert_eq!(now, [500, 500]);
        let wanted = [demand(total, 500, 500), demand(total, 500, 0)];
        assert_eq!(shares(total, &wanted), [950, 50]);
    }

    proptest! {
        #[test]
        fn never_more_than_the_total(total: u64, demands in proptest::collection::vec(any::<u64>(), 0..20)) {
            let found = shares(total, &demands);
            let sum: u128 = found.iter().copied().map(u128::from).sum();
            prop_assert!(sum <= u128::from(total));
            // Whoever gets less than its demand gets at least as much as everybody else, but for what nobody needed.
            for (share, demand) in found.iter().zip(&demands) {
                let is_short = share < demand;
                prop_assert!(!is_short || found.iter().all(|other| *other <= share.saturating_add(1)));
            }
        }
    }
}
