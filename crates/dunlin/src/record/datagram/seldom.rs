//! A list that is empty in most connections, so that an idle one keeps little memory for it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A list that takes the room of a pointer while it is empty.
pub(super) struct Seldom<T>(Option<Box<List<T>>>);

struct List<T>(Vec<T>);

impl<T> Seldom<T> {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn push(&mut self, item: T) {
        self.0.get_or_insert_with(|| Box::new(List(Vec::new()))).0.push(item);
    }

    /// Removes and returns the item at this index. `None` if there is none.
    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let list = &mut self.0.as_mut()?.0;
        let item = (at < list.len()).then(|| list.remove(at));
        self.release();
        item
    }

    pub(super) fn retain(&mut self, is_kept: impl FnMut(&T) -> bool) {
        if let Some(list) = &mut self.0 {
            list.0.retain(is_kept);
            self.release();
        }
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    fn release(&mut self) {
        if self.is_empty() {
            self.clear();
        }
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Seldom<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_ref().map(|list| &*list.0).unwrap_or_default()
    }
}

impl<T> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_mut().map(|list| &mut *list.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_keeps_no_memory() {
        let mut list = Seldom::new();
        assert_eq!((size_of_val(&list), list.len()), (size_of::<usize>(), 0));
        (1..=4).for_each(|n| list.push(n));
        list.retain(|n| *n != 2);
        assert_eq!((list.remove(9), list.remove(0)), (None, Some(1)));
        assert_eq!(*list, [3, 4]);
        list.iter_mut().for_each(|n| *n += 1);
        list.retain(|n| *n > 9);
        assert!(list.0.is_none());
    }
}
