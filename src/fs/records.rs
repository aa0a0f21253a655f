//! A table of records, each in one piece of memory of its own: the table itself, half of whose places are free on an
//! average, holds nothing but pointers.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Records by key.
#[derive(Debug)]
pub(super) struct Records<K, V> {
    table: HashTable<Box<(K, V)>>,
    hasher: DefaultHashBuilder,
}

impl<K, V> Default for Records<K, V> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<K: Eq + Hash, V> Records<K, V> {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |record| record.0 == *key).map(|record| &record.1)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let hash = self.hasher.hash_one(key);
        self.table
            .find_mut(hash, |record| record.0 == *key)
            .map(|record| &mut record.1)
    }

    /// The record of a key, made by `make` if there is none.
    pub(super) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (table, hasher) = (&mut self.table, &self.hasher);
        let hash = hasher.hash_one(&key);
        let place = table.entry(hash, |record| record.0 == key, |record| hasher.hash_one(&record.0));
        let record = match place {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => free.insert(Box::new((key, make()))).into_mut(),
        };
        &mut record.1
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.table.iter_mut().map(|record| &mut record.1)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.table.retain(|record| keep(&record.1));
    }

    /// Drops so many records, whichever.
    pub(super) fn drop_some(&mut self, count: usize) {
        let mut left = count;
        self.table.retain(|_| {
            let goes = left > 0;
            left -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_dropped() {
        let mut records = Records::default();
        for key in 0..1000_u64 {
            *records.get_or_insert_with(key, || 0) += key;
            *records.get_or_insert_with(key, || 7) += 1;
        }
        assert!((0..1000).all(|key| records.get(&key) == Some(&(key + 1))));
        assert!(!records.contains(&1000));
        records.values_mut().for_each(|value| *value -= 1);
        records.retain(|value| value % 2 == 0);
        assert_eq!((records.len(), records.get(&3)), (500, None));
        assert_eq!(records.get_mut(&2), Some(&mut 2));
        records.drop_some(499);
        assert_eq!(records.len(), 1);
    }
}
