//! Objects of one kind, by the deployment that they belong to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;

use crate::build::names::DEPLOYMENT;
use crate::streams::Key;

/// What a table can keep.
pub(super) trait Kept {
    fn metadata(&self) -> &ObjectMeta;
}

impl Kept for ObjectMeta {
    fn metadata(&self) -> &ObjectMeta {
        self
    }
}

impl Kept for Deployment {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Kept for Pod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// By deployment and name.
#[derive(Debug)]
pub(super) struct Table<T> {
    shelves: HashMap<Key, BTreeMap<String, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            shelves: HashMap::new(),
        }
    }
}

impl<T: Kept> Table<T> {
    /// What belongs to a deployment.
    pub(super) fn of(&self, key: &Key) -> impl Iterator<Item = (&String, &Arc<T>)> {
        self.shelves.get(key).into_iter().flatten()
    }

    /// An object as it was made or changed, unless a newer version of it is here. Gives whose it is.
    pub(super) fn learn(&mut self, object: T) -> Option<Key> {
        let (key, name) = place(object.metadata())?;
        let shelf = self.shelves.entry(key.clone()).or_default();
        let held = shelf.get(&name).map(|held| held.metadata());
        if held.is_none_or(|held| !is_newer(held, object.metadata())) {
            shelf.insert(name, Arc::new(object));
        }
        Some(key)
    }

    /// An object as it was when it went, unless there is a newer one. Gives whose it was.
    pub(super) fn delete(&mut self, object: &T) -> Option<Key> {
        let (key, name) = place(object.metadata())?;
        if let Some(shelf) = self.shelves.get_mut(&key) {
            let held = shelf.get(&name).map(|held| held.metadata());
            if held.is_some_and(|held| !is_newer(held, object.metadata())) {
                shelf.remove(&name);
            }
            if shelf.is_empty() {
                self.shelves.remove(&key);
            }
        }
        Some(key)
    }

    /// All there is in a namespace, or in all of them. What isn't listed goes, though it be of a write of this process that came
    /// after the list: then the watch brings it again, and to write it once more changes nothing. Of what is listed the newer
    /// version stays. Gives whose objects there were and are.
    pub(super) fn replace(&mut self, namespace: Option<&str>, objects: Vec<T>) -> BTreeSet<Key> {
        let within = |key: &Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        let mut former = HashMap::new();
        self.shelves.retain(|key, shelf| {
            let stays = !within(key);
            if !stays {
                former.insert(key.clone(), std::mem::take(shelf));
            }
            stays
        });
        let mut touched: BTreeSet<_> = former.keys().cloned().collect();
        for object in objects {
            let Some((key, name)) = place(object.metadata()) else {
                continue;
            };
            let held = former
                .get_mut(&key)
                .and_then(|shelf| shelf.remove(&name))
                .filter(|held| is_newer(held.metadata(), object.metadata()));
            let shelf = self.shelves.entry(key.clone()).or_default();
            shelf.insert(name, held.unwrap_or_else(|| Arc::new(object)));
            touched.insert(key);
        }
        touched
    }
}

/// The deployment that the label names, and the object's name.
fn place(metadata: &ObjectMeta) -> Option<(Key, String)> {
    let key = Key {
        namespace: metadata.namespace.clone()?,
        name: metadata.labels.as_ref()?.get(DEPLOYMENT)?.clone(),
    };
    Some((key, metadata.name.clone()?))
}

/// Whether one version of an object is newer than another. Versions of one kind are numbers that grow; one that is none
/// is newer than nothing.
fn is_newer(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    version(one) > version(other)
}

/// A resource version as a number.
pub(crate) fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}
