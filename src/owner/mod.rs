//! The owner layer.
