//! How many requests the kernel has sent, by kind: what the cost of an operation is made of.
//!
//! Never allocates and never locks: one relaxed addition for each request.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// A kind of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RequestKind {
            $(#[doc = $name] $kind,)*
        }

        impl RequestKind {
            /// Every kind.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Its name, as the kernel's headers have it, in small letters.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    Lookup "lookup",
    Forget "forget",
    Getattr "getattr",
    Setattr "setattr",
    Readlink "readlink",
    Mknod "mknod",
    Mkdir "mkdir",
    Unlink "unlink",
    Rmdir "rmdir",
    Symlink "symlink",
    Rename "rename",
    Link "link",
    Open "open",
    Create "create",
    Read "read",
    Write "write",
    Flush "flush",
    Release "release",
    Fsync "fsync",
    Opendir "opendir",
    Readdir "readdir",
    Releasedir "releasedir",
    Fsyncdir "fsyncdir",
    Statfs "statfs",
    Setxattr "setxattr",
    Getxattr "getxattr",
    Listxattr "listxattr",
    Removexattr "removexattr",
    Access "access",
    Ioctl "ioctl",
    Fallocate "fallocate",
    Lseek "lseek",
    CopyFileRange "copy_file_range",
}

impl RequestKind {
    /// Whether a program waits for the answer.
    #[must_use]
    pub fn is_waited_for(self) -> bool {
        !matches!(self, Self::Forget | Self::Release | Self::Releasedir)
    }
}

/// The counts of one mount.
#[derive(Debug)]
pub struct Requests([AtomicU64; RequestKind::ALL.len()]);

impl Default for Requests {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; RequestKind::ALL.len()])
    }
}

impl Requests {
    /// Counts one.
    pub fn count(&self, kind: RequestKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many of one kind there were.
    #[must_use]
    pub fn get(&self, kind: RequestKind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }

    /// Every kind of which there was one, with its count.
    #[must_use]
    pub fn counts(&self) -> Vec<(RequestKind, u64)> {
        let all = RequestKind::ALL.into_iter().map(|kind| (kind, self.get(kind)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_count() {
        let requests = Requests::default();
        for (index, kind) in RequestKind::ALL.into_iter().enumerate() {
            (0..=index).for_each(|_| requests.count(kind));
        }
        let counts: Vec<u64> = requests.counts().into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, (1..=33).collect::<Vec<u64>>());
        assert!(RequestKind::ALL.iter().all(|kind| requests.get(*kind) > 0));
    }
}
