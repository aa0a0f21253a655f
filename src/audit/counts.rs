//! Counts of what happened: whole numbers that only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::guard::Code;

/// A count of things that happened.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    pub fn add(&self) {
        self.add_many(1);
    }

    /// Counts some more.
    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The count, which begins anew.
    pub(super) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// What one owner did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Requests.
    pub operations: u64,
    /// Reads and misses that counted as observations.
    pub observations: u64,
    /// Refusals, enforced or not.
    pub refusals: u64,
    /// Those of them that were only recorded.
    pub would_refuse: u64,
    /// Files that it displaced unread at guard, and which are kept.
    pub displaced_unread: u64,
}

/// Refusals by their code.
#[derive(Debug, Default)]
pub struct ByCode([Counter; 6]);

/// Every code, in the order they are counted in.
const CODES: [Code; 6] = [
    Code::NotObserved,
    Code::StaleVersion,
    Code::NotFound,
    Code::NotRegularFile,
    Code::RulesFixed,
    Code::IoError,
];

impl ByCode {
    pub(super) fn add(&self, code: Code) {
        if let Some(index) = CODES.iter().position(|known| *known == code) {
            self.0[index].add();
        }
    }

    /// Every code with its count.
    pub fn each(&self) -> impl Iterator<Item = (Code, u64)> + '_ {
        CODES.iter().zip(&self.0).map(|(code, count)| (*code, count.get()))
    }
}
