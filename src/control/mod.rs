//! The control layer.
