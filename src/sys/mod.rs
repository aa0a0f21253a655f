//! The sys layer.
