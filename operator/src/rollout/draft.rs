//! Which pods can go, found by taking them away one after the other.

use std::collections::BTreeMap;

use super::{Pool, Standing, Wanted, Working, World, count};
use crate::build::names::Role;
use crate::scaling::drain::PodView;

/// A world from which pods are taken one after the other.
pub(super) struct Draft<'a> {
    world: &'a World,
    /// Of each role's pools, the pods that stay: those that would go first come last.
    staying: [Vec<Vec<Option<&'a PodView>>>; 2],
}

impl<'a> Draft<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        let staying = Role::ALL.map(|role| world.role(role).pools.iter().map(staying).collect());
        Self { world, staying }
    }

    fn of_role(&self, role: Role) -> impl Iterator<Item = (&'a Pool, &Vec<Option<&'a PodView>>)> {
        let [prefill, decode] = &self.staying;
        let staying = match role {
            Role::Prefill => prefill,
            Role::Decode => decode,
        };
        self.world.role(role).pools.iter().zip(staying)
    }

    pub(super) fn working(&self) -> Working {
        let mut by_generation: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
        let mut answering = 0;
        let alone_is_enough = self.world.prefill.target.replicas == 0;
        for (place, role) in Role::ALL.into_iter().enumerate() {
            for (pool, staying) in self.of_role(role) {
                for pod in staying.iter().flatten() {
                    let works = pod.standing == Standing::Works
                        || alone_is_enough && pod.standing == Standing::Alone;
                    let counts = by_generation.entry(&pool.generation).or_default();
                    if works && let Some(count) = counts.get_mut(place) {
                        *count += 1;
                    }
                    answering += u32::from(role == Role::Decode && pod.standing > Standing::Idle);
                }
            }
        }
        let mut working = Working {
            answering,
            ..Working::default()
        };
        for [prefill, decode] in by_generation.into_values() {
            if decode > 0 {
                working.prefill += prefill;
            }
            if prefill > 0 || alone_is_enough {
                working.decode += decode;
            }
        }
        working
    }

    /// Takes away the pod of an older revision that is worth least, where what is left is enough.
    pub(super) fn remove_one(&mut self) -> bool {
        let before = self.working();
        let mut candidates = Vec::new();
        // Decode pods first: a prefill pod is of use as long as they are there.
        for role in [Role::Decode, Role::Prefill] {
            let target = &self.world.role(role).target.revision;
            for (place, (pool, staying)) in self.of_role(role).enumerate() {
                if pool.revision != *target
                    && let Some(victim) = staying.last()
                {
                    let standing = victim.map_or(Standing::Idle, |pod| pod.standing);
                    candidates.push((standing, role, place));
                }
            }
        }
        candidates.sort_by_key(|(standing, ..)| *standing);
        candidates
            .into_iter()
            .any(|(standing, role, place)| self.try_removing(standing, role, place, before))
    }

    fn try_removing(
        &mut self,
        standing: Standing,
        role: Role,
        place: usize,
        before: Working,
    ) -> bool {
        let keep = self.world.limits.keep && self.world.role(role).target.replicas > 0;
        if standing == Standing::Unknown && keep {
            return false;
        }
        if role == Role::Prefill && self.world.limits.keep && self.is_last_of_use(place) {
            return false;
        }
        let Some(pool) = self.pool_mut(role, place) else {
            return false;
        };
        let Some(taken) = pool.pop() else {
            return false;
        };
        if self.is_enough(before) {
            return true;
        }
        if let Some(pool) = self.pool_mut(role, place) {
            pool.push(taken);
        }
        false
    }

    fn pool_mut(&mut self, role: Role, place: usize) -> Option<&mut Vec<Option<&'a PodView>>> {
        let [prefill, decode] = &mut self.staying;
        match role {
            Role::Prefill => prefill.get_mut(place),
            Role::Decode => decode.get_mut(place),
        }
    }

    /// Whether the next prefill pod of this pool is the last of its generation, and decode pods of it are still there.
    fn is_last_of_use(&self, place: usize) -> bool {
        let Some((pool, staying)) = self.of_role(Role::Prefill).nth(place) else {
            return false;
        };
        if staying
            .last()
            .is_none_or(|pod| pod.is_none_or(|pod| pod.standing != Standing::Works))
        {
            return false;
        }
        let same = |other: &Pool| other.generation == pool.generation;
        let serving = self.of_role(Role::Prefill).filter(|(pool, _)| same(pool));
        let serving = serving
            .flat_map(|(_, staying)| staying.iter().flatten())
            .filter(|pod| pod.standing == Standing::Works);
        let decode = self.world.decode.pools.iter().filter(|pool| same(pool));
        let used = decode
            .into_iter()
            .any(|pool| pool.ending > 0 || pool.pods.iter().any(is_of_use));
        serving.count() <= 1 && used
    }

    fn is_enough(&self, before: Working) -> bool {
        if !self.world.limits.keep {
            return true;
        }
        let after = self.working();
        let prefill = self.world.prefill.target.replicas;
        let decode = self.world.decode.target.replicas;
        after.prefill >= before.prefill.min(prefill)
            && after.decode >= before.decode.min(decode)
            && after.answering >= before.answering.min(decode)
    }

    pub(super) fn wanted(&self, role: Role) -> Wanted {
        let view = self.world.role(role);
        let target = &view.target;
        let mut wanted: Wanted = self
            .of_role(role)
            .filter(|(pool, _)| pool.revision != target.revision)
            .map(|(pool, staying)| (pool.revision.clone(), count(staying.iter())))
            .collect();
        let exists: u32 = view.pools.iter().map(Pool::exists).sum();
        let new = view
            .pools
            .iter()
            .find(|pool| pool.revision == target.revision);
        let replicas = new.map_or(0, |pool| pool.replicas);
        let alone = view
            .pools
            .iter()
            .all(|pool| pool.revision == target.revision || pool.is_gone() && pool.ending == 0);
        let room = (target.replicas + self.world.limits.surge).saturating_sub(exists);
        let more = if alone {
            target.replicas
        } else {
            replicas + room
        };
        wanted.insert(
            target.revision.clone(),
            target.replicas.min(more.max(replicas)),
        );
        wanted
    }
}

/// The pods that stay, and `None` for those that were never made: the last would go first.
fn staying(pool: &Pool) -> Vec<Option<&PodView>> {
    let mut pods: Vec<_> = pool
        .pods
        .iter()
        .filter(|pod| pod.drain_until.is_none())
        .collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.rank()));
    let committed = pool.replicas.saturating_sub(pool.leaving());
    let unmade = committed.saturating_sub(count(pods.iter()));
    let unmade = std::iter::repeat_n(None, usize::try_from(unmade).unwrap_or(0));
    pods.into_iter().map(Some).chain(unmade).collect()
}

/// Whether a decode pod may still fetch KV.
fn is_of_use(pod: &PodView) -> bool {
    pod.drain_until.is_some() || pod.standing > Standing::Idle
}
