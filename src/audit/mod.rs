//! The audit layer.
