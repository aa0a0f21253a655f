//! The front layer.
