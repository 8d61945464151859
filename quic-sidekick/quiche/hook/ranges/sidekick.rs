//! The removal of the latest number from a set of ranges.

use super::RangeSet;

impl RangeSet {
    /// Removes `item` if it is the largest in the set.
    pub(crate) fn sidekick_remove_last(&mut self, item: u64) {
        if self.last() != Some(item) {
            return;
        }
        match self {
            RangeSet::Inline(set) => {
                if let Some((start, end)) = set.inner.last_mut() {
                    *end -= 1;
                    if start == end {
                        set.inner.pop();
                    }
                }
            }
            RangeSet::BTree(set) => {
                if let Some(mut last) = set.inner.last_entry() {
                    *last.get_mut() -= 1;
                    if *last.key() == *last.get() {
                        last.remove();
                    }
                }
            }
        }
        self.fixup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_the_last_undoes_pushing_it() {
        for ranges in 0..12 {
            let mut set = RangeSet::new(100);
            for range in 0..ranges {
                set.insert(range * 10..range * 10 + 3);
            }
            for more in [0, 3, 4] {
                let item = set.last().map_or(more, |last| last + more);
                let before = set.flatten().collect::<Vec<_>>();
                if set.contains(item) {
                    continue;
                }
                set.push_item(item);
                set.sidekick_remove_last(item + 1);
                assert!(set.contains(item), "another number");
                set.sidekick_remove_last(item);
                assert_eq!(set.flatten().collect::<Vec<_>>(), before);
            }
        }
    }
}
