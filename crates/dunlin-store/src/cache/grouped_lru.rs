//! A map of groups that finds the largest group, and in it the least recently used entry.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use hashlink::LinkedHashMap;

/// The entries of a group, oldest first, and the time of its last change.
struct Group<K, V> {
    entries: LinkedHashMap<K, V>,
    changed: u64,
}

/// Entries in groups, ordered by last use within a group. Each step takes time that is logarithmic in the
/// number of groups and independent of the number of entries.
pub(super) struct GroupedLru<G, K, V> {
    /// No group is empty.
    groups: HashMap<G, Group<K, V>>,
    /// The largest group last; among equal sizes, the least recently changed one.
    sizes: BTreeSet<(usize, Reverse<u64>, G)>,
    len: usize,
    changes: u64,
}

impl<G, K, V> Default for GroupedLru<G, K, V> {
    fn default() -> Self {
        Self { groups: HashMap::new(), sizes: BTreeSet::new(), len: 0, changes: 0 }
    }
}

impl<G: Clone + Ord + Hash, K: Clone + Eq + Hash, V> GroupedLru<G, K, V> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// All entries, in an order whose insertion rebuilds the same map.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&G, &K, &V)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, of)| of.changed);
        groups
            .into_iter()
            .flat_map(|(group, of)| of.entries.iter().map(move |(key, value)| (group, key, value)))
    }

    pub(super) fn get(&self, group: &G, key: &K) -> Option<&V> {
        self.groups.get(group)?.entries.get(key)
    }

    /// Gets an entry and makes it the newest of its group.
    pub(super) fn touch(&mut self, group: &G, key: &K) -> Option<&mut V> {
        self.groups.get_mut(group)?.entries.to_back(key)
    }

    /// Inserts an entry as the newest of its group, and returns the previous one.
    pub(super) fn insert(&mut self, group: G, key: K, value: V) -> Option<V> {
        self.changes += 1;
        let changed = self.changes;
        let of = self.groups.entry(group.clone());
        let of = of.or_insert_with(|| Group { entries: LinkedHashMap::new(), changed });
        self.sizes.remove(&(of.entries.len(), Reverse(of.changed), group.clone()));
        let before = of.entries.insert(key, value);
        of.changed = changed;
        self.sizes.insert((of.entries.len(), Reverse(changed), group));
        self.len += usize::from(before.is_none());
        before
    }

    pub(super) fn remove(&mut self, group: &G, key: &K) -> Option<V> {
        let of = self.groups.get_mut(group)?;
        let value = of.entries.remove(key)?;
        let left = of.entries.len();
        self.sizes.remove(&(left + 1, Reverse(of.changed), group.clone()));
        if left == 0 {
            self.groups.remove(group);
        } else {
            self.sizes.insert((left, Reverse(of.changed), group.clone()));
        }
        self.len -= 1;
        Some(value)
    }

    pub(super) fn get_mut(&mut self, group: &G, key: &K) -> Option<&mut V> {
        self.groups.get_mut(group)?.entries.get_mut(key)
    }

    /// How many entries a group has.
    pub(super) fn len_of(&self, group: &G) -> usize {
        self.groups.get(group).map_or(0, |of| of.entries.len())
    }

    /// The oldest entry of a group.
    pub(super) fn oldest_of(&self, group: &G) -> Option<(&K, &V)> {
        self.groups.get(group)?.entries.front()
    }

    /// The oldest of the largest group, which makes room first.
    pub(super) fn oldest(&self) -> Option<(&G, &K, &V)> {
        let (_, _, group) = self.sizes.last()?;
        let (key, value) = self.oldest_of(group)?;
        Some((group, key, value))
    }

    /// Removes the oldest entry of the largest group.
    pub(super) fn evict(&mut self) -> Option<(K, V)> {
        let (group, key, _) = self.oldest()?;
        let group = group.clone();
        let key = key.clone();
        let value = self.remove(&group, &key)?;
        Some((key, value))
    }
}
