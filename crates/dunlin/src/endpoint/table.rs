//! The associations of an endpoint by name.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use crate::places::MAX_PLACES;

/// The most associations of an endpoint, whatever its limits say: the number of places that a name can tell
/// apart.
pub(super) const MAX_ASSOCIATIONS: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 24;
const _: () = assert!(MAX_ASSOCIATIONS == MAX_PLACES);

/// The name of an association. An endpoint never uses a name twice; later associations have greater names.
///
/// The upper 40 bits are a number that grows, the others the place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId(NonZeroU64);

impl AssociationId {
    /// Below and above all names.
    pub(super) const FIRST: Self = Self(NonZeroU64::MIN);
    pub(super) const LAST: Self = Self(NonZeroU64::MAX);

    /// The place in the table, which no other association of the same time has.
    pub(super) const fn place(self) -> usize {
        self.0.get() as usize & (MAX_ASSOCIATIONS - 1)
    }

    /// A number that grows with each association.
    pub(super) const fn number(self) -> u64 {
        self.0.get()
    }

    /// The name after this one, for tests of the indexes.
    #[cfg(test)]
    pub(super) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The associations. A name leads to its association without a search, because each record needs it several
/// times.
pub(super) struct Table<T> {
    places: Vec<Option<(AssociationId, Box<T>)>>,
    /// The places that are free again.
    free: Vec<u32>,
    /// The number of associations so far.
    begun: u64,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), begun: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names, the oldest first.
    pub(super) fn ids(&self) -> Vec<AssociationId> {
        let mut ids: Vec<_> = self.places.iter().flatten().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The name of the association at this place.
    pub(super) fn at(&self, place: usize) -> Option<AssociationId> {
        self.places.get(place)?.as_ref().map(|(id, _)| *id)
    }

    /// The name with this number.
    pub(super) fn numbered(&self, number: u64) -> Option<AssociationId> {
        let id = AssociationId(NonZeroU64::new(number)?);
        self.get(&id).map(|_| id)
    }

    pub(super) fn get(&self, id: &AssociationId) -> Option<&T> {
        let (present, association) = self.places.get(id.place())?.as_ref()?;
        (present == id).then_some(association)
    }

    pub(super) fn get_mut(&mut self, id: &AssociationId) -> Option<&mut T> {
        let (present, association) = self.places.get_mut(id.place())?.as_mut()?;
        (present == id).then_some(association)
    }

    /// Takes in an association. The caller keeps to [`MAX_ASSOCIATIONS`].
    pub(super) fn insert(&mut self, association: T) -> AssociationId {
        self.begun += 1;
        let place = self.free.pop().map_or(self.places.len(), |place| place as usize);
        let id = AssociationId(NonZeroU64::MIN.saturating_add((self.begun << PLACE_BITS) + place as u64 - 1));
        let content = Some((id, Box::new(association)));
        match self.places.get_mut(place) {
            Some(free) => *free = content,
            None => self.places.push(content),
        }
        id
    }

    pub(super) fn remove(&mut self, id: &AssociationId) -> Option<Box<T>> {
        self.get(id)?;
        let (_, association) = self.places.get_mut(id.place())?.take()?;
        self.free.push(id.place() as u32);
        if self.is_empty() {
            // An empty endpoint keeps no memory for what it had.
            (self.places, self.free) = (Vec::new(), Vec::new());
        }
        Some(association)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_places_again_but_no_names() {
        let mut table = Table::new();
        let [a, b] = ["a", "b"].map(|association| table.insert(association));
        assert_eq!((table.get(&a), table.get(&b), table.len()), (Some(&"a"), Some(&"b"), 2));
        assert_eq!(table.remove(&a).as_deref(), Some(&"a"));
        assert!(table.remove(&a).is_none() && table.len() == 1);
        let c = table.insert("c");
        assert!(a.place() == c.place() && a != c && b < c);
        assert_eq!(table.ids(), [b, c]);
        assert!(table.get(&a).is_none() && table.get_mut(&c).is_some_and(|c| *c == "c"));
        assert!(table.remove(&a).is_none() && table.remove(&b).is_some() && table.remove(&c).is_some());
        assert!(table.is_empty() && table.places.capacity() == 0);
        let d = table.insert("d");
        assert!(c < d && table.get(&b).is_none() && table.get(&c).is_none());
        assert_eq!(table.get(&d), Some(&"d"));
    }
}
