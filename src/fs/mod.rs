//! The fs layer.
