//! A map that knows whose entries are most, and which of those were used longest ago.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use hashlink::LinkedHashMap;

/// The entries of a group, oldest first, and when the last one came.
struct Group<K, V> {
    entries: LinkedHashMap<K, V>,
    changed: u64,
}

/// Entries in groups. The order in a group is that of use, and no step takes longer with more entries, but for the logarithm of the
/// number of groups.
pub(super) struct Grouped<G, K, V> {
    /// None is empty.
    groups: HashMap<G, Group<K, V>>,
    /// The largest last; of equals the one that nobody came to for longest.
    sizes: BTreeSet<(usize, Reverse<u64>, G)>,
    len: usize,
    changes: u64,
}

impl<G, K, V> Default for Grouped<G, K, V> {
    fn default() -> Self {
        Self { groups: HashMap::new(), sizes: BTreeSet::new(), len: 0, changes: 0 }
    }
}

impl<G: Clone + Ord + Hash, K: Clone + Eq + Hash, V> Grouped<G, K, V> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Who inserts them in this order gets the same.
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

    /// The same for one who uses it by that.
    pub(super) fn touch(&mut self, group: &G, key: &K) -> Option<&mut V> {
        self.groups.get_mut(group)?.entries.to_back(key)
    }

    /// As the newest of its group; what stood there.
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

    /// Takes out the oldest of the largest group.
    pub(super) fn evict(&mut self) -> Option<(K, V)> {
        let (group, key, _) = self.oldest()?;
        let (group, key) = (group.clone(), key.clone());
        let value = self.remove(&group, &key)?;
        Some((key, value))
    }
}
