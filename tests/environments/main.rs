//! The guard where it has to work: as root and as an ordinary user, with less rights than it would like, on every
//! filesystem that this machine can make, with bad input, and when its daemon dies.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the harness")]
mod common;
#[path = "../contained/mod.rs"]
mod contained;
mod containers;
mod filesystems;
mod input;
mod life;
mod mounting;
mod powercut;
mod user;
