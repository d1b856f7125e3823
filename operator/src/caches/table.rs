//! Objects of one kind, by the deployment that they belong to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::build::names::DEPLOYMENT;
use crate::streams::Key;

/// What a table can keep.
pub(super) trait Kept: Serialize + DeserializeOwned {
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
    shelves: HashMap<Key, Shelf>,
    kind: PhantomData<T>,
}

/// One deployment's, by name.
type Shelf = BTreeMap<Box<str>, Packed>;

/// An object as text. The types that it is read into have room for every field that the API has, so that a pod takes several times as
/// much in them; and it is read at a look only.
#[derive(Clone, Debug)]
struct Packed {
    version: Option<u64>,
    text: Box<[u8]>,
}

impl Packed {
    /// `None` where it can't be written down, which is no object that came from an API server.
    fn new<T: Kept>(object: &T) -> Option<Self> {
        Some(Self {
            version: version(object.metadata()),
            text: serde_json::to_vec(object).ok()?.into_boxed_slice(),
        })
    }

    /// What was written is what is read.
    fn open<T: Kept>(&self) -> Option<T> {
        serde_json::from_slice(&self.text).ok()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            shelves: HashMap::new(),
            kind: PhantomData,
        }
    }
}

impl<T: Kept> Table<T> {
    /// What belongs to a deployment.
    pub(super) fn of(&self, key: &Key) -> impl Iterator<Item = (String, T)> {
        let shelf = self.shelves.get(key).into_iter().flatten();
        shelf.filter_map(|(name, packed)| Some((name.to_string(), packed.open()?)))
    }

    /// An object as it was made or changed, unless a newer version of it is here. Gives whose it is.
    pub(super) fn learn(&mut self, object: &T) -> Option<Key> {
        let (key, name) = place(object.metadata())?;
        let packed = Packed::new(object)?;
        let shelf = self.shelves.entry(key.clone()).or_default();
        let held = shelf.get(name.as_str());
        if held.is_none_or(|held| held.version <= packed.version) {
            shelf.insert(name.into_boxed_str(), packed);
        }
        Some(key)
    }

    /// An object as it was when it went, unless there is a newer one. Gives whose it was.
    pub(super) fn delete(&mut self, object: &T) -> Option<Key> {
        let (key, name) = place(object.metadata())?;
        if let Some(shelf) = self.shelves.get_mut(&key) {
            let held = shelf.get(name.as_str());
            if held.is_some_and(|held| held.version <= version(object.metadata())) {
                shelf.remove(name.as_str());
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
    pub(super) fn replace(&mut self, namespace: Option<&str>, objects: &[T]) -> BTreeSet<Key> {
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
            let Some(listed) = Packed::new(object) else {
                continue;
            };
            let held = former
                .get_mut(&key)
                .and_then(|shelf| shelf.remove(name.as_str()))
                .filter(|held| held.version > listed.version);
            let shelf = self.shelves.entry(key.clone()).or_default();
            shelf.insert(name.into_boxed_str(), held.unwrap_or(listed));
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

/// A resource version as a number. Versions of one kind grow; one that is no number is newer than nothing.
pub(crate) fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}
