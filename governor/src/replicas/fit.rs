//! Two numbers that serve two wishes, within bounds, ratio and budget.

use super::{Bounds, Budget, Pool, Settings, Why};

/// Prefill pods to decode pods, each bound as a pair of both: (1, 4) is one for four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The fewest prefill pods.
    pub min: (u32, u32),
    /// The most prefill pods.
    pub max: (u32, u32),
}

impl Ratio {
    /// Fewest prefill pods for so many decode pods.
    fn least_prefill(self, decode: u32) -> u32 {
        divided_up(decode, self.min.0, self.min.1)
    }

    /// Fewest decode pods for so many prefill pods.
    fn least_decode(self, prefill: u32) -> u32 {
        divided_up(prefill, self.max.1, self.max.0)
    }

    fn holds(self, prefill: u32, decode: u32) -> bool {
        prefill >= self.least_prefill(decode) && decode >= self.least_decode(prefill)
    }
}

fn divided_up(count: u32, by: u32, of: u32) -> u32 {
    let product = u64::from(count) * u64::from(by);
    u32::try_from(product.div_ceil(u64::from(of.max(1)))).unwrap_or(u32::MAX)
}

/// The pair that serves both wishes best, and what keeps it from serving them wholly; of prefill and decode, as all pairs
/// here. What the cluster is known to have no place for is not asked for.
pub(super) fn fit(
    settings: &Settings,
    replicas: [u32; 2],
    wishes: [u32; 2],
    places: [Option<u32>; 2],
) -> ([u32; 2], Why) {
    let fixed = Bounds {
        min: replicas[0],
        max: replicas[0],
    };
    let bounds = [settings.prefill.unwrap_or(fixed), settings.decode];
    let ratio = settings.ratio.filter(|_| settings.prefill.is_some());
    let mut pair = [0, 1].map(|pool| wishes[pool].max(bounds[pool].min));
    if let Some(ratio) = ratio {
        // A wish is not cut while the other pool can grow along.
        pair[1] = pair[1].max(ratio.least_decode(pair[0]));
        pair[0] = pair[0].max(ratio.least_prefill(pair[1]));
    }
    let wished = pair;
    let mut why = Why::Fits;
    for pool in 0..2 {
        if pair[pool] > bounds[pool].max {
            (pair[pool], why) = (bounds[pool].max, Why::MaxReplicas);
        }
        let places = places[pool].map_or(u32::MAX, |places| places.max(bounds[pool].min));
        if pair[pool] > places {
            (pair[pool], why) = (places, Why::Unschedulable);
        }
    }
    let fits = within(pair, bounds, ratio, settings.budget, wished);
    if fits != pair && why == Why::Fits {
        let over = settings.budget.is_some_and(|budget| budget.is_over(pair));
        why = if over { Why::GpuBudget } else { Why::Ratio };
    }
    (fits, why)
}

/// From the pair that there is to the next: fewer pods at once, more as far as ratio and free GPUs let them. What drains
/// still holds its GPUs. Whether something waits for some.
pub(super) fn step(settings: &Settings, pools: [&Pool; 2], mut next: [u32; 2]) -> ([u32; 2], bool) {
    let before = pools.map(|pool| pool.replicas);
    let mut waits = false;
    if let Some(budget) = settings.budget {
        (next, waits) = free(budget, pools, next);
    }
    let ratio = settings.ratio.filter(|_| settings.prefill.is_some());
    if let Some(ratio) = ratio {
        // Of a pool that goes and one that stays, the first waits; of two that grow, the one that is ahead.
        let least = [ratio.least_prefill(next[1]), ratio.least_decode(next[0])];
        for pool in 0..2 {
            if next[pool] < before[pool] {
                next[pool] = next[pool].max(least[pool].min(before[pool]));
            }
        }
        while next[0] > before[0] && next[1] < ratio.least_decode(next[0]) {
            next[0] -= 1;
        }
        while next[1] > before[1] && next[0] < ratio.least_prefill(next[1]) {
            next[1] -= 1;
        }
    }
    (next, waits)
}

impl Budget {
    fn of(self, [prefill, decode]: [u32; 2]) -> u64 {
        u64::from(prefill) * u64::from(self.prefill) + u64::from(decode) * u64::from(self.decode)
    }

    fn is_over(self, pair: [u32; 2]) -> bool {
        self.of(pair) > u64::from(self.gpus)
    }
}

/// Takes pods away, each time from the pool that is then less short of its wish, until ratio and budget hold.
fn within(
    mut pair: [u32; 2],
    bounds: [Bounds; 2],
    ratio: Option<Ratio>,
    budget: Option<Budget>,
    wished: [u32; 2],
) -> [u32; 2] {
    let short = |pair: [u32; 2], pool: usize| {
        f64::from(wished[pool]) / f64::from(pair[pool].saturating_sub(1)).max(0.5)
    };
    loop {
        let over = budget.is_some_and(|budget| budget.is_over(pair));
        let pool = match ratio.filter(|ratio| !ratio.holds(pair[0], pair[1])) {
            Some(ratio) if pair[0] < ratio.least_prefill(pair[1]) => 1,
            Some(_) => 0,
            None if !over => return pair,
            None if pair[0] <= bounds[0].min => 1,
            None if pair[1] <= bounds[1].min => 0,
            None => usize::from(short(pair, 1) < short(pair, 0)),
        };
        // At the floor there is nothing to take: a floor that no ratio or budget allows for is the spec's own contradiction.
        if pair[pool] <= bounds[pool].min {
            return pair;
        }
        pair[pool] -= 1;
    }
}

/// More pods only as far as their GPUs are free. Whether something waits.
fn free(budget: Budget, pools: [&Pool; 2], wanted: [u32; 2]) -> ([u32; 2], bool) {
    let gpus = [budget.prefill, budget.decode];
    let replicas = [pools[0].replicas, pools[1].replicas];
    // What is asked for and what is held, whichever is more: a pod that is yet to be made will hold its GPUs too.
    let held: u64 = (0..2)
        .map(|pool| {
            let kept = replicas[pool].min(wanted[pool]).max(pools[pool].holding);
            u64::from(kept) * u64::from(gpus[pool])
        })
        .sum();
    let mut left = u64::from(budget.gpus).saturating_sub(held);
    let mut next = wanted;
    let mut waits = false;
    // Decode first: a request that is being answered is nearer to its end.
    for pool in [1, 0] {
        if wanted[pool] <= replicas[pool] {
            continue;
        }
        let more = wanted[pool] - replicas[pool];
        let fits = left
            .checked_div(u64::from(gpus[pool]))
            .map_or(more, |fits| u32::try_from(fits).unwrap_or(u32::MAX));
        let granted = more.min(fits);
        left -= u64::from(granted) * u64::from(gpus[pool]);
        waits |= granted < more;
        next[pool] = replicas[pool] + granted;
    }
    (next, waits)
}
