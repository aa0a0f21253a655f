//! The FUSE front end: converts a request, makes one call, replies.
//!
//! Owns the session with the kernel and the registration of files for passthrough. Never looks at the state of a
//! file to decide anything.

mod backing;
mod convert;
mod filesystem;
mod session;

pub use session::{Serving, serve};
