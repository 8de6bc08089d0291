//! Many small entries of a few lengths, without an allocation for each. The slots of a page have one length.

use std::collections::HashMap;

/// The page and the slot of an entry. It is an array of bytes, so that no type that holds it needs alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle([u8; 4]);

impl Default for Handle {
    fn default() -> Self {
        Self::NONE
    }
}

impl Handle {
    /// No entry: the end of a list.
    pub(super) const NONE: Self = Self([0xff; 4]);

    pub(super) const fn from_u32(number: u32) -> Self {
        Self(number.to_be_bytes())
    }

    /// The number is below 2^31, which leaves one bit for an index.
    pub(super) const fn to_u32(self) -> u32 {
        u32::from_be_bytes(self.0)
    }

    fn new(page: usize, slot: usize) -> Option<Self> {
        let number = u32::try_from(page * MAX_SLOTS + slot).ok()?;
        (number < 1 << 31).then(|| Self::from_u32(number))
    }

    const fn page(self) -> usize {
        self.to_u32() as usize / MAX_SLOTS
    }

    const fn slot(self) -> usize {
        self.to_u32() as usize % MAX_SLOTS
    }
}

/// The most slots of a page: one word marks the used ones.
const MAX_SLOTS: usize = 64;

/// The most bytes of a page with more than one slot. Pages of long entries have fewer slots.
const PAGE_LEN: usize = 32 << 10;

/// The two ends of a list, or the two neighbours of an entry; each may be [`Handle::NONE`].
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    pub(super) older: Handle,
    pub(super) newer: Handle,
}

impl Ends {
    pub(super) const NONE: Self = Self { older: Handle::NONE, newer: Handle::NONE };
}

/// The head of an entry in a list.
pub(super) trait Linked: Copy + Default {
    fn neighbours(&mut self) -> &mut Ends;
}

#[derive(Default)]
struct Page<H> {
    used: u64,
    heads: Box<[H]>,
    bytes: Box<[u8]>,
}

impl<H: Linked> Page<H> {
    fn new(slots: usize, len: usize) -> Self {
        Self { used: 0, heads: vec![H::default(); slots].into(), bytes: vec![0; slots * len].into() }
    }

    /// The length of the page's entries.
    const fn entry_len(&self) -> usize {
        match self.heads.len() {
            0 => 0,
            slots => self.bytes.len() / slots,
        }
    }

    const fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// The number of free slots.
    const fn room(&self) -> usize {
        self.heads.len() - self.used.count_ones() as usize
    }
}

/// The entries, each with a head of fixed size beside its bytes.
#[derive(Default)]
pub(super) struct Slab<H> {
    pages: Vec<Page<H>>,
    /// The numbers of freed pages.
    vacant: Vec<usize>,
    /// The pages with free slots, by the length of their entries.
    roomy: HashMap<usize, Vec<usize>>,
    /// The number of pages for each length.
    counts: HashMap<usize, u32>,
    in_use: usize,
}

impl<H: Linked> Slab<H> {
    /// The bytes that the entries take. The pages take more: less than two pages for each length, if the
    /// caller always moves [scattered](Self::scattered) entries.
    pub(super) const fn in_use(&self) -> usize {
        self.in_use
    }

    /// The head of an entry; `None` for [`Handle::NONE`], which has no page.
    pub(super) fn head(&self, at: Handle) -> Option<&H> {
        self.pages.get(at.page())?.heads.get(at.slot())
    }

    pub(super) fn head_mut(&mut self, at: Handle) -> Option<&mut H> {
        self.pages.get_mut(at.page())?.heads.get_mut(at.slot())
    }

    pub(super) fn bytes(&self, at: Handle) -> Option<&[u8]> {
        let page = self.pages.get(at.page())?;
        let len = page.entry_len();
        page.bytes.get(at.slot() * len..)?.get(..len)
    }

    /// Links two neighbours in the list with these `ends`. If one is [`Handle::NONE`], the other becomes an
    /// end.
    pub(super) fn join(&mut self, ends: &mut Ends, older: Handle, newer: Handle) {
        match self.head_mut(older) {
            Some(head) => head.neighbours().newer = newer,
            None => ends.older = newer,
        }
        match self.head_mut(newer) {
            Some(head) => head.neighbours().older = older,
            None => ends.newer = older,
        }
    }

    fn room(&self, page: usize) -> usize {
        self.pages.get(page).map_or(0, Page::room)
    }

    /// Returns the entries of the emptiest page once the pages of this length have free slots for two pages.
    /// The caller inserts them again, which uses other pages, and removes them; the empty page is then freed.
    pub(super) fn scattered(&mut self, len: usize) -> Vec<Handle> {
        let pages = self.roomy.get(&len).into_iter().flatten();
        let Some(number) = pages.clone().copied().max_by_key(|number| self.room(*number)) else {
            return Vec::new();
        };
        let Some(page) = self.pages.get(number) else { return Vec::new() };
        if pages.map(|number| self.room(*number)).sum::<usize>() < 2 * page.heads.len() {
            return Vec::new();
        }
        let used = (0..page.heads.len()).filter(|slot| page.used & 1 << slot != 0);
        let entries = used.filter_map(|slot| Handle::new(number, slot)).collect();
        self.leave_roomy(len, number);
        entries
    }

    /// Inserts an entry. A new page has at most `max_slots` slots. Returns `None` if there can be no more
    /// pages.
    pub(super) fn insert(&mut self, head: H, bytes: &[u8], max_slots: usize) -> Option<Handle> {
        let len = bytes.len();
        let number = match self.roomy.get(&len).and_then(|pages| pages.last()) {
            Some(number) => *number,
            None => self.add_page(len, max_slots)?,
        };
        let page = self.pages.get_mut(number)?;
        let slot = page.used.trailing_ones() as usize;
        *page.heads.get_mut(slot)? = head;
        page.bytes.get_mut(slot * len..)?.get_mut(..len)?.copy_from_slice(bytes);
        page.used |= 1 << slot;
        self.in_use += size_of::<H>() + len;
        if page.is_full() {
            self.leave_roomy(len, number);
        }
        Handle::new(number, slot)
    }

    pub(super) fn remove(&mut self, at: Handle) {
        let number = at.page();
        let Some(page) = self.pages.get_mut(number) else { return };
        let len = page.entry_len();
        if page.is_full() {
            self.roomy.entry(len).or_default().push(number);
        }
        page.used &= !(1 << at.slot());
        self.in_use -= size_of::<H>() + len;
        if page.used == 0 {
            *page = Page::default();
            self.vacant.push(number);
            if let Some(count) = self.counts.get_mut(&len).filter(|count| **count > 1) {
                *count -= 1;
            } else {
                self.counts.remove(&len);
            }
            self.leave_roomy(len, number);
        }
    }

    fn add_page(&mut self, len: usize, max_slots: usize) -> Option<usize> {
        let number = self.vacant.last().copied().unwrap_or(self.pages.len());
        // The page's last slot must have a handle.
        Handle::new(number, MAX_SLOTS - 1)?;
        // The first page of a length has one slot, and each further one four times as many, so that rare
        // lengths take little memory.
        let count = self.counts.entry(len).or_default();
        let slots = 1usize << (2 * *count).min(MAX_SLOTS.ilog2());
        *count += 1;
        let page = Page::new((PAGE_LEN / len.max(1)).min(max_slots).clamp(1, slots), len);
        match self.vacant.pop() {
            Some(number) => *self.pages.get_mut(number)? = page,
            None => self.pages.push(page),
        }
        self.roomy.entry(len).or_default().push(number);
        Some(number)
    }

    fn leave_roomy(&mut self, len: usize, number: usize) {
        if let Some(pages) = self.roomy.get_mut(&len) {
            pages.retain(|page| *page != number);
            if pages.is_empty() {
                self.roomy.remove(&len);
            }
        }
    }
}
